"""Runs a ladder: ordinary jobs that share their decoding make its renditions, and then their package is written."""

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ...actors.background import SharedCall
from ...actors.media.location import local_path
from ...actors.task_owner import TaskOwner
from ...cluster.fleet.pool import Pool
from ..board.reach import SourceReach
from ..board.threads import in_thread, shielded, uncancellable
from ..join.publish import work_folder
from ..join.spool import RENDITIONS, Spool, storage_error
from ..journal.header import request_text
from ..package.check import check_package
from ..package.cmaf import write_tracks
from ..package.manifests.manifests import manifests
from ..package.values import Package, PlayedKind
from ..plan.placing import demand_of
from ..report.channel import EventChannel
from ..report.events import Event, StageStarted
from ..report.report import Report
from ..request.config import load_config
from ..run.job_run import JobRun, PlannedJob
from ..stills.job import make_stills
from ..title.probes import Probing
from ..title.rounds import ProbeRecord, ProbeRound
from .demands import LadderPlace, place_ladder
from .events import LadderEvents
from .plan import PROBES, Ladder, LadderRead, for_film, naming, plan_read, probing_for, read_ladder, thumbnails_spec
from .publish import LadderFolder, recorded_files
from .report import INDEX, LadderReport
from .rungs import MOST_RUNGS
from .spec import LadderSpec
from .together import DecodeOnce
from .tracks import given_tracks

PACKAGE: Final = "package"  #: The package's folder in the work folder


async def make_ladder(
    spec: LadderSpec,
    pool: Pool,
    *,
    tell: Callable[[Event], None] = lambda _event: None,
    keeps_record: bool = False,
) -> LadderReport:
    """Make the renditions and the package. The folder appears complete or not at all. Raises CodecfleetError.

    A ladder that was killed or cancelled continues from its finished segments. ``pool`` starts during planning.
    ``tell`` is called with the ladder's events: stages, warnings, and the progress of all renditions together. With
    ``keeps_record``, the renditions stay after the package is published, so that the same request can publish it again.
    """
    began_s, job = time.monotonic(), secrets.token_hex(4)
    sent = load_config().sent.specs.get(spec.preset)
    spec = spec.resolved()
    folder = work_folder(spec.output)
    work = folder / RENDITIONS
    request = request_text(spec)
    target = LadderFolder(spec.output, spec.overwrite, request, await in_thread(recorded_files, work, request))
    await in_thread(target.check, spec.source)
    spool = Spool(folder, spec.output)
    await shielded(lambda: spool.open(continues=True, discards=spec.restart))
    try:
        start = SharedCall(pool.start(), "the workers' start")  # during planning
        read = await in_thread(read_ladder, spec, work, sent)
        if spec.per_title is not None:
            probing = await in_thread(probing_for, read)
            await in_thread(plan_read, read)  # reports a wrong option before the probes run
            await start.wait()
            tell(StageStarted(job, time.monotonic() - began_s, "probe"))
            read = await _probed(read, probing, pool, job)
        ladder = await in_thread(plan_read, read)
        run = LadderRun(ladder, pool, start, tell, job)
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
    await asyncio.shield(in_thread(spool.keep if keeps_record else spool.remove))
    return report


async def _probed(read: LadderRead, probing: Probing, pool: Pool, ladder: str) -> LadderRead:
    """Run the probes that no earlier run has made, and return the ladder with the rungs for its film."""
    record = await in_thread(lambda: ProbeRecord.read(read.folder / PROBES, probing.key))
    left = [(each, units) for each in probing.sizes if (units := probing.left(each, record.found))]
    rounds = [ProbeRound(probing, record, f"{ladder}-{number}", *each) for number, each in enumerate(left)]
    place = await place_ladder(pool.preview, ladder, [each.demand for each in rounds])
    async with TaskOwner() as owner:
        once = DecodeOnce(pool, ladder, [each.job for each in rounds], owner)
        reach = SourceReach(pool if place.apart else once, read.stamp, read.spec.ship)
        turn = _turn(place, read.spec)

        async def run(each: ProbeRound) -> None:
            async with turn:
                await each.run(reach)

        for task in [owner.start(run(each), f"probes {each.job}") for each in rounds]:
            await task
    return for_film(read, probing, record.found)


def _turn(place: LadderPlace, spec: LadderSpec) -> asyncio.Semaphore:
    """Return a semaphore for renditions: they take turns if they decode apart and ``workers`` limits the workers."""
    return asyncio.Semaphore(1 if place.apart and spec.workers else MOST_RUNGS)


def _keep(spool: Spool) -> None:
    """Keep the work of the renditions; if there is none, remove everything. Never raises."""
    renditions = spool.folder / RENDITIONS
    if renditions.is_dir() and any(renditions.iterdir()):
        spool.keep()
    else:
        spool.remove()


@dataclass(slots=True)
class LadderRun:
    """The run of a planned ladder's renditions."""

    ladder: Ladder
    pool: Pool
    start: SharedCall
    tell: Callable[[Event], None]
    job: str = field(default_factory=lambda: secrets.token_hex(4))
    place: LadderPlace = field(default_factory=LadderPlace)
    decoded: int = 0
    encoded: int = 0

    async def renditions(self) -> dict[str, Report]:
        """Make all renditions at the same time. Raises the error of the first that fails."""
        plans = self.ladder.plans
        await in_thread(_make_folders, [Path(plan.spec.output).parent for plan in plans.values()])
        ladder = self.job
        ids = {name: f"{ladder}-{name}" for name in plans}
        await self.start.wait()
        demands = [demand_of(plan, ids[name]) for name, plan in plans.items()]
        self.place = await place_ladder(self.pool.preview, ladder, demands)
        turn = _turn(self.place, self.ladder.spec)
        events = LadderEvents(ladder, {name: plan.frames for name, plan in plans.items()}, self.tell)
        async with TaskOwner() as owner:
            once = DecodeOnce(self.pool, ladder, list(ids.values()), owner, kind=self.place.kind)
            channels = {name: EventChannel() for name in plans}
            hearing = [owner.start(_hear(events, *each), f"events of {each[0]}") for each in channels.items()]
            tasks = {
                name: owner.start(self._rendition(ids[name], name, once, channel, turn), f"rendition {name}")
                for name, channel in channels.items()
            }
            reports = {name: await task for name, task in tasks.items()}
            await asyncio.gather(*hearing)
            self.decoded, self.encoded = once.decoded, once.encoded
        return reports

    async def _rendition(
        self, job: str, name: str, once: DecodeOnce, channel: EventChannel, turn: asyncio.Semaphore
    ) -> Report:
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
                with naming(name, once.is_common):
                    return await run.run()
        finally:
            once.leave(job)
            await channel.close()

    def report(self, reports: Mapping[str, Report], package: Package, folder: Path, wall_s: float) -> LadderReport:
        """Return the ladder's report; ``folder`` holds the package."""
        if self.place.apart:
            self.encoded = sum(not each.restored for report in reports.values() for each in report.segments)
        files = sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())
        return LadderReport(
            source=self.ladder.spec.source,
            output=self.ladder.spec.output,
            renditions=tuple(reports.items()),
            left_out=self.ladder.left_out,
            per_title=self.ladder.per_title,
            package=package,
            files=(*files, INDEX),
            output_bytes=sum((folder / each).stat().st_size for each in files),
            encoded=self.encoded,
            decoded=self.encoded if self.place.apart else self.decoded,
            apart=self.place.apart,
            wall_s=wall_s,
        )


async def _hear(events: LadderEvents, name: str, channel: EventChannel) -> None:
    async for event in channel.listen():
        events.hear(name, event)


def _make_folders(folders: Iterable[Path]) -> None:
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, folder) from error


def _package(ladder: Ladder, folder: Path) -> tuple[Package, Path]:
    """Write the package of finished renditions into ``folder``, and read it back. Raises ProofFailed; StorageFailed."""
    files = {name: local_path(plan.spec.output) for name, plan in ladder.plans.items()}
    try:
        folder.mkdir()
        given = given_tracks(files, ladder.sound_groups)
        package = write_tracks(
            given, folder, segment_s=ladder.spec.packaged_s, layout=ladder.spec.layout, keys=ladder.keys
        )
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
