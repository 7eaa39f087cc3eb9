"""``Fleet``, to which jobs are submitted: the public API."""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from pydantic import BaseModel

from ..actors.background import SharedCall
from ..actors.process.forked import keep_from_children
from ..actors.tracing import send_spans
from ..cluster.fleet.pool import Pool
from ..errors import Cancelled, UsageError
from .board.threads import in_thread
from .held import Held
from .job import Job
from .ladder.spec import LadderSpec
from .report.channel import EventChannel
from .report.events import Event
from .report.report import Report
from .request.parts import JobRequest
from .request.spec import BatchSpec, TranscodeSpec
from .stills.spec import StillsSpec

if TYPE_CHECKING:
    from ..cluster.queue.values import QueuedJob
    from .batch.batch import Batch
    from .batch.preview import Intended, Preview
    from .fleet_frames.film import FleetFrameOptions, FleetFrames
    from .ladder.report import LadderReport
    from .stills.job import StillsReport

SpecT = TypeVar("SpecT", bound=BaseModel)
ResultT = TypeVar("ResultT")
JOBS_AT_ONCE = 4  #: Further jobs wait; this limits open files and memory
SPANS_LIMIT_S = 2.0  #: How long closing a fleet may wait for a collector of traces


class Fleet:
    """Workers to run jobs on: this machine's, or a cluster's.

    Without ``address`` and ``RAY_ADDRESS``, workers start on this machine, with a private Ray if that is faster. Inside
    an existing Ray driver, worker or job, the existing connection is used and left unchanged.

    Args:
        address: a Ray cluster's address.
        workers: the most segments in flight; None means as many as the machines can run.
        jobs_at_once: how many jobs may run at the same time.
        pool: the pool to use instead of these workers, for example ``codecfleet.testing.LocalPool``.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        jobs_at_once: int = JOBS_AT_ONCE,
        pool: Pool | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise UsageError(f"a fleet needs at least one worker: {workers}", "Leave workers out to use every core.")
        if jobs_at_once < 1:
            message = f"a fleet must run at least one job at a time: {jobs_at_once}"
            raise UsageError(message, "Leave jobs_at_once out for the default.")
        self._address = address
        self._workers = workers
        self._pool = pool
        self._jobs_at_once = asyncio.Semaphore(jobs_at_once)
        self._jobs: set[Job] = set()
        self._batches: set[Batch] = set()
        self._held: set[Held[Any]] = set()
        self._open = False
        self._process = os.getpid()

    async def __aenter__(self) -> Self:
        """Open the fleet. Workers start with the first job that needs them."""
        if self._pool is None:
            from ..cluster.fleet.default import default_pool

            self._pool = default_pool(self._address, self._workers)
        keep_from_children()
        self._open, self._process = True, os.getpid()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Cancel running jobs and release the workers. After an error, finished segments are kept."""
        await self._aclose(keep=kind is not None)

    async def aclose(self) -> None:
        """Cancel running jobs and release the workers. Idempotent."""
        await self._aclose(keep=False)

    async def _aclose(self, *, keep: bool) -> None:
        self._open = False
        if os.getpid() != self._process:
            return  # in a forked process: the process that opened the fleet owns the jobs and workers
        for batch in list(self._batches):
            await batch.cancel()
        for job in list(self._jobs):
            await job.cancel(keep=keep)
        for held in list(self._held):
            await held.cancel()
        await in_thread(send_spans, SPANS_LIMIT_S)
        if self._pool is not None:
            await self._pool.aclose()

    async def transcode(self, spec: TranscodeSpec, *, keeps_record: bool = False) -> Job:
        """Submit a job and return immediately.

        Args:
            spec: the request.
            keeps_record: whether the journal stays after the output is published, until ``codecfleet jobs clean``
                removes it. Until then, a job with the same request returns the first job's report at once, so a queue
                of your own may submit a job again if it does not know whether the job has ended.

        Raises UsageError: the fleet is not open.
        """
        return self._submit(spec, self._jobs_at_once, keeps_record=keeps_record)

    async def submit(
        self,
        spec: JobRequest,
        *,
        queue: str | PathLike[str] | None = None,
        job_id: str | None = None,
        tenant: str | None = None,
        priority: int = 0,
        due_in_s: float | None = None,
    ) -> "QueuedJob":
        """Put a job into a queue and return it at once: a driver runs it on a fleet with this address and ``workers``.

        The job outlives this fleet, which need not be open. If the queue needs a token, the configuration's is sent.

        Args:
            spec: a ``TranscodeSpec``, ``BatchSpec``, ``LadderSpec`` or ``StillsSpec``.
            queue: a file or a postgresql:// URL. Default: the configuration's queue, else this user's queue on
                this machine.
            job_id: the id in the queue; another submission with this id is the same job.
            tenant: who submits the job.
            priority: higher runs first.
            due_in_s: among equal priorities, the job that is due first runs first.

        Raises the errors of ``Queue.submit``.
        """
        from ..cluster.queue.queue import Queue
        from ..cluster.queue.tenants import read_token
        from .request.config import load_config

        settings = load_config().settings
        place = settings.queue if queue is None else os.fspath(queue)
        token = None if settings.queue_token is None else read_token(settings.queue_token)
        limited = spec if self._workers is None else spec.model_copy(update={"workers": self._workers})
        arguments = [*limited.command_line(), *([] if self._address is None else [f"--address={self._address}"])]
        async with Queue(place) as opened:
            return await opened.submit(
                arguments, job_id=job_id, tenant=tenant, priority=priority, due_in_s=due_in_s, token=token
            )

    def batch(self, spec: BatchSpec) -> "Batch":
        """Start a batch, and return it at once: ``async for result in fleet.batch(spec)``. See docs/batch.md.

        A batch itself limits its files in flight; ``jobs_at_once`` does not apply to them.

        Raises:
            UsageError: the fleet is not open, or the spec's template is invalid.
        """
        from .batch.batch import Batch

        async def submit(each: TranscodeSpec) -> Job:
            return self._submit(each, nullcontext())

        batch = Batch(spec.resolved(), submit, self._opened())
        self._batches.add(batch)
        batch.on_end(self._batches.discard)
        return batch

    async def preview_batch(self, spec: BatchSpec, show: "Callable[[Intended], object]") -> "Preview":
        """Show how a batch would treat each file, and estimate its time and size from a few samples. Write nothing.

        Raises:
            UsageError: the fleet is not open, or an input, a list or the template is invalid.
            CodecfleetError: an input does not exist, or the batch's database cannot be read.
        """
        from .batch.preview import preview_batch

        pool = self._opened()

        async def run(each: TranscodeSpec) -> Report:
            return await self._submit(each, nullcontext())

        return await preview_batch(spec.resolved(), run, lambda: pool.state.slots, show)

    def _opened(self) -> Pool:
        if not self._open or self._pool is None:
            raise UsageError("the fleet is not open", "Open it with `async with Fleet() as fleet:`.")
        return self._pool

    def _submit(
        self, spec: TranscodeSpec, turn: AbstractAsyncContextManager[object], *, keeps_record: bool = False
    ) -> Job:
        self._opened()
        name = secrets.token_hex(4)
        spec = spec.resolved()
        job = Job(name, spec, partial(self._run, name, spec, turn, keeps_record=keeps_record))
        self._jobs.add(job)
        job.on_end(self._jobs.discard)
        return job

    def frames(self, source: str | PathLike[str], **options: "Unpack[FleetFrameOptions]") -> "FleetFrames":
        """Return the frames of a source, in batches that the workers make: see docs/learning.md.

        Args:
            source: path or fsspec URL, which every worker must be able to open.
            **options: ``start_s``, ``end_s``, ``video_track``, ``every``, ``decoder`` and ``strict``, as in ``frames``.

        Raises UsageError: the fleet is not open, or the source or an option is invalid. Nothing is read yet.
        """
        from .fleet_frames.film import FleetFrames, fleet_request

        return FleetFrames(fleet_request(source, options), self._opened())

    async def stills(
        self,
        spec: StillsSpec,
        *,
        progress: Callable[[int], None] = lambda _frames: None,
        keeps_record: bool = False,
    ) -> "StillsReport":
        """Take stills; leave either the complete folder or nothing.

        Args:
            spec: the request.
            progress: called a few times a second with the number of frames decoded.
            keeps_record: as in ``transcode``; the same request then replaces the folder.

        Raises:
            UsageError: the fleet is not open.
            Cancelled: the fleet was closed meanwhile.
            CodecfleetError: the job failed.
        """
        from .stills.job import make_stills

        make = partial(make_stills, spec, progress=progress, keeps_record=keeps_record)
        return await self._hold(make, "codecfleet stills")

    async def ladder(
        self,
        spec: LadderSpec,
        *,
        tell: Callable[[Event], None] = lambda _event: None,
        keeps_record: bool = False,
    ) -> "LadderReport":
        """Make several renditions of one video and a package for players; leave the complete folder or nothing.

        A ladder that ended early goes on from its finished segments when it is submitted again.

        Args:
            spec: the request.
            tell: called with each event, as ``Job.events`` yields them: stages, warnings, and the progress of all
                renditions together.
            keeps_record: as in ``transcode``; the same request then publishes the finished renditions again.

        Raises:
            UsageError: the fleet is not open.
            Cancelled: the fleet was closed meanwhile.
            CodecfleetError: the job failed.
        """
        from .follow.job import follow_ladder
        from .ladder.job import make_ladder

        make = partial(follow_ladder if spec.follow else make_ladder, spec, tell=tell, keeps_record=keeps_record)
        return await self._hold(make, "codecfleet ladder")

    async def _hold(self, work: Callable[[Pool], Awaitable[ResultT]], name: str) -> ResultT:
        """Run a job that has no ``Job``, until it ends or the fleet is closed."""
        pool = self._opened()

        async def run() -> ResultT:
            async with self._jobs_at_once:
                return await work(pool)

        held = Held(run(), name)
        self._held.add(held)
        held.on_end(lambda: self._held.discard(held))
        try:
            return await held.result(Cancelled("the fleet was closed"))
        except asyncio.CancelledError:
            await held.cancel()
            raise

    async def _run(
        self,
        name: str,
        spec: TranscodeSpec,
        turn: AbstractAsyncContextManager[object],
        channel: EventChannel,
        keeps_if_cancelled: Callable[[], bool],
        *,
        keeps_record: bool,
    ) -> Report:
        async with turn:
            if self._pool is None:
                raise UsageError("the fleet was closed")
            # Workers start while the planning code is loaded and runs.
            start = SharedCall(self._pool.start(), "the workers' start")
            from .run.job_run import JobRun

            return await JobRun(
                name,
                spec,
                self._pool,
                channel,
                start=start.wait,
                keeps_if_cancelled=keeps_if_cancelled,
                keeps_record=keeps_record,
            ).run()
