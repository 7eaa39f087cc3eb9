"""A small file as one work item: a worker plans, encodes, joins, proves and publishes it in one thread.

The worker runs an ordinary job without a journal. Only the request and the report pass between processes, and an
interrupted file starts over.
"""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final, TypeVar

from ...actors.device.work import Work, WorkContext
from ...actors.segment.encoding import EncodedSegment
from ...cluster.fleet.pool import Asked, JobState, Pool, PoolState
from ...cluster.fleet.run import ResultOrigin, WorkRun
from ...cluster.placement.model import Demand, PlacementPreview
from ...cluster.worker_names import NO_WORKER
from ...errors import Cancelled, CodecfleetError, WorkError
from ..board.threads import in_place
from ..report.channel import EventChannel
from ..report.report import Report
from ..request.spec import TranscodeSpec
from .store.schema import SegmentSpan

ResultT = TypeVar("ResultT")

MOST_PIXELS: Final = 1920 * 1088  #: The picture size for which a slot's memory is reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFileDone:
    """A published file: the report of its job, and when its segment ran."""

    report: Report
    span: SegmentSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFile(Work[WholeFileDone]):
    """Runs a whole job of one segment, from its request to its published file."""

    spec: TranscodeSpec

    @property
    def file(self) -> str:
        """The job's source."""
        return self.spec.source

    def run(self, context: WorkContext) -> WholeFileDone:
        """Run the job in the calling thread. Afterwards the output is complete, or unchanged.

        Raises:
            WorkError: the file has more than one segment, its pictures are too large, or its job raised WorkError.
            CodecfleetError: its job raised this error.
            Cancelled: the work was cancelled.
        """
        pool = _OneThread(context)
        try:
            with in_place():
                report = asyncio.run(self._report(pool))
        except asyncio.CancelledError:
            raise Cancelled("the work was cancelled") from None
        return WholeFileDone(report=report, span=pool.span)

    async def _report(self, pool: "_OneThread") -> Report:
        from ..run.job_run import JobRun  # noqa: PLC0415 - only workers need these modules

        pool.job = asyncio.current_task()
        spec = self.spec.model_copy(update={"no_journal": True})
        return await JobRun(self.label, spec, pool, EventChannel()).run()


@dataclass(slots=True)
class _OneThread(Pool):
    """Runs each work item immediately, in the job's own thread."""

    context: WorkContext
    job: asyncio.Task[Report] | None = None
    span: SegmentSpan = field(init=False)

    @property
    def state(self) -> PoolState:
        return PoolState(slots=1, others=JobState(slots=1, cores=1))

    async def start(self) -> None:
        """Do nothing."""

    def set_demand(self, job: str, demand: Asked | None) -> None:
        """Only check the demand: refuse a job with several segments or with large pictures."""
        if not isinstance(demand, Demand):
            return
        made = [each.width * each.height for each in demand.renditions]
        if len(demand.segments) > 1 or max(demand.width * demand.height, *made) > MOST_PIXELS:
            raise WorkError(f"{job} is not small", "Run the file as a separate job.")

    async def preview(self, demand: Demand) -> PlacementPreview:
        del demand
        return PlacementPreview()

    def submit(self, work: Work[ResultT]) -> WorkRun[ResultT]:
        run: WorkRun[ResultT] = WorkRun(lambda _: None)  # the parent process detects hangs
        began_s = time.time()
        try:
            result = work.run(self.context)
        except Cancelled:
            if self.job is not None:
                self.job.cancel()  # this also ends the task that awaits the run
            return run
        except CodecfleetError as error:
            run.fail(error)
            return run
        if isinstance(result, EncodedSegment):
            self.span = SegmentSpan(
                segment=result.segment,
                began_s=began_s,
                ended_s=time.time(),
                frames=result.frames_out,
                station="",
                decoded_by=result.tally.decoded_by,
            )
        run.end(result, ResultOrigin(NO_WORKER, work.file))
        return run

    async def aclose(self) -> None:
        """Do nothing."""
