"""Runs a stills job: decodes the needed ranges on many workers, and publishes a complete folder or nothing."""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from ...actors.background import SharedCall
from ...actors.media.location import local_path
from ...actors.stills.work import PictureWork, SeenSegment, SeenT
from ...cluster.fleet.pool import Pool
from ...cluster.grouping import counted
from ..board.events import Finished, Run
from ..board.fan_out import fan_out
from ..board.loop import finished
from ..board.reach import SourceReach
from ..board.threads import in_thread, shielded, uncancellable
from ..join.publish import check_folder, publish_folder
from ..journal.publish_record import RecordedWork
from ..plan.placing import check_device
from ..source.source import SourceStamp
from .moments import MeasuredPictures, Moment, at_scenes, scene_starts
from .plan import StillsPlan, plan_stills
from .spec import StillsSpec
from .writer import INDEX, StillsWriter, listed_stills

FOLDER = "stills"  # the folder, in the work folder, into which stills are written


@dataclass(frozen=True, slots=True, kw_only=True)
class StillsReport:
    """The result of a stills job."""

    source: str
    output: str  #: The folder
    stills: int  #: How many were taken
    sheets: int
    missing: tuple[int, ...]  #: The numbers of the stills whose pictures do not decode
    width: int  #: The width of each still
    height: int
    index: str  #: The path of the index
    vtt: str  #: The path of the WebVTT file
    frames: int  #: Pictures in the requested part
    frames_decoded: int  #: Pictures decoded for the stills, including the earlier pictures of their groups
    decoded_by: dict[str, int]  #: Ranges by decoder
    warnings: tuple[str, ...]
    wall_s: float

    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        on = f" on {counted(self.sheets, 'sheet')}" if self.sheets else ""
        by = ", ".join(f"{name} {count}" for name, count in sorted(self.decoded_by.items()))
        return [
            f"stills    {self.stills} of {self.width}x{self.height}{on} in {self.output}",
            f"lists     {self.index}, {self.vtt}",
            f"decoded   {self.frames_decoded} of {counted(self.frames, 'frame')} (ranges by decoder: {by})",
            f"time      {self.wall_s:.1f} s",
            *(f"warning: {warning}" for warning in self.warnings),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values (docs/stills.md)."""
        names = (name for name in self.__dataclass_fields__ if name not in ("missing", "warnings"))
        values = {name: getattr(self, name) for name in names}
        return {"schema": 1, **values, "missing": list(self.missing), "warnings": list(self.warnings)}


@dataclass(slots=True)
class DecodeCounts:
    """Counts over the decoded ranges."""

    frames: int = 0
    damaged: int = 0  # ranges with damage
    decoded_by: Counter[str] = field(default_factory=Counter)  # ranges by decoder
    fallbacks: set[str] = field(default_factory=set)  # reasons why software decoded instead of a GPU

    def add(self, seen: SeenSegment) -> None:
        """Count one decoded range."""
        tally = seen.tally
        self.frames += seen.frames_decoded
        self.damaged += tally.damaged
        self.decoded_by[tally.decoded_by] += 1
        self.fallbacks |= {tally.fallback} if tally.fallback else set()

    def warnings(self) -> list[str]:
        """Return warnings about damage and about software that replaced a GPU."""
        met = f"damage in {counted(self.damaged, 'range')}: the pictures that could be decoded were used"
        software = [f"software decoded instead of a GPU: {reason}" for reason in sorted(self.fallbacks)]
        return [met] * bool(self.damaged) + software


async def make_stills(
    spec: StillsSpec,
    pool: Pool,
    *,
    progress: Callable[[int], None] = lambda _frames: None,
    delay_s: Fraction = Fraction(0),
    keeps_record: bool = False,
) -> StillsReport:
    """Take stills of a source. The folder appears complete or not at all. Raises CodecfleetError.

    ``pool`` starts during planning. ``progress`` is called several times per second with the number of frames decoded.
    The times in the WebVTT file count from the track's first picture, and are all ``delay_s`` later. With
    ``keeps_record``, the work folder keeps a record, which allows the same request to replace the stills.
    """
    began = time.monotonic()
    spec = spec.resolved()
    work = RecordedWork(spec, spec.output, str(local_path(spec.output) / INDEX))
    may_replace = spec.overwrite or await in_thread(work.may_replace)
    await in_thread(check_folder, spec.output, listed_stills, overwrite=may_replace)
    stamp = await in_thread(SourceStamp.of, spec.source)
    start = SharedCall(pool.start(), "the workers' start")  # during planning
    plan = await in_thread(plan_stills, spec)
    await start.wait()
    run = _StillsRun(secrets.token_hex(4), plan, pool, stamp, progress, delay_s)
    await check_device(plan.demand(run.job, [plan.ranges.frames]), pool)
    try:
        async with work.opened(keeps_record=keeps_record) as folder:
            writer = await run.fill(folder / FOLDER)
            await in_thread(stamp.check)
            may_replace = spec.overwrite or await in_thread(work.may_replace)
            await in_thread(work.record, writer.folder / INDEX)
            await uncancellable(publish_folder, writer.folder, spec.output, listed_stills, overwrite=may_replace)
    # any failure may be due to a changed source, which ``explain`` reports; otherwise the error is raised again
    except Exception as error:
        await in_thread(stamp.explain, error)
        raise
    return run.report(writer, time.monotonic() - began)


@dataclass(slots=True)
class _StillsRun:
    job: str
    plan: StillsPlan
    pool: Pool
    stamp: SourceStamp
    progress: Callable[[int], None]
    delay_s: Fraction
    decoded: DecodeCounts = field(default_factory=DecodeCounts)
    again: list[str] = field(default_factory=list)  # retries, and their reasons

    async def fill(self, folder: Path) -> StillsWriter:
        """Create ``folder``, and write all stills into it."""
        plan = self.plan
        moments = await self._scenes() if plan.spec.scene else plan.moments()
        shots = await in_thread(plan.shots, moments)
        await in_thread(folder.mkdir)
        writer = StillsWriter(folder, plan, moments, self.delay_s)
        frames = [shot.segment.frames for shot in shots.shots]
        await self._fan_out(frames, lambda run: plan.taking(self.job, shots, run), writer.add, adjoin=shots.adjoin)
        await shielded(writer.finish)
        return writer

    async def _scenes(self) -> tuple[Moment, ...]:
        plan, measured = self.plan, MeasuredPictures()
        frames = [segment.frames for segment in plan.ranges.segments]
        await self._fan_out(frames, lambda run: plan.measuring(self.job, run), measured.add, adjoin=True)
        first, base = plan.index.first_ticks, plan.index.time_base
        starts = scene_starts(
            measured.times,
            measured.differences,
            threshold_percent=plan.spec.scene_threshold,
            shortest_ticks=Fraction(plan.spec.scene_shortest_s) / base,
        )
        return at_scenes([(ticks - first) * base for ticks in starts], plan.end_s)

    async def _fan_out(
        self,
        frames: Sequence[int],
        work: Callable[[Run], PictureWork[SeenT]],
        take: Callable[[SeenT], None],
        *,
        adjoin: bool,
    ) -> None:
        """Run work over ranges with these numbers of frames. If the ranges ``adjoin``, seams are compared."""
        before = self.decoded.frames

        def end(run: Run, result: SeenT) -> Finished:
            told = finished(run, result.tally, work(run).decode.entry, self.plan.index)
            told = replace(told, sound=told.sound and result.is_complete)
            return told if adjoin else replace(told, seam_before=(), seam_after=())

        def taken(result: SeenT) -> None:
            take(result)
            self.decoded.add(result)

        self.again += await fan_out(
            SourceReach(self.pool, self.stamp, self.plan.spec.ship),
            self.plan.demand(self.job, frames),
            self.plan.spec,
            work=work,
            end=end,
            take=taken,
            frames=lambda result: result.frames_decoded,
            progress=lambda done: self.progress(before + done),
        )

    def report(self, writer: StillsWriter, wall_s: float) -> StillsReport:
        spec = self.plan.spec
        return StillsReport(
            source=spec.source,
            output=spec.output,
            stills=len(writer.stills),
            sheets=len(writer.files) if spec.sheet else 0,
            missing=tuple(writer.missing),
            width=self.plan.look.width,
            height=self.plan.look.height,
            index=str(local_path(spec.output) / INDEX),
            vtt=str(local_path(spec.output) / writer.vtt),
            frames=self.plan.ranges.frames,
            frames_decoded=self.decoded.frames,
            decoded_by=dict(self.decoded.decoded_by),
            warnings=(
                *self.pool.state.notes,
                *self.plan.warnings,
                *self.again,
                *self.decoded.warnings(),
                *writer.warnings(),
            ),
            wall_s=wall_s,
        )
