"""A job for stills: decode what holds them on many workers, and publish one folder, complete or not at all."""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from ...actors.media.location import local_path
from ...cluster.client.pool import Pool
from ...cluster.grouping import counted
from ..board.threads import in_thread, shielded, uncancellable
from ..join.publish import work_folder
from ..join.spool import Spool
from ..plan.placing import check_device
from ..source.source import SourceStamp
from .fan_out import DecodeCounts, FanOut
from .folder import check_folder, publish_folder
from .listing import INDEX
from .moments import Moment, at_scenes
from .plan import StillsPlan, plan_stills
from .scenes import MeasuredPictures, scene_starts
from .spec import StillsSpec
from .writer import StillsWriter

FOLDER = "stills"
"""The name, among unfinished work, of the folder that is filled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StillsReport:
    """What was made, and what it took.

    ``frames`` are the pictures of the asked-for part, of which, with those on the way to them, ``frames_decoded`` were
    decoded. ``missing`` are the numbers of stills whose picture does not decode. ``index`` and ``vtt`` are paths.
    """

    source: str
    output: str
    stills: int
    sheets: int
    missing: tuple[int, ...]
    width: int
    height: int
    index: str
    vtt: str
    frames: int
    frames_decoded: int
    decoded_by: dict[str, int]
    warnings: tuple[str, ...]
    wall_s: float

    def lines(self) -> list[str]:
        """Return it for a person, a line each."""
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
        """Return it as plain JSON values; docs/stills.md describes them."""
        names = (name for name in self.__dataclass_fields__ if name not in ("missing", "warnings"))
        values = {name: getattr(self, name) for name in names}
        return {"schema": 1, **values, "missing": list(self.missing), "warnings": list(self.warnings)}


async def make_stills(
    spec: StillsSpec, pool: Pool, *, progress: Callable[[int], None] = lambda _frames: None
) -> StillsReport:
    """Take stills of a source; leave either the complete folder or nothing.

    Args:
        spec: what is asked for.
        pool: where ranges are decoded; it is started once everything else is known to be sound.
        progress: called a few times a second with how many frames are decoded.

    Raises:
        CodecfleetError: the job failed.
    """
    began = time.monotonic()
    spec = spec.resolved()
    await in_thread(check_folder, spec.output, overwrite=spec.overwrite)
    stamp = await in_thread(SourceStamp.of, spec.source)
    pool.prepare()
    plan = await in_thread(plan_stills, spec)
    await pool.start()
    run = _StillsRun(secrets.token_hex(4), plan, pool, stamp, progress)
    await check_device(plan.demand(run.job, [plan.ranges.frames]), pool)
    spool = Spool(work_folder(spec.output), spec.output)
    try:
        await shielded(spool.open)
        writer = await run.fill(spool.folder / FOLDER)
        await in_thread(stamp.check)
        await uncancellable(publish_folder, writer.folder, spec.output, overwrite=spec.overwrite)
    except Exception:
        await in_thread(stamp.check)  # whatever else went wrong, a source that changed explains it
        raise
    finally:
        await asyncio.shield(in_thread(spool.remove))
    return run.report(writer, time.monotonic() - began)


@dataclass(slots=True)
class _StillsRun:
    """The running of one job."""

    job: str
    plan: StillsPlan
    pool: Pool
    stamp: SourceStamp
    progress: Callable[[int], None]
    decoded: DecodeCounts = field(default_factory=DecodeCounts)

    async def fill(self, folder: Path) -> StillsWriter:
        """Take all stills into a folder that is made for them."""
        plan = self.plan
        moments = await self._scenes() if plan.spec.scene else plan.moments()
        shots = await in_thread(plan.shots, moments)
        await in_thread(folder.mkdir)
        writer = StillsWriter(folder, plan, moments)
        await FanOut(
            pool=self.pool,
            job=self.job,
            waits=plan.spec,
            index=plan.index,
            stamp=self.stamp,
            demand=plan.demand(self.job, [shot.segment.frames for shot in shots.shots]),
            work=lambda run: plan.taking(self.job, shots, run),
            take=writer.add,
            adjoin=shots.adjoin,
            decoded=self.decoded,
            progress=self.progress,
        ).run()
        await shielded(writer.finish)
        return writer

    async def _scenes(self) -> tuple[Moment, ...]:
        """Measure all pictures, and return where scenes begin."""
        plan, measured = self.plan, MeasuredPictures()
        await FanOut(
            pool=self.pool,
            job=self.job,
            waits=plan.spec,
            index=plan.index,
            stamp=self.stamp,
            demand=plan.demand(self.job, [segment.frames for segment in plan.ranges.segments]),
            work=lambda run: plan.measuring(self.job, run),
            take=measured.add,
            adjoin=True,
            decoded=self.decoded,
            progress=self.progress,
        ).run()
        first, base = plan.index.first_ticks, plan.index.time_base
        starts = scene_starts(
            measured.times,
            measured.differences,
            threshold_percent=plan.spec.scene_threshold,
            shortest_ticks=Fraction(plan.spec.scene_shortest_s) / base,
        )
        return at_scenes([(ticks - first) * base for ticks in starts], plan.end_s)

    def report(self, writer: StillsWriter, wall_s: float) -> StillsReport:
        """Return what was made."""
        spec = self.plan.spec
        sheets = len(writer.files) if spec.sheet else 0
        return StillsReport(
            source=spec.source,
            output=spec.output,
            stills=len(writer.stills),
            sheets=sheets,
            missing=tuple(writer.missing),
            width=self.plan.look.width,
            height=self.plan.look.height,
            index=str(local_path(spec.output) / INDEX),
            vtt=str(local_path(spec.output) / writer.vtt),
            frames=self.plan.ranges.frames,
            frames_decoded=self.decoded.frames,
            decoded_by=dict(self.decoded.decoded_by),
            warnings=(*self.pool.notes, *self.plan.warnings, *self.decoded.warnings(), *writer.warnings()),
            wall_s=wall_s,
        )
