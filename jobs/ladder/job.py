"""Runs a ladder: its renditions as ordinary jobs that share their decoding, then their package; all or nothing."""

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ...actors.background import SharedCall
from ...actors.media.location import local_path
from ...actors.task_owner import TaskOwner
from ...cluster.fleet.pool import Pool
from ...errors import Cancelled, CodecfleetError, FleetUnavailable, InputError
from ..board.threads import in_thread, shielded, uncancellable
from ..join.publish import work_folder
from ..join.spool import RENDITIONS, Spool, storage_error
from ..package.check import check_package
from ..package.cmaf import write_tracks
from ..package.manifests.manifests import manifests
from ..package.values import Package, PlayedKind
from ..plan.placing import demand_of
from ..plan.plan import Plan, plan_of
from ..plan.reads import Reads, read_for
from ..report.channel import EventChannel
from ..report.events import Progress
from ..report.report import Report
from ..request.config import load_config
from ..request.spec import TranscodeSpec
from ..run.job_run import JobRun, PlannedJob
from ..source.source import SourceStamp
from ..stills.job import make_stills
from ..stills.spec import StillsSpec
from .demands import LadderPlace, place_ladder
from .publish import LadderFolder, recorded_files
from .report import INDEX, LadderReport, LeftOut
from .rungs import Rung, Scale, check_grid, choose, read_rungs, rendition_spec
from .spec import LadderSpec
from .together import DecodeOnce
from .tracks import given_tracks, only_played

PACKAGE: Final = "package"  #: The folder's name while the job runs
THUMBNAILS: Final = "thumbnails"  #: The folder of thumbnails in the package
THUMBNAIL_GRID: Final = (10, 10)  #: Columns and rows of a sheet


async def make_ladder(
    spec: LadderSpec, pool: Pool, *, progress: Callable[[int], None] = lambda _frames: None
) -> LadderReport:
    """Make the renditions and the package. The folder appears complete or not at all. Raises CodecfleetError.

    A ladder that was killed or cancelled goes on from its finished segments. ``pool`` starts during planning.
    ``progress`` is called several times per second with the frames encoded so far, over all renditions.
    """
    began_s = time.monotonic()
    sent = load_config().sent.specs.get(spec.preset)
    spec = spec.resolved()
    folder = work_folder(spec.output)
    work = folder / RENDITIONS
    target = LadderFolder(spec.output, spec.overwrite, await in_thread(recorded_files, work))
    await in_thread(target.check, spec.source)
    spool = Spool(folder, spec.output)
    await shielded(lambda: spool.open(continues=True, discards=spec.restart))
    try:
        start = SharedCall(pool.start(), "the workers' start")  # beside the planning
        ladder = await in_thread(plan_ladder, spec, work, sent)
        run = _LadderRun(ladder, pool, start, progress)
        reports = await run.renditions()
        package, finished = await shielded(lambda: _package(ladder, folder / PACKAGE))
        if spec.thumbnails_s is not None:
            shown = package.of(PlayedKind.VIDEO)[0]
            delay_s = shown.segments[0].start_ticks * shown.time_base
            await make_stills(thumbnails_spec(ladder, finished), pool, delay_s=delay_s)
        report = run.report(reports, package, finished, time.monotonic() - began_s)
        await shielded(lambda: _write(finished / INDEX, json.dumps(report.to_json(), indent=1)))
        await in_thread(spool.check)
        await in_thread(ladder.stamp.check)
        await uncancellable(target.publish, finished, report.files, work)
    except BaseException:  # even after a cancellation, finished segments are kept
        await asyncio.shield(in_thread(_keep, spool))
        raise
    await asyncio.shield(in_thread(spool.remove))
    return report


def _keep(spool: Spool) -> None:
    """Keep the work of the renditions; if there is none, remove everything. Never raises."""
    renditions = spool.folder / RENDITIONS
    if renditions.is_dir() and any(renditions.iterdir()):
        spool.keep()
    else:
        spool.remove()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """A planned ladder."""

    spec: LadderSpec
    stamp: SourceStamp  #: The source's version before it was read
    plans: Mapping[str, Plan]  #: The plan of each rendition by its name; the first carries sound and subtitles
    left_out: tuple[LeftOut, ...]


def plan_ladder(spec: LadderSpec, folder: Path, preset_text: str | None = None) -> Ladder:
    """Read the source once, and decide which renditions to make, in ``folder``.

    ``preset_text`` is the content of the preset's file, if the file is on another machine.

    Raises:
        InputError: the source cannot be read.
        RequestError: the preset or an option is wrong, or does not fit the source.
    """
    rungs = read_rungs(spec.preset, preset_text)
    asked = [rendition_spec(spec, rung, folder, carries=True) for rung in rungs]
    check_grid(spec, {rung.name: each for rung, each in zip(rungs, asked, strict=True)})
    stamp = SourceStamp.of(spec.source)  # before the source is read, so that a change from then on is noticed
    reads = read_for(asked[0])
    whole = plan_of(asked[0].model_copy(update={"scale": None}), reads).encoder.format
    chosen, left_out = choose(rungs, asked, (whole.width, whole.height))
    (first, first_scale), *others = chosen
    carrying = _planned(rendition_spec(spec, first, folder, carries=True), first_scale, first, reads)
    plans = {first.name: only_played(carrying)}
    # All files count from the same moment. It is in their paths, so no later attempt reuses files with another one.
    beside_s = plans[first.name].carry.first_presentation_s
    folder /= "silent" if beside_s is None else f"silent-{beside_s.numerator}_{beside_s.denominator}"
    for rung, scale in others:
        plan = _planned(rendition_spec(spec, rung, folder, carries=False), scale, rung, reads)
        plans[rung.name] = replace(plan, carry=replace(plan.carry, beside_s=beside_s))
    return Ladder(spec=spec, stamp=stamp, plans=plans, left_out=left_out)


def _planned(spec: TranscodeSpec, scale: Scale, rung: Rung, reads: Reads) -> Plan:
    with _naming(rung.name):
        return plan_of(spec.model_copy(update={"scale": scale}), reads)


def thumbnails_spec(ladder: Ladder, folder: Path) -> StillsSpec:
    """Return the request for thumbnails, which are taken from the smallest rendition."""
    smallest = min(ladder.plans.values(), key=lambda plan: plan.encoder.format.width * plan.encoder.format.height)
    return StillsSpec(
        source=smallest.spec.output,
        output=folder / THUMBNAILS,
        every_s=ladder.spec.thumbnails_s,
        sheet=THUMBNAIL_GRID,
        workers=ladder.spec.workers,
        device="cpu",
        ship=True,  # other machines do not see the work folder
    )


@contextmanager
def _naming(rendition: str, is_common: Callable[[CodecfleetError], bool] = lambda _: False) -> Iterator[None]:
    """Name the rendition in the message of an error, unless the error would end any rendition.

    Other renditions may have the same error, so it stays as it is.
    """
    try:
        yield
    except CodecfleetError as error:
        if isinstance(error, InputError | FleetUnavailable | Cancelled) or is_common(error):
            raise
        named = type(error)(f"rendition {rendition}: {error.message}", *error.args[1:])
        named.where = error.where
        raise named from error


@dataclass(slots=True)
class _LadderRun:
    """The run of a planned ladder's renditions."""

    ladder: Ladder
    pool: Pool
    start: SharedCall
    progress: Callable[[int], None]
    place: LadderPlace = field(default_factory=LadderPlace)
    decoded: int = 0
    _frames: dict[str, int] = field(default_factory=dict)  # frames done by rendition

    async def renditions(self) -> dict[str, Report]:
        """Make all renditions at the same time. Raises the error of the first that fails."""
        plans = self.ladder.plans
        await in_thread(_make_folders, [Path(plan.spec.output).parent for plan in plans.values()])
        ladder = secrets.token_hex(4)
        ids = {name: f"{ladder}-{name}" for name in plans}
        await self.start.wait()
        demands = [demand_of(plan, ids[name]) for name, plan in plans.items()]
        self.place = await place_ladder(self.pool, ladder, demands)
        # Each rendition that runs apart takes up to ``workers`` workers, so then one runs after the other.
        turn = asyncio.Semaphore(1 if self.place.apart and self.ladder.spec.workers else len(plans))
        async with TaskOwner() as owner:
            once = DecodeOnce(self.pool, ladder, list(ids.values()), owner, kind=self.place.kind)
            tasks = {
                name: owner.start(self._rendition(ids[name], name, once, owner, turn), f"rendition {name}")
                for name in plans
            }
            reports = {name: await task for name, task in tasks.items()}
            self.decoded = once.decoded
        return reports

    async def _rendition(
        self, job: str, name: str, once: DecodeOnce, owner: TaskOwner, turn: asyncio.Semaphore
    ) -> Report:
        channel = EventChannel()
        listening = owner.start(self._listen(name, channel), f"progress of {name}")
        run = JobRun(
            job,
            self.ladder.plans[name].spec,
            self.pool if self.place.apart else once,
            channel,
            start=self.start.wait,
            planned=PlannedJob(self.ladder.stamp, self.ladder.plans[name]),
            keeps_if_cancelled=lambda: True,
            keeps_record=True,
        )
        try:
            async with turn:
                with _naming(name, once.is_common):
                    report = await run.run()
        finally:
            once.leave(job)
            listening.cancel()
        self._count(name, report.frames)  # a rendition that an earlier run finished has no other progress
        return report

    async def _listen(self, name: str, channel: EventChannel) -> None:
        async for event in channel.listen():
            if isinstance(event, Progress):
                self._count(name, event.frames_done)

    def _count(self, name: str, frames: int) -> None:
        self._frames[name] = frames
        self.progress(sum(self._frames.values()))

    def report(self, reports: Mapping[str, Report], package: Package, folder: Path, wall_s: float) -> LadderReport:
        """Return the ladder's report; ``folder`` holds the package."""
        encoded = sum(not each.restored for report in reports.values() for each in report.segments)
        files = sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())
        return LadderReport(
            source=self.ladder.spec.source,
            output=self.ladder.spec.output,
            renditions=tuple(reports.items()),
            left_out=self.ladder.left_out,
            package=package,
            files=(*files, INDEX),
            output_bytes=sum((folder / each).stat().st_size for each in files),
            encoded=encoded,
            decoded=encoded if self.place.apart else self.decoded,
            apart=self.place.apart,
            wall_s=wall_s,
        )


def _make_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise storage_error(error, folder) from error


def _package(ladder: Ladder, folder: Path) -> tuple[Package, Path]:
    """Write the package of finished renditions into ``folder``, and read it back. Raises ProofFailed; StorageFailed."""
    files = {name: local_path(plan.spec.output) for name, plan in ladder.plans.items()}
    try:
        folder.mkdir()
        package = write_tracks(given_tracks(files), folder, segment_s=ladder.spec.packaged_s, layout=ladder.spec.layout)
        check_package(folder, package)
    except OSError as error:
        raise storage_error(error, folder) from error
    for name, text in manifests(package).items():
        _write(folder / name, text)
    return package, folder


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise storage_error(error, path) from error
