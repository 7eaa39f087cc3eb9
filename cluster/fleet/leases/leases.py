"""One client's assignment of work to workers: a state machine without Ray, clock or I/O.

The supervisor grants each job slots of workers. The work of each job waits in a queue; the next task goes to the least
loaded worker that its constraints allow. Work on a revoked slot finishes there.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final, TypeAlias, TypeVar

from ....actors.backoff import Backoff
from ....actors.device.work import Constraints, Work
from ....actors.worker.lone_runs import LONE_MAX
from ....actors.worker.outcome import Outcome
from ....errors import SessionLimit
from ...supervisor.state.messages import Grants
from ...worker_names import WorkerId
from ..run import WorkRun

ValueT = TypeVar("ValueT")

LOST_KEPT: Final = 1024
"""How many of the last lost workers are remembered; the supervisor learns of a loss within seconds."""


@dataclass(frozen=True, slots=True)
class RunTask:
    """Send ``task`` to ``worker``."""

    task: int
    worker: WorkerId


@dataclass(frozen=True, slots=True)
class StopTask:
    """Ask ``worker`` to cancel ``task``; the caller then reports the end to ``Leases.finished``."""

    task: int
    worker: WorkerId


@dataclass(frozen=True, slots=True)
class Lose:
    """Fail ``task``: the worker died, or is ``broken`` because one of its tasks damaged it."""

    task: int
    worker: WorkerId
    reason: str
    broken: bool = False


Effect: TypeAlias = RunTask | StopTask | Lose


@dataclass(slots=True)
class _Job:
    slots: dict[WorkerId, int] = field(default_factory=dict)
    waiting: deque[int] = field(default_factory=deque)
    running: dict[int, WorkerId] = field(default_factory=dict)

    @property
    def free(self) -> int:
        loads = Counter(self.running.values())
        return sum(max(0, slots - loads[worker]) for worker, slots in self.slots.items())

    def load(self, worker: WorkerId) -> int:
        return sum(where == worker for where in self.running.values())


class Leases:
    """A client's work, and the slots granted to each job."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._work: dict[int, Work[Any]] = {}
        self._dead: dict[WorkerId, None] = {}

    def slots_for(self, job: str) -> int:
        """Return how many tasks of ``job`` may run now: all running tasks, and one more for each free slot."""
        found = self._jobs.get(job)
        return 0 if found is None else len(found.running) + found.free

    def held(self, job: str) -> dict[WorkerId, int]:
        """Return how many tasks of ``job`` each worker runs."""
        found = self._jobs.get(job)
        return {} if found is None else dict(sorted(Counter(found.running.values()).items()))

    def outstanding(self) -> dict[str, int]:
        """Return how many tasks of each job wait or run; jobs without tasks are left out."""
        counts = {name: len(job.waiting) + len(job.running) for name, job in self._jobs.items()}
        return {name: count for name, count in counts.items() if count}

    def waiting(self) -> list[int]:
        """Return the waiting tasks, oldest first."""
        return sorted(task for job in self._jobs.values() for task in job.waiting)

    def worker_of(self, task: int) -> WorkerId | None:
        """Return the worker that runs the task; None while it waits."""
        return self._jobs[self._work[task].job].running.get(task) if task in self._work else None

    def running_on(self, worker: WorkerId) -> list[int]:
        """Return the tasks that a worker runs."""
        return [task for job in self._jobs.values() for task, where in job.running.items() if where == worker]

    def submitted(self, task: int, work: Work[Any]) -> list[Effect]:
        """Queue work under the number ``task``; the same work may have been queued under another number before."""
        self._work[task] = work
        self._jobs.setdefault(work.job, _Job()).waiting.append(task)
        return self._hand_out(work.job)

    def relaxed(self, task: int) -> list[Effect]:
        """Let any worker run ``task``, because no worker of the requested kind has appeared."""
        if task not in self._work:
            return []
        work = self._work[task]
        self._work[task] = replace(work, constraints=replace(work.constraints, same_kind_as=""))
        return self._hand_out(work.job)

    def withdrawn(self, task: int) -> list[Effect]:
        """Cancel ``task``. Its slot stays in use until the worker has stopped the task."""
        if task not in self._work:
            return []
        job = self._jobs[self._work[task].job]
        if task in job.running:
            return [StopTask(task, job.running[task])]
        job.waiting.remove(task)
        del self._work[task]
        return []

    def finished(self, task: int) -> list[Effect]:
        """Record that a worker has ended ``task``, with a result or with an error."""
        work = self._work.pop(task, None)
        if work is None:
            return []
        self._jobs[work.job].running.pop(task, None)
        # All jobs share each worker's limit on tasks that run alone.
        return [
            effect for job in (self._jobs if work.constraints.alone else [work.job]) for effect in self._hand_out(job)
        ]

    def died(self, worker: WorkerId, reason: str, *, broken: bool = False) -> list[Effect]:
        """Record that a worker is gone, or ``broken`` and about to end; the worker's tasks and slots are lost."""
        effects: list[Effect] = []
        # The supervisor may grant slots of the dead worker again before it learns of the death.
        keep(self._dead, worker, value=None)
        for job in self._jobs.values():
            job.slots.pop(worker, None)
            for task in [task for task, where in job.running.items() if where == worker]:
                del job.running[task]
                del self._work[task]
                effects.append(Lose(task, worker, reason, broken))
        return effects

    def granted(self, grants: Grants) -> list[Effect]:
        """Write off dead workers, replace each job's slots by the granted slots, and start tasks in free slots."""
        effects: list[Effect] = []
        for worker in sorted(grants.dead):
            effects += self.died(worker, "the supervisor found it dead")
        for name in {**self._jobs, **grants.slots}:
            job = self._jobs.setdefault(name, _Job())
            offered = grants.slots.get(name, {})
            job.slots = {worker: slots for worker, slots in offered.items() if worker not in self._dead}
            effects += self._hand_out(name)
            if not job.slots:
                self.forget(name)
        return effects

    def forget(self, name: str) -> None:
        """Drop a job if it has neither waiting nor running work; otherwise do nothing."""
        job = self._jobs.get(name)
        if job is not None and not job.running and not job.waiting:
            del self._jobs[name]

    def _hand_out(self, name: str) -> list[Effect]:
        job = self._jobs[name]
        effects: list[Effect] = []
        while (found := self._next(job)) is not None:
            task, worker = found
            job.waiting.remove(task)
            job.running[task] = worker
            effects.append(RunTask(task, worker))
        return effects

    def _next(self, job: _Job) -> tuple[int, WorkerId] | None:
        loads = {worker: Fraction(job.load(worker), slots) for worker, slots in job.slots.items() if slots > 0}
        free = sorted((load, worker) for worker, load in loads.items() if load < 1)
        if not free:
            return None
        full = self._full()
        # If two runs have the same label, the newer one counts; the older one was cancelled but still runs.
        stations = {self._work[task].label: worker.station for task, worker in sorted(job.running.items())}
        for task in job.waiting:
            work = self._work[task]
            may_run = [worker for worker in loads if not (work.constraints.alone and worker in full)]
            allowed = _allowed(work.constraints, may_run)
            taken = stations.get(work.apart_from) if work.apart_from else None
            fitting = [worker for _, worker in free if worker in allowed and worker.station != taken]
            if fitting:
                return task, fitting[0]
        return None

    def _full(self) -> Collection[WorkerId]:
        running = [pair for job in self._jobs.values() for pair in job.running.items()]
        alone = Counter(worker for task, worker in running if self._work[task].constraints.alone)
        return {worker for worker, count in alone.items() if count >= LONE_MAX}


def _allowed(constraints: Constraints, workers: Collection[WorkerId]) -> Collection[WorkerId]:
    if constraints.same_kind_as:
        kind = WorkerId(constraints.same_kind_as).station.kind
        workers = [worker for worker in workers if worker.station.kind is kind]
    return [worker for worker in workers if worker.station not in constraints.avoid] or workers


def keep(lost: dict[WorkerId, ValueT], worker: WorkerId, *, value: ValueT) -> None:
    """Add a lost worker; drop the oldest beyond ``LOST_KEPT``."""
    lost[worker] = value
    if len(lost) > LOST_KEPT:
        del lost[next(iter(lost))]


WAITS: Final = Backoff(first_s=0.5, most_s=30.0)
WAITS_MAX: Final = 7
"""How many times work waits after a refused encoder session. All waits together take a minute, in which most segments
end. Meanwhile a heartbeat reports the refusal to the supervisor, which then grants fewer slots."""
MARGIN_S: Final = 3.0
"""How long before the end of a node the supervisor ends the node's workers."""
LONGEST_KEPT: Final = 0.9
"""Each shorter task of a job multiplies the job's longest known time by this factor, because times vary."""


@dataclass(slots=True, eq=False)
class PendingWork:
    """Work that has no result yet."""

    work: Work[Any]
    packed: bytes  # the pickled work
    blobs: tuple[Any, ...]  # references to the work's blobs
    run: WorkRun[Any]  # the run that the submitter awaits
    task: int = -1  # the work's number in ``Leases``; a new one after each refused encoder session
    refusals: int = 0  # how many times an encoder session was refused

    def wait_s(self, outcome: Outcome[Any]) -> float | None:
        """Return the seconds to wait before another try; None if the outcome is final."""
        is_over = self.run.result.done() or not self.work.may_wait or self.refusals == WAITS_MAX
        if is_over or not isinstance(outcome.error, SessionLimit):
            return None
        self.refusals += 1
        return WAITS.wait_s(self.refusals)


class WorkTimes:
    """The start of each running task, and each job's longest known task time, in seconds."""

    def __init__(self) -> None:
        self._began: dict[int, tuple[str, float]] = {}
        self._longest: dict[str, float] = {}

    def began(self, task: int, job: str, now_s: float) -> None:
        """Record that a worker begins ``task``."""
        self._began[task] = job, now_s

    def ended(self, task: int, now_s: float, *, well: bool) -> None:
        """Record that ``task`` has ended; ``well`` says whether it succeeded. Idempotent."""
        job, began_s = self._began.pop(task, ("", now_s))
        if well and job:
            self._longest[job] = max(now_s - began_s, self._longest.get(job, 0.0) * LONGEST_KEPT)

    def forget(self, job: str) -> None:
        """Drop a job."""
        self._longest.pop(job, None)

    def doomed(self, tasks: Iterable[int], left_s: float, now_s: float) -> list[int]:
        """Return the tasks that would not finish within ``left_s`` if each took its job's longest known time."""
        found = []
        for task in tasks:
            job, began_s = self._began.get(task, ("", now_s))
            if job in self._longest and self._longest[job] - (now_s - began_s) > left_s - MARGIN_S:
                found.append(task)
        return found
