"""Pools without Ray: one runs work in threads of this process, the other injects faults into a pool."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...actors.background import Background
from ...actors.device.interface import WorkerDevice
from ...actors.device.work import Work
from ...actors.device.worker import WorkerCore
from ...cluster.fleet.pool import Asked, JobState, Pool, PoolState
from ...cluster.fleet.run import LookedRun, ResultOrigin, RunProgress, WorkRun
from ...cluster.placement.model import Demand, EncoderChoice, EncoderKind, PlacementPreview
from ...cluster.worker_names import NO_WORKER, WorkerId
from ...errors import Cancelled, CodecfleetError, DeadlineMissed, UsageError, WorkerLost
from .fake_worker import raise_defect

if TYPE_CHECKING:
    from ...cluster.device_fault import DeviceFault

ResultT = TypeVar("ResultT")

HERE: Final = WorkerId("here/cpu#0:1")
"""The name of the only worker in the local pool."""


class LocalPool(Pool):
    """Runs work in ``slots`` threads of this process.

    Nothing is pickled, and there are no worker processes that could die.

    Args:
        slots: how many work items run at the same time.
        device: the GPU that work may use, if any.
        kind: the kind of encoder that the pool's preview names; None for no encoder.
        is_here: whether the pool claims that all workers run on this machine.
    """

    def __init__(
        self,
        slots: int = 2,
        *,
        device: WorkerDevice | None = None,
        kind: EncoderKind | None = None,
        is_here: bool = False,
    ) -> None:
        if slots < 1:
            raise UsageError(f"a pool needs at least one slot: {slots}")
        self._state = PoolState(slots=slots, others=JobState(slots=slots, cores=slots), is_here=is_here)
        self._device = device
        self._kind = kind
        self._core = WorkerCore(slots, device)
        self._lone: set[WorkerCore] = set()
        self._numbers = itertools.count()
        self._free = asyncio.Semaphore(slots)
        self._runs: dict[WorkRun[Any], tuple[str, str]] = {}
        self._tasks = Background(raise_defect)
        self._closed = False
        self.faults: list[DeviceFault] = []
        """The faults of devices, as reported by jobs."""

    @property
    def state(self) -> PoolState:
        return self._state

    def set_demand(self, job: str, demand: Asked | None) -> None:
        """Do nothing, because work runs in order of submission."""

    async def preview(self, demand: Demand) -> PlacementPreview:
        """Return the pool's kind of encoder, unless the demand is for software."""
        return PlacementPreview(
            never="there is no GPU in this pool" if demand.needs_gpu and self._device is None else "",
            encoder_kind=None if demand.encoder is EncoderChoice.SOFTWARE else self._kind,
        )

    async def start(self) -> None:
        """Only refuse a closed pool: threads start with their first work."""
        self._refuse_if_closed()

    def submit(self, work: Work[ResultT]) -> WorkRun[ResultT]:
        """Run ``work`` in a thread; see ``Pool.submit``. WorkerLost means that no thread could be started."""
        self._refuse_if_closed()
        look = Look()

        def give_up(why: str) -> None:
            if look().worker:
                run.fail(DeadlineMissed(f"{work.label} {why}"))

        run = LookedRun[ResultT](give_up, look)
        before = next((each for each, name in self._runs.items() if name == (work.job, work.apart_from)), None)
        self._runs[run] = work.job, work.label
        carrying = self._tasks.spawn(f"the run of {work.label}", self._carry(run, work, before, look))
        run.result.add_done_callback(lambda _: carrying.cancel())
        run.result.add_done_callback(lambda _: self._runs.pop(run))
        return run

    async def aclose(self) -> None:
        """Cancel all work. A thread ends when its work next reports progress."""
        self._closed = True
        for run in list(self._runs):
            run.fail(Cancelled("the pool was closed"))
        for core in self._cores:
            core.close()
        await self._tasks.end()

    async def result_of(self, work: Work[ResultT], look: "Look") -> ResultT:
        """Run ``work`` in a thread once a thread is free; tests override this method to change results."""
        await self._free.acquire()
        name = str(next(self._numbers))
        core = self._core
        if work.constraints.alone:
            core = WorkerCore(1, self._device)
            self._lone.add(core)
        ended = asyncio.wrap_future(core.submit(name, work))
        # The slot becomes free when the thread ends, not when the submitter stops waiting.
        ended.add_done_callback(partial(self._end, core))
        look.core, look.run = core, name
        try:
            return await asyncio.shield(ended)
        except asyncio.CancelledError:
            core.cancel(name)
            raise

    async def _carry(
        self, run: WorkRun[ResultT], work: Work[ResultT], before: WorkRun[Any] | None, look: "Look"
    ) -> None:
        if before is not None:
            await asyncio.wait({before.result})
        try:
            result = await self.result_of(work, look)
        except CodecfleetError as error:
            error.where = error.where or HERE
            run.fail(error)
        else:
            run.end(result, ResultOrigin(HERE, work.file, self.faults.append))

    @property
    def _cores(self) -> tuple[WorkerCore, ...]:
        return (self._core, *self._lone)

    def _end(self, core: WorkerCore, ended: asyncio.Future[ResultT]) -> None:
        if not ended.cancelled():
            ended.exception()  # marks the error as retrieved, since the run may never be awaited
        if core in self._lone:
            self._lone.discard(core)
            core.close()
        self._free.release()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise UsageError("the pool is closed")


class Look:
    """Looks up the progress of work at any time, because the thread of the work is in this process."""

    def __init__(self) -> None:
        self.core: WorkerCore | None = None
        self.run = ""

    def __call__(self) -> RunProgress:
        frames = None if self.core is None else self.core.progress().get(self.run)
        return RunProgress() if frames is None else RunProgress(HERE, frames)


class FaultyPool(Pool):
    """Passes work on to ``inner`` and injects three kinds of faults, the same in every run.

    Args:
        inner: the pool that does the work; this pool starts and closes it.
        kills: (label, attempt) pairs that raise WorkerLost instead of running; attempts are counted from 1.
        hangs: pairs that hang until they are given up or cancelled, each on a separate station.
        errors: the errors that pairs raise instead of running; ``where`` of each error becomes HERE.
        finishing_order: labels in the order in which their results arrive; other labels follow in order of submission.
            The next result is released whenever all running work is done.
    """

    def __init__(
        self,
        inner: Pool,
        *,
        kills: Collection[tuple[str, int]] = (),
        hangs: Collection[tuple[str, int]] = (),
        errors: Mapping[tuple[str, int], CodecfleetError] | None = None,
        finishing_order: Sequence[str] | None = None,
    ) -> None:
        self._inner = inner
        self._hangs = frozenset(hangs)
        self._tasks = Background(raise_defect)
        self._errors = dict(errors or {})
        for label, attempt in kills:
            message = f"worker of {label} was killed at attempt {attempt}, as asked"
            self._errors[label, attempt] = WorkerLost(message)
        self._rank = None if finishing_order is None else {label: i for i, label in enumerate(finishing_order)}
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._working = 0
        self._held: dict[tuple[int, int], asyncio.Event] = {}
        self._tickets = itertools.count()

    @property
    def state(self) -> PoolState:
        return self._inner.state

    @property
    def attempts(self) -> Mapping[tuple[str, str], int]:
        """How many times each (job, label) was submitted."""
        return self._attempts

    async def preview(self, demand: Demand) -> PlacementPreview:
        return await self._inner.preview(demand)

    async def start(self) -> None:
        await self._inner.start()

    def set_demand(self, job: str, demand: Asked | None) -> None:
        self._inner.set_demand(job, demand)

    def submit(self, work: Work[ResultT]) -> WorkRun[ResultT]:
        """Run ``work`` on the inner pool, unless a fault is due; hold the result until it may be released."""
        self._attempts[work.job, work.label] += 1
        attempt = work.label, self._attempts[work.job, work.label]
        if (error := self._errors.get(attempt)) is not None or attempt in self._hangs:
            return self._faulty(work, error)
        inner = self._inner.submit(work)
        run = LookedRun[ResultT](inner.give_up, lambda: inner.progress)
        carrying = self._tasks.spawn(f"the run of {work.label}", self._hold(run, inner, work.label))
        run.result.add_done_callback(lambda _: inner.cancel())
        run.result.add_done_callback(lambda _: carrying.cancel())
        return run

    def _faulty(self, work: Work[ResultT], error: CodecfleetError | None) -> WorkRun[ResultT]:
        run: WorkRun[ResultT] = WorkRun(lambda why: run.fail(DeadlineMissed(f"{work.label} {why}")))
        if error is None:
            run.tell(RunProgress(WorkerId(f"hung {work.label}:1")))
        else:
            error.where = HERE
            asyncio.get_running_loop().call_soon(run.fail, error)
        return run

    async def _hold(self, run: WorkRun[ResultT], inner: WorkRun[ResultT], label: str) -> None:
        """End a run in the same way as the inner run, once the result may be released."""
        gate, rank = asyncio.Event(), (self._rank or {}).get(label, len(self._rank or {}))
        place = rank, next(self._tickets)
        self._working += 1
        try:
            await asyncio.wait({inner.result})
            if self._rank is not None:
                self._held[place] = gate
        finally:
            self._working -= 1
            self._let_go()
        if place in self._held:
            try:
                await gate.wait()
                # The caller that awaits this result may submit more work before the next result is released.
                await asyncio.sleep(0)
            finally:
                del self._held[place]
                asyncio.get_running_loop().call_soon(self._let_go)
        try:
            run.end(inner.result.result(), inner.origin or ResultOrigin(NO_WORKER, label))
        except CodecfleetError as error:
            run.fail(error, inner.origin)

    async def aclose(self) -> None:
        self._rank = None
        for gate in self._held.values():
            gate.set()
        await self._inner.aclose()
        await asyncio.sleep(0)
        await self._tasks.end()

    def _let_go(self) -> None:
        if self._working == 0 and self._held:
            self._held[min(self._held)].set()
