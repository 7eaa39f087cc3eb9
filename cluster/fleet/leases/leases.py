"""Which work goes to which worker, on one client's side: a state machine without Ray, clock or I/O.

The supervisor grants each job slots of workers; each job's work waits in its own queue and goes in order to the least
loaded worker that its constraints allow. Work that runs on a revoked slot is finished there.
"""

from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeAlias

from ....actors.device.work import UNCONSTRAINED, Constraints
from ...supervisor.state.messages import Grants
from ...worker.lone_runs import LONE_MAX
from ...worker_names import engine_of, station_of
from .known_workers import keep


@dataclass(frozen=True, slots=True)
class RunTask:
    """Send ``task`` to ``worker``."""

    task: int
    worker: str


@dataclass(frozen=True, slots=True)
class StopTask:
    """Ask ``worker`` to stop ``task``; ``Leases.finished`` follows."""

    task: int
    worker: str


@dataclass(frozen=True, slots=True)
class Lose:
    """Fail ``task``: its worker died; or is ``broken``, by this or by other work."""

    task: int
    worker: str
    reason: str
    broken: bool = False


Effect: TypeAlias = RunTask | StopTask | Lose


@dataclass(slots=True)
class _Job:
    slots: dict[str, int] = field(default_factory=dict)
    waiting: deque[int] = field(default_factory=deque)
    labels: dict[int, str] = field(default_factory=dict)
    apart_from: dict[int, str] = field(default_factory=dict)
    constraints: dict[int, Constraints] = field(default_factory=dict)
    running: dict[int, str] = field(default_factory=dict)

    @property
    def free(self) -> int:
        loads = Counter(self.running.values())
        return sum(max(0, slots - loads[worker]) for worker, slots in self.slots.items())

    def load(self, worker: str) -> int:
        return sum(where == worker for where in self.running.values())

    def stations(self) -> dict[str, str]:
        """Return where each label runs; a newer run of one hides a cancelled one that has not ended yet."""
        return {self.labels[task]: station_of(worker) for task, worker in sorted(self.running.items())}

    def forget(self, task: int) -> None:
        self.labels.pop(task, None)
        self.constraints.pop(task, None)
        self.apart_from.pop(task, None)


class Leases:
    """A client's work by job, and the slots that it may use."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._job_of: dict[int, str] = {}
        self._dead: dict[str, None] = {}

    def slots_for(self, job: str) -> int:
        """Return how many pieces of work of ``job`` may run now: the running ones, and one per free slot.

        Work on revoked slots does not keep newly granted ones empty.
        """
        found = self._jobs.get(job)
        return 0 if found is None else len(found.running) + found.free

    def held(self, job: str) -> dict[str, int]:
        """Return the running work of ``job``: {worker: pieces}."""
        found = self._jobs.get(job)
        if found is None:
            return {}
        return {worker: found.load(worker) for worker in sorted(set(found.running.values()))}

    def outstanding(self) -> dict[str, int]:
        """Return how many pieces of work of each job wait or run, without jobs that have none."""
        counts = {name: len(job.waiting) + len(job.running) for name, job in self._jobs.items()}
        return {name: count for name, count in counts.items() if count}

    def waiting(self) -> list[int]:
        """Return every piece of work that has not started, oldest first."""
        return sorted(task for job in self._jobs.values() for task in job.waiting)

    def is_running(self, task: int) -> bool:
        """Return whether a worker has the work."""
        job = self._job_of.get(task)
        return job is not None and task in self._jobs[job].running

    def worker_of(self, task: int) -> str | None:
        """Return the worker that has the work, if any."""
        job = self._job_of.get(task)
        return None if job is None else self._jobs[job].running.get(task)

    def running_on(self, worker: str) -> list[int]:
        """Return the work that a worker runs."""
        return [task for job in self._jobs.values() for task, where in job.running.items() if where == worker]

    def submitted(
        self,
        task: int,
        job: str,
        label: str = "",
        *,
        apart_from: str = "",
        constraints: Constraints = UNCONSTRAINED,
    ) -> list[Effect]:
        """Queue a piece of work or a retry; ``label`` identifies it, and the rest is the work's."""
        self._job_of[task] = job
        found = self._jobs.setdefault(job, _Job())
        found.waiting.append(task)
        found.labels[task] = label
        found.constraints[task] = constraints
        if apart_from:
            found.apart_from[task] = apart_from
        return self._hand_out(job)

    def relaxed(self, task: int) -> list[Effect]:
        """No worker of the wanted kind came for ``task``: any may run it."""
        name = self._job_of.get(task)
        if name is None:
            return []
        wanted = self._jobs[name].constraints
        wanted[task] = replace(wanted[task], same_kind_as="")
        return self._hand_out(name)

    def withdrawn(self, task: int) -> list[Effect]:
        """``task`` was cancelled. Its slot stays taken until its worker has stopped."""
        name = self._job_of.get(task)
        if name is None:
            return []
        job = self._jobs[name]
        if task in job.running:
            return [StopTask(task, job.running[task])]
        job.waiting.remove(task)
        job.forget(task)
        del self._job_of[task]
        return []

    def finished(self, task: int) -> list[Effect]:
        """A worker ended ``task``, in success or failure."""
        name = self._job_of.pop(task, None)
        if name is None:
            return []
        was_alone = self._jobs[name].constraints[task].alone
        self._jobs[name].running.pop(task, None)
        self._jobs[name].forget(task)
        # Room for work that runs alone is the worker's, not a job's.
        return [effect for other in (self._jobs if was_alone else [name]) for effect in self._hand_out(other)]

    def broke(self, worker: str, reason: str) -> list[Effect]:
        """A worker ends itself because its device failed: all its work may have been the cause."""
        return [replace(effect, broken=True) for effect in self.died(worker, reason)]

    def died(self, worker: str, reason: str) -> list[Lose]:
        """A worker is gone: its work is lost, and its slots."""
        effects: list[Lose] = []
        # The supervisor may offer it once more before it learns; its name never comes back.
        keep(self._dead, worker, value=None)
        for job in self._jobs.values():
            job.slots.pop(worker, None)
            for task in [task for task, where in job.running.items() if where == worker]:
                del job.running[task]
                job.forget(task)
                del self._job_of[task]
                effects.append(Lose(task, worker, reason))
        return effects

    def granted(self, grants: Grants) -> list[Effect]:
        """Apply new grants."""
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
        """Drop a job that is over, unless work of its still waits or runs."""
        job = self._jobs.get(name)
        if job is not None and not job.running and not job.waiting:
            del self._jobs[name]

    def _full(self) -> Collection[str]:
        """Return the workers beside which as much runs alone as may."""
        alone = [
            worker for job in self._jobs.values() for task, worker in job.running.items() if job.constraints[task].alone
        ]
        return {worker for worker, count in Counter(alone).items() if count >= LONE_MAX}

    def _hand_out(self, name: str) -> list[Effect]:
        job = self._jobs[name]
        effects: list[Effect] = []
        while (found := _next(job, self._full())) is not None:
            task, worker = found
            job.waiting.remove(task)
            job.running[task] = worker
            effects.append(RunTask(task, worker))
        return effects


def _next(job: _Job, full: Collection[str]) -> tuple[int, str] | None:
    """Return the oldest piece of work for which a slot is free, and where; ``full`` workers run none more alone."""
    loads = {worker: Fraction(job.load(worker), slots) for worker, slots in job.slots.items() if slots > 0}
    free = sorted((load, worker) for worker, load in loads.items() if load < 1)
    if not free:
        return None
    for task in job.waiting:
        constraints = job.constraints[task]
        allowed = _allowed(constraints, [worker for worker in loads if not (constraints.alone and worker in full)])
        taken = job.stations().get(job.apart_from[task]) if task in job.apart_from else None
        fitting = [worker for _, worker in free if worker in allowed and station_of(worker) != taken]
        if fitting:
            return task, fitting[0]
    return None


def _allowed(constraints: Constraints, workers: Collection[str]) -> Collection[str]:
    """Return which of these workers may run work under its constraints."""
    if constraints.same_kind_as:
        engine = engine_of(station_of(constraints.same_kind_as))
        workers = [worker for worker in workers if engine_of(station_of(worker)) == engine]
    return [worker for worker in workers if station_of(worker) not in constraints.avoid] or workers
