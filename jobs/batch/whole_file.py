"""A small file as one piece of work: a worker plans, encodes, joins, proves and publishes it alone, in one thread.

The job is the usual one, with the usual promises; only its request and its report go from process to process. It has
no journal: what is left of it is done again.
"""

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ...actors.device.work import Work, WorkContext
from ...actors.segment.encoding import EncodedSegment
from ...cluster.fleet.pool import Pool
from ...cluster.placement.model import Demand
from ...errors import Cancelled, WorkError
from ..board.threads import in_place
from ..report.channel import EventChannel
from ..report.report import Report
from ..request.spec import TranscodeSpec
from .store.schema import SegmentSpan

ResultT = TypeVar("ResultT")

MOST_PIXELS: Final = 1920 * 1088
"""Of a picture: a worker's slot is given the memory that this takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFileDone:
    """A file that is published: its job's report, when its segment ran, and in which process."""

    report: Report
    span: SegmentSpan
    process: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFile(Work[WholeFileDone]):
    """Do a job of one segment from its request to its published file."""

    spec: TranscodeSpec

    @property
    def file(self) -> str:
        """Name its source."""
        return self.spec.source

    def run(self, context: WorkContext) -> WholeFileDone:
        """Run in the calling thread; under the output's name is then the complete file, or what was there.

        Raises:
            WorkError: it is more than one segment, or its pictures are too large; or its job failed so.
            CodecfleetError: its job's own.
            Cancelled: the work was cancelled.
        """
        pool = _OneThread(context)
        try:
            with in_place():
                report = asyncio.run(self._report(pool))
        except asyncio.CancelledError:
            raise Cancelled("the work was cancelled") from None
        return WholeFileDone(report=report, span=pool.span, process=os.getpid())

    async def _report(self, pool: "_OneThread") -> Report:
        from ..run.job_run import JobRun  # noqa: PLC0415 - only workers do it, and they alone load what it takes

        pool.job = asyncio.current_task()
        spec = self.spec.model_copy(update={"no_journal": True})
        return await JobRun(self.label, spec, pool, EventChannel()).run()


@dataclass(slots=True)
class _OneThread(Pool):
    """Runs each piece of a job's work at once, where the job runs."""

    context: WorkContext
    job: asyncio.Task[Report] | None = None
    span: SegmentSpan = field(init=False)

    @property
    def slots(self) -> int:
        return 1

    async def start(self) -> None:
        """Do nothing: it runs."""

    def set_demand(self, demand: Demand) -> None:
        """Refuse what is more than one small segment: that is for all workers, as a job of its own."""
        made = [each.width * each.height for each in demand.renditions]
        if len(demand.segments) > 1 or max(demand.width * demand.height, *made) > MOST_PIXELS:
            raise WorkError(f"{demand.job} is not small", "Run it as a job of its own.")

    async def submit(self, work: Work[ResultT]) -> ResultT:
        began_s = time.time()
        try:
            result = work.run(self.context)
        except Cancelled:
            if self.job is not None:
                self.job.cancel()
            await asyncio.Event().wait()  # the job's own cancellation ends this
            raise
        if isinstance(result, EncodedSegment):
            self.span = SegmentSpan(
                segment=result.segment,
                began_s=began_s,
                ended_s=time.time(),
                frames=result.frames_out,
                station="",
                decoded_by=result.tally.decoded_by,
            )
        return result

    async def progress(self, job: str) -> Mapping[str, int]:
        del job
        return {}

    async def stations(self, job: str) -> Mapping[str, str]:
        del job
        return {}

    async def write_off(self, job: str, label: str, reason: str) -> None:
        """Do nothing: who watches this thread from outside does."""

    async def aclose(self) -> None:
        """Do nothing: it ends with its job."""
