"""The work that a client has on leased workers: what waits for one, what runs, and how each piece ends."""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ....actors.device.work import Work
from ....errors import Cancelled, CodecfleetError, DeadlineMissed, WorkerBroken, WorkerLost
from ...background import Background
from ...ray.ray_failures import LossScope, classify, ran_out_of_memory
from ...ray.ray_words import first_line
from ...supervisor.runner.client import SupervisorClient
from ...supervisor.state.messages import Grants
from ...worker.blobs import BlobCache
from ...worker.outcome import Outcome
from ..run import Doubt, ResultOrigin, RunProgress, WorkRun
from .fault_reports import FaultReports
from .known_workers import AFTER_A_DEATH, KnownWorkers
from .leases import Effect, Leases, Lose, RunTask, StopTask
from .leaving import WorkTimes
from .pending_work import PendingWork
from .refusals import WAITS, WAITS_MAX

ResultT = TypeVar("ResultT")

SHUTDOWN_GRACE_S = 0.5
"""How long cancelled work may take to end before its process is killed."""
PROGRESS_S = 0.25
"""How often workers are asked how far their work is."""
ANSWER_S = 1.0
"""How long a worker may take to say so."""
CANCEL_LIMIT_S = 60
"""How long cancelled work may take to end before its worker counts as hung: an encoder may first finish many frames."""
SAME_KIND_WAIT_S = 30.0
"""How long work that is to run on a kind of device waits for one: a new process takes a few seconds."""
_AFTER_A_HANG = "Look at the machine it ran on, its load and the storage of the input."


class LeasedWork:
    """Pieces of work, which go to workers as ``granted`` says.

    Args:
        supervisor: returns workers' handles, and stores bytes where workers can fetch them.
        client: what the pool is called. A run's name begins with it.
        cancel_limit_s: how long cancelled work may take to end before its worker counts as hung, in whole seconds in
            which this process is awake.
        killed_for_memory: says of each death of a worker whether the kernel's OOM killer explains it.
        report_soon: called when the supervisor is to hear what has changed.
        refusal: why no work can run any more; None while it can.
        tasks: owns what waits for workers.
    """

    def __init__(
        self,
        supervisor: SupervisorClient,
        client: str,
        cancel_limit_s: int,
        *,
        killed_for_memory: Callable[[], bool],
        report_soon: Callable[[], object],
        refusal: Callable[[], CodecfleetError | None],
        tasks: Background,
    ) -> None:
        self.leases = Leases()
        self.workers = KnownWorkers(supervisor.handle, killed_for_memory)
        self.faults = FaultReports()
        self._client = client
        self._cancel_limit_s = cancel_limit_s
        self._report_soon = report_soon
        self._refusal = refusal
        self._tasks = tasks
        self._numbers = itertools.count()
        self._pending: dict[int, PendingWork] = {}
        self._times = WorkTimes()
        self._blobs = BlobCache(supervisor.send)
        self._running: set[asyncio.Task[None]] = set()

    def submit(self, work: Work[ResultT]) -> WorkRun[ResultT]:
        """Have ``work`` run as soon as a worker is granted for it.

        Raises:
            UsageError: it does not pickle.
        """
        run: WorkRun[ResultT] = WorkRun(lambda why: self._give_up_run(pending, why))
        pending = PendingWork(work, *self._blobs.pack(work), run, _waits_s() if work.may_wait else iter(()))
        run.result.add_done_callback(lambda _: self._ended(pending))
        self._queue(pending)
        return run

    def _queue(self, pending: PendingWork) -> None:
        """Let work wait for a slot: at first, and again after a refused encoder session."""
        self._pending.pop(pending.task, None)
        if pending.run.result.done():
            return
        pending.run.tell(RunProgress())
        task = pending.task = next(self._numbers)
        self._pending[task] = pending
        if (error := self._refusal()) is not None:
            self._fail(task, error)
            return
        work = pending.work
        queued = self.leases.submitted(
            task, work.job, work.label, apart_from=work.apart_from, constraints=work.constraints
        )
        self._carry_out(queued)
        self._report_soon()
        if work.constraints.same_kind_as:
            asyncio.get_running_loop().call_later(SAME_KIND_WAIT_S, self._relax, task)

    def _ended(self, pending: PendingWork) -> None:
        """Forget work that has its result, and stop what was cancelled or failed elsewhere."""
        task = pending.task
        self._carry_out(self.leases.withdrawn(task))
        self._times.ended(task, time.monotonic(), well=False)
        self._pending.pop(task, None)

    def _relax(self, task: int) -> None:
        if task in self._pending:
            self._carry_out(self.leases.relaxed(task))

    def forget(self, job: str) -> None:
        """Drop what is known of a job that is over."""
        self.leases.forget(job)
        self._times.forget(job)

    def granted(self, grants: Grants) -> None:
        """Begin what may run now; fail what ran on dead workers, or cannot end before its node does."""
        for worker in grants.dead:
            self.workers.forget(worker)
        self._carry_out(self.leases.granted(grants))
        self._leave(grants)

    def refuse_waiting(self, why: Callable[[str], CodecfleetError | None]) -> None:
        """Fail the waiting work of each job for which ``why`` has an error."""
        for task in self.leases.waiting():
            if (error := why(self._pending[task].work.job)) is not None:
                self._fail(task, error)

    async def follow(self) -> None:
        """Ask the workers again and again how far their work is."""
        while True:
            await asyncio.sleep(PROGRESS_S)
            asked = {(worker, job) for job in self.leases.outstanding() for worker in self.leases.held(job)}
            await asyncio.gather(*(self._ask_progress(worker, job) for worker, job in asked))

    def _give_up_run(self, pending: PendingWork, why: str) -> None:
        worker = self.leases.worker_of(pending.task)
        if worker is None:
            return
        message = f"{pending.work.label} {why}"
        self._fail(pending.task, DeadlineMissed(message, _AFTER_A_HANG), worker)
        self._give_up(worker, message)

    def _give_up(self, worker: str, reason: str) -> None:
        self.workers.give_up(worker, reason)
        self._lose(worker, f"it was given up, because {reason}")

    async def _await_end(self, task: int, worker: str) -> None:
        """Give a worker up whose cancelled work does not end: it would hold its slot without end."""
        for _ in range(self._cancel_limit_s):
            await asyncio.sleep(1)
            if not self.leases.is_running(task):
                return
        self._give_up(worker, f"cancelled work did not end within {self._cancel_limit_s} s")

    def fail_all(self, error: CodecfleetError) -> None:
        """Fail everything, and stop what runs."""
        for task in list(self._pending):
            self._fail(task, error)
            self._carry_out(self.leases.withdrawn(task))

    async def cancel_all(self) -> None:
        """Fail everything, and give what runs half a second to end."""
        self.fail_all(Cancelled("the pool was closed"))
        if self._running:
            await asyncio.wait(self._running, timeout=SHUTDOWN_GRACE_S)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case RunTask(task, worker):
                    self._begin(task, worker, self._pending[task])
                case StopTask(task, worker):
                    if (handle := self.workers.reached(worker)) is not None:
                        handle.cancel(self._run_name(task))
                        self._tasks.begin(self._await_end(task, worker), f"the end of {self._run_name(task)}")
                case Lose(task, worker, reason, broken=True):
                    message = f"worker {worker} ends itself, because its device failed under its work: {reason}"
                    self._fail(task, WorkerBroken(message, AFTER_A_DEATH), worker)
                case Lose(task, worker, reason):
                    self._fail(task, self.workers.loss(worker, reason), worker)

    def _begin(self, task: int, worker: str, pending: PendingWork) -> None:
        pending.run.tell(RunProgress(worker))
        run = self._tasks.begin(self._run(task, worker, pending), f"the run of {pending.work.label}")
        self._running.add(run)
        run.add_done_callback(self._running.discard)

    def _fail(self, task: int, error: CodecfleetError, worker: str = "") -> None:
        if task in self._pending:
            self._pending[task].fail(error, worker)

    def _run_name(self, task: int) -> str:
        # Unique among all clients of a worker.
        return f"{self._client}:{task}"

    def _leave(self, grants: Grants) -> None:
        """Give up work that cannot finish before its node ends: it runs elsewhere instead."""
        for worker, ends_utc_s in grants.leaving.items():
            left_s, now_s = ends_utc_s - time.time(), time.monotonic()
            for task in self._times.doomed(self.leases.running_on(worker), left_s, now_s):
                message = f"worker {worker} ends with its node in {max(0.0, left_s):.0f} s, before this work could"
                self._fail(task, WorkerLost(message, AFTER_A_DEATH), worker)

    async def _run(self, task: int, worker: str, pending: PendingWork) -> None:
        try:
            handle = await self.workers.reach(worker)
        except Exception as error:  # noqa: BLE001 - the edge: any error means that the worker is gone
            self._lose(worker, first_line(error))
            return
        if pending.run.result.done():  # withdrawn meanwhile, before the worker knew of it
            self._end_run(task)
            return
        self._times.began(task, pending.work.job, time.monotonic())
        try:
            name, constraints = self._run_name(task), pending.work.constraints
            outcome = await handle.run(name, pending.packed, constraints, *pending.blobs)
            self._take(pending, worker, outcome)
            self._times.ended(task, time.monotonic(), well=outcome.error is None)
            self.faults.ended(pending.work, worker, outcome)
            if outcome.error is not None and outcome.spoils_process:
                # It ends itself once it knows that this came, and answers no more: its other work is lost.
                handle.answered()
                self.workers.forget(worker)
                self._carry_out(self.leases.broke(worker, outcome.error.message))
                self._report_soon()
                return
        except Exception as error:  # noqa: BLE001 - the edge: classify sorts Ray's exceptions
            failure = classify(error)
            if ran_out_of_memory(error):
                self.workers.ran_out_of_memory(worker)
            if failure is LossScope.PROCESS:
                self._lose(worker, first_line(error))
                return
            pending.fail(pending.failed(failure, first_line(error)), worker)
        self.workers.prove(worker)
        self._end_run(task)

    def _take(self, pending: PendingWork, worker: str, outcome: Outcome[Any]) -> None:
        """Deliver an outcome; work whose encoder session was refused waits, and is queued again."""
        if (wait_s := pending.wait_s(outcome)) is not None:
            asyncio.get_running_loop().call_later(wait_s, self._queue, pending)
            return
        pending.settle(outcome, ResultOrigin(worker, pending.work.file, self._doubt))

    def _doubt(self, doubt: Doubt) -> None:
        self.faults.doubted(doubt)
        self._report_soon()

    def _end_run(self, task: int) -> None:
        self._carry_out(self.leases.finished(task))
        self._report_soon()

    def _lose(self, worker: str, reason: str) -> None:
        self.workers.forget(worker)
        self._carry_out(self.leases.died(worker, reason))
        self._report_soon()

    async def _ask_progress(self, worker: str, job: str) -> None:
        frames = await self._frames_of(worker, job)
        for task in self.leases.running_on(worker):
            pending = self._pending.get(task)
            if pending is not None and pending.work.job == job and pending.work.label in frames:
                pending.run.tell(RunProgress(worker, frames[pending.work.label]))

    async def _frames_of(self, worker: str, job: str) -> Mapping[str, int]:
        if (handle := self.workers.reached(worker)) is None:
            return {}
        try:
            return await asyncio.wait_for(handle.progress(job), ANSWER_S)
        except Exception:  # noqa: BLE001 - progress never fails; lost workers are noticed elsewhere
            return {}


def _waits_s() -> Iterator[float]:
    """Yield how long work waits after each refused encoder session, until it waits no more."""
    yield from (WAITS.wait_s(refusals) for refusals in range(1, WAITS_MAX + 1))
