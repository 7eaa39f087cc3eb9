"""The pool that leases workers. It sends work directly to the workers, even while the supervisor is down."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ....actors.background import Background, SharedCall
from ....actors.device.work import Work
from ....actors.worker.outcome import Outcome
from ....errors import Cancelled, CodecfleetError, DeadlineMissed, FleetUnavailable, NodeEnded, UsageError
from ...device_fault import DeviceFault
from ...placement.model.demand import Demand, plain_demand
from ...placement.model.preview import PlacementPreview
from ...ray.ray_failures import LossScope, classify, ran_out_of_memory
from ...ray.ray_words import first_line
from ...supervisor.state.messages import Grants
from ...worker_names import NO_WORKER, WorkerId
from ..pool import Asked, ClientName, Pool, PoolState
from ..run import ResultOrigin, RunProgress, WorkRun
from .demands import Demands, unrecoverable
from .ground import Ground
from .known_workers import AFTER_A_DEATH, abandoned, lost_in_transit
from .lease_client import LeaseClient
from .leases import Effect, Leases, Lose, PendingWork, RunTask, StopTask, WorkTimes

ResultT = TypeVar("ResultT")

WARM_UP = "warm-up"
"""The name of the job for which a pool requests its permanent workers (``Ground.eager``)."""
SHUTDOWN_GRACE_S = 0.5
"""How long cancelled work may take to end before its process is killed."""
PROGRESS_S = 0.25
"""How often the pool queries workers for progress."""
CANCEL_LIMIT_S = 60
"""How long cancelled work may take to end before its worker counts as hung; an encoder may have many frames to
finish."""
SAME_KIND_WAIT_S = 30.0
"""How long work waits for a worker of the requested kind; a new process takes a few seconds to start."""
_AFTER_A_HANG = "Check the load of the machine that ran the work, and the storage of the input."
_DEFECT = "Please report this defect, with the input and the options."


class LeasedPool(Pool):
    """Runs work on workers that a supervisor leases.

    Args:
        reach: connects to the supervisor; called by ``start``, and again after a failure.
        workers_max: the most slots of one job; None for no limit.
        cancel_limit_s: see ``CANCEL_LIMIT_S``; time in which this process is stopped does not count.
        name: this client's name; earlier connections of the same fleet lose their slots at once.
    """

    def __init__(
        self,
        reach: Callable[[], Awaitable[Ground]],
        workers_max: int | None = None,
        *,
        cancel_limit_s: int = CANCEL_LIMIT_S,
        name: ClientName | None = None,
    ) -> None:
        if workers_max is not None and workers_max < 1:
            raise UsageError(f"a pool needs at least one slot: {workers_max}")
        self._reach = reach
        self._workers_max = workers_max
        self._cancel_limit_s = cancel_limit_s
        self._name = name or ClientName()
        self._numbers = itertools.count()
        self._demands = Demands(workers_max)
        self._leases = Leases()
        self._times = WorkTimes()
        self._pending: dict[int, PendingWork] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._state = PoolState()
        self._is_stale = False
        self._tasks = Background(self._break)
        self._broken: CodecfleetError | None = None
        self._client: LeaseClient | None = None
        self._reader: SharedCall | None = None  # starts the reader of this machine's files
        self._opening: SharedCall | None = None
        self._closing: SharedCall | None = None

    @property
    def state(self) -> PoolState:
        """The pool's state, computed when it is read after a change."""
        if self._is_stale and self._client is not None:
            self._is_stale = False
            found = self._demands.state(self._client.ground, self._client.grants, self._leases, self._broken)
            self._state = replace(found, files_address=self._client.files_address)
        return self._state

    @property
    def lost(self) -> str:
        """Why this connection to Ray is lost for good; "" while the connection works or the pool is closing.

        Thread-safe.
        """
        client = self._client
        if client is None or self._closing is not None:
            return ""
        return client.supervisor.world_is_gone() or client.lost

    @property
    def spent(self) -> str:
        """Why no work will ever run in this pool again; "" if work may still run."""
        return "" if self._client is None else self._client.grants.unrecoverable

    @property
    def client(self) -> LeaseClient:
        """The connection to the supervisor. Raises FleetUnavailable if there is no connection."""
        if self._client is None:
            raise FleetUnavailable("the pool has not been started", "Start it first.")
        return self._client

    async def start(self) -> None:
        """Connect, and wait for the first grants or, if workers are permanent, for the first worker."""
        if self._closing is not None:
            raise FleetUnavailable("the pool is closed", "Open a new fleet.")
        if self._opening is None:
            self._opening = SharedCall(self._start(), "the pool's start")
        await self._opening.wait()

    def submit(self, work: Work[ResultT]) -> WorkRun[ResultT]:
        """Run ``work``; large NumPy arrays in the result are read-only views into Ray's object store."""
        if self._closing is not None:
            raise UsageError("the pool is closed")
        packed, blobs = self.client.blobs.pack(work)
        run: WorkRun[ResultT] = WorkRun(lambda why: self._give_up(pending, why))
        pending = PendingWork(work, packed, blobs, run)
        run.result.add_done_callback(lambda _: self._ended(pending))
        if work.ships:
            self._tasks.spawn("the reader of this machine's files", self._queue_shipping(pending))
        else:
            self._queue(pending)
        return run

    def set_demand(self, job: str, demand: Asked | None) -> None:
        if demand is None:
            self._demands.clear(job)
            self._leases.forget(job)
            self._times.forget(job)
        elif not self._demands.set(job, demand):
            return
        self._changed()

    async def preview(self, demand: Demand) -> PlacementPreview:
        return await self.client.preview(demand)

    async def aclose(self) -> None:
        """Cancel running work, wait at most half a second until it ends, and release the workers."""
        if self._closing is None:
            self._closing = SharedCall(self._close(), "the pool's end")
        await self._closing.wait()

    async def _start(self) -> None:
        try:
            ground = await self._reach()
            client = LeaseClient(ground, self._name, self._demands, self._leases, self._accept_grants)
            try:
                await client.enter()
                self._client = client
                self._tasks.spawn("lease renewal", client.run())
                self._tasks.spawn("progress of workers", self._follow())
                await self._first_grants(client)
            except BaseException:
                await self._tasks.end()
                self._client = None
                self._tasks = Background(self._break)
                await client.leave()
                raise
        except BaseException:
            self._opening = None  # the next start tries again
            raise

    async def _first_grants(self, client: LeaseClient) -> None:
        """Wait for the first grants or, if the pool has permanent workers (``Ground.eager``), for the first worker."""
        eager = client.ground.eager
        if eager:
            warm_up = plain_demand(WARM_UP, min(eager, self._workers_max or eager))
            self.set_demand(WARM_UP, replace(warm_up, software_decode="the warm-up starts only CPU workers"))
        while True:
            state = self.state
            mine = state.of(WARM_UP)
            if mine.never is not None:
                raise mine.never
            if mine.slots if eager else client.grants.number:
                break
            await state.changed.wait()
        self._demands.clear(WARM_UP)
        self._is_stale = True

    async def _close(self) -> None:
        if self._opening is not None:
            await self._opening.cancel()
        if self._client is None:
            return
        self._fail_all(Cancelled("the pool was closed"))
        if self._running:
            await asyncio.wait(self._running, timeout=SHUTDOWN_GRACE_S)
        await self._tasks.end()
        if self._reader is not None:
            await self._reader.cancel()
        await self._client.depart()
        await self._client.leave()

    def _changed(self) -> None:
        self._is_stale = True
        self._state.changed.set()
        if self._client is not None:
            self._client.report_soon()

    def _break(self, task: str, error: BaseException) -> None:
        self._broken = FleetUnavailable(f"the pool failed at {task}: {type(error).__name__}: {error}", _DEFECT)
        self._fail_all(self._broken)
        self._changed()

    def _accept_grants(self) -> None:
        """Start work that may run now; fail work that was lost, cannot finish in time, or can never run."""
        grants = self.client.grants
        for worker in grants.dead:
            self.client.workers.forget(worker)
        self._carry_out(self._leases.granted(grants))
        self._leave_nodes(grants)
        for task in self._leases.waiting():
            if error := unrecoverable(grants) or self._demands.broken(grants, self._pending[task].work.job):
                self._fail(task, error)
        self._is_stale = True
        self._state.changed.set()

    def _leave_nodes(self, grants: Grants) -> None:
        """Fail work that cannot finish before its node ends; the job then submits the work again."""
        for worker, left_s in grants.leaving.items():
            self.client.workers.leaves(worker)
            for task in self._times.doomed(self._leases.running_on(worker), left_s, time.monotonic()):
                message = f"worker {worker} ends with its node in {max(0.0, left_s):.0f} s, too soon for this work"
                self._fail(task, NodeEnded(message, AFTER_A_DEATH), worker)

    async def _queue_shipping(self, pending: PendingWork) -> None:
        """Queue work when workers can read this machine's files; until then the work has no slot and no deadline."""
        task = pending.task = next(self._numbers)
        self._pending[task] = pending
        reader = self._reader = self._reader or SharedCall(
            self.client.supervisor.serve_files(str(self._name)), "the files' reader"
        )
        try:
            await reader.wait()
        except CodecfleetError as error:
            if self._reader is reader:
                self._reader = None  # the next work that ships files starts the reader again
            self._fail(task, error)
        else:
            self._queue(pending)

    def _queue(self, pending: PendingWork) -> None:
        self._pending.pop(pending.task, None)
        if pending.run.result.done():
            return
        pending.run.tell(RunProgress())
        task = pending.task = next(self._numbers)
        self._pending[task] = pending
        if (error := self._broken or unrecoverable(self.client.grants)) is not None:
            self._fail(task, error)
            return
        self._carry_out(self._leases.submitted(task, pending.work))
        self._changed()
        if pending.work.constraints.same_kind_as:
            asyncio.get_running_loop().call_later(SAME_KIND_WAIT_S, lambda: self._carry_out(self._leases.relaxed(task)))

    def _ended(self, pending: PendingWork) -> None:
        task = pending.task
        self._carry_out(self._leases.withdrawn(task))
        self._times.ended(task, time.monotonic(), well=False)
        self._pending.pop(task, None)

    def _give_up(self, pending: PendingWork, why: str) -> None:
        worker = self._leases.worker_of(pending.task)
        if worker is None:
            return
        message = f"{pending.work.label} {why}"
        self._fail(pending.task, DeadlineMissed(message, _AFTER_A_HANG), worker)
        self._write_off(worker, message)

    def _write_off(self, worker: WorkerId, reason: str) -> None:
        self.client.workers.write_off(worker, reason)
        self._lose(worker, f"it counts as hung: {reason}")

    async def _await_end(self, task: int, worker: WorkerId) -> None:
        """Write off a worker whose cancelled work does not end."""
        for _ in range(self._cancel_limit_s):
            await asyncio.sleep(1)
            if self._leases.worker_of(task) is None:
                return
        self._write_off(worker, f"cancelled work did not end within {self._cancel_limit_s} s")

    def _fail_all(self, error: CodecfleetError) -> None:
        for task in list(self._pending):
            self._fail(task, error)
            self._carry_out(self._leases.withdrawn(task))

    def _fail(self, task: int, error: CodecfleetError, worker: WorkerId = NO_WORKER) -> None:
        if task in self._pending:
            error.where = worker
            self._pending[task].run.fail(error)

    def _lose(self, worker: WorkerId, reason: str, *, broken: bool = False) -> None:
        self.client.workers.forget(worker)
        self._carry_out(self._leases.died(worker, reason, broken=broken))
        self._changed()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case RunTask(task, worker):
                    pending = self._pending[task]
                    pending.run.tell(RunProgress(worker))
                    run = self._tasks.spawn(f"the run of {pending.work.label}", self._run(task, worker, pending))
                    self._running.add(run)
                    run.add_done_callback(self._running.discard)
                case StopTask(task, worker):
                    if (handle := self.client.workers.reached(worker)) is not None:
                        name = self._run_name(task)
                        handle.cancel(name)
                        self._tasks.spawn(f"the end of {name}", self._await_end(task, worker))
                case Lose(task, worker):
                    self._fail(task, self.client.workers.loss(effect), worker)

    def _run_name(self, task: int) -> str:
        return f"{self._name}:{task}"  # no other client of the worker uses this name

    async def _run(self, task: int, worker: WorkerId, pending: PendingWork) -> None:
        workers = self.client.workers
        try:
            handle = await workers.reach(worker)
        except Exception as error:  # noqa: BLE001 - any error of Ray means that the worker cannot be reached
            self._lose(worker, first_line(error))
            return
        if pending.run.result.done():  # the work was withdrawn before the worker got it
            self._end_run(task)
            return
        self._times.began(task, pending.work.job, time.monotonic())
        try:
            name, constraints = self._run_name(task), pending.work.constraints
            outcome = await handle.run(name, pending.packed, constraints, *pending.blobs)
            self._deliver(pending, worker, outcome)
            self._times.ended(task, time.monotonic(), well=outcome.error is None)
            workers.ended(pending.work, worker, outcome)
            if outcome.error is not None and outcome.spoils_process:
                handle.end()  # the worker waits for this before it ends itself; its other work is lost
                self._lose(worker, outcome.error.message, broken=True)
                return
        except Exception as error:  # noqa: BLE001 - ``classify`` handles every error of Ray
            failure = classify(error)
            if ran_out_of_memory(error):
                workers.ran_out_of_memory(worker)
            if failure is LossScope.PROCESS:
                self._lose(worker, first_line(error))
                return
            self._fail(task, lost_in_transit(pending.work.label, failure, first_line(error)), worker)
        workers.prove(worker)
        self._end_run(task)

    def _deliver(self, pending: PendingWork, worker: WorkerId, outcome: Outcome[Any]) -> None:
        """Deliver an outcome; if an encoder session was refused, queue the work again later."""
        origin = ResultOrigin(worker, pending.work.file, self._tell_fault)
        if outcome.error is None:
            pending.run.end(outcome.result, origin)
        elif (wait_s := pending.wait_s(outcome)) is not None:
            asyncio.get_running_loop().call_later(wait_s, self._queue, pending)
        else:
            # This pool cancels only runs whose result is set already, so this work was cancelled by a supervisor.
            is_abandoned = isinstance(outcome.error, Cancelled)
            error = abandoned(pending.work.label) if is_abandoned else outcome.error
            error.where = worker
            pending.run.fail(error, origin)

    def _tell_fault(self, fault: DeviceFault) -> None:
        self.client.workers.faulted(fault)
        self._changed()

    def _end_run(self, task: int) -> None:
        self._carry_out(self._leases.finished(task))
        self._changed()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_S)
            asked = {worker for job in self._leases.outstanding() for worker in self._leases.held(job)}
            await asyncio.gather(*map(self._ask_progress, asked))

    async def _ask_progress(self, worker: WorkerId) -> None:
        frames = await self.client.workers.frames(worker)
        for task in self._leases.running_on(worker):
            if task in self._pending and (run := self._run_name(task)) in frames:
                self._pending[task].run.tell(RunProgress(worker, frames[run]))
