"""Which piece of work goes to which worker, on one client's side: a state machine without Ray, clock or I/O.

The supervisor says how many slots of which workers each job may use; each job's work waits in a queue of its own and
goes, in order, to the least loaded of them. What was begun on a slot that is taken back is finished there.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from ..supervisor.state.messages import Grants
from ..supervisor.state.stations import station_of

__all__ = ["Effect", "Leases", "Lose", "RunTask", "StopTask"]


@dataclass(frozen=True, slots=True)
class RunTask:
    """Hand ``task`` to ``worker``."""

    task: int
    worker: str


@dataclass(frozen=True, slots=True)
class StopTask:
    """Ask ``worker`` to stop ``task``; ``Leases.finished`` is called once it has."""

    task: int
    worker: str


@dataclass(frozen=True, slots=True)
class Lose:
    """Tell whoever waits for ``task`` that its worker died."""

    task: int
    worker: str
    reason: str


Effect: TypeAlias = RunTask | StopTask | Lose


@dataclass(slots=True)
class _Job:
    slots: dict[str, int] = field(default_factory=dict)
    waiting: deque[int] = field(default_factory=deque)
    labels: dict[int, str] = field(default_factory=dict)
    failed_at: dict[str, frozenset[str]] = field(default_factory=dict)
    running: dict[int, str] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return sum(max(0, slots - self.load(worker)) for worker, slots in self.slots.items())

    def load(self, worker: str) -> int:
        return sum(where == worker for where in self.running.values())


class Leases:
    """The work of a client's jobs, and the slots they may use."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._job_of: dict[int, str] = {}
        self._dead: set[str] = set()

    def slots_for(self, job: str) -> int:
        """Return how many pieces of work of ``job`` may run now: those that do, and one for each free slot.

        What still runs on slots that were taken back does not keep those that came in their place empty.
        """
        found = self._jobs.get(job)
        return 0 if found is None else len(found.running) + found.free

    def held(self, job: str) -> dict[str, int]:
        """Return what runs of ``job``: {worker: pieces}."""
        found = self._jobs.get(job)
        if found is None:
            return {}
        return {worker: found.load(worker) for worker in sorted(set(found.running.values()))}

    def outstanding(self) -> dict[str, int]:
        """Return how many pieces of work of each job wait or run; jobs without any are left out."""
        counts = {name: len(job.waiting) + len(job.running) for name, job in self._jobs.items()}
        return {name: count for name, count in counts.items() if count}

    def waiting(self) -> list[int]:
        """Return every piece of work that has not begun, the oldest first."""
        return sorted(task for job in self._jobs.values() for task in job.waiting)

    def submitted(self, task: int, job: str, label: str = "") -> list[Effect]:
        """Take in a new piece of work, or another try at one: ``label`` says what it is."""
        self._job_of[task] = job
        found = self._jobs.setdefault(job, _Job())
        found.waiting.append(task)
        found.labels[task] = label
        return self._hand_out(job)

    def withdrawn(self, task: int) -> list[Effect]:
        """Nobody waits for ``task`` any more. Its slot stays taken until its worker has stopped."""
        name = self._job_of.get(task)
        if name is None:
            return []
        job = self._jobs[name]
        if task in job.running:
            return [StopTask(task, job.running[task])]
        job.waiting.remove(task)
        job.labels.pop(task)
        del self._job_of[task]
        return []

    def finished(self, task: int) -> list[Effect]:
        """A worker came to an end with ``task``, well or badly."""
        name = self._job_of.pop(task, None)
        if name is None:
            return []
        self._jobs[name].running.pop(task, None)
        self._jobs[name].labels.pop(task, None)
        return self._hand_out(name)

    def shun(self, task: int) -> str | None:
        """Have another try at ``task`` go to another seat, if there is one; return the worker that has it, if any."""
        name = self._job_of.get(task)
        worker = None if name is None else self._jobs[name].running.get(task)
        if name is None or worker is None:
            return None
        job = self._jobs[name]
        label = job.labels[task]
        job.failed_at[label] = job.failed_at.get(label, frozenset()) | {station_of(worker)}
        return worker

    def broke(self, task: int, reason: str) -> list[Effect]:
        """A worker ends itself for what ``task`` met there; another try goes to another seat, if there is one."""
        worker = self.shun(task)
        return [] if worker is None else self.died(worker, reason)

    def died(self, worker: str, reason: str) -> list[Effect]:
        """A worker is gone: what it ran is lost, and its slots with it."""
        effects: list[Effect] = []
        # The supervisor may not know yet, and offer it again; its name never comes back.
        self._dead.add(worker)
        for job in self._jobs.values():
            job.slots.pop(worker, None)
            for task in [task for task, where in job.running.items() if where == worker]:
                del job.running[task]
                job.labels.pop(task, None)
                del self._job_of[task]
                effects.append(Lose(task, worker, reason))
        return effects

    def granted(self, grants: Grants) -> list[Effect]:
        """Take in what may be used from now on."""
        effects: list[Effect] = []
        for worker in sorted(grants.dead):
            effects += self.died(worker, "the supervisor found it dead")
        for name in {**self._jobs, **grants.slots}:
            job = self._jobs.setdefault(name, _Job())
            offered = grants.slots.get(name, {})
            job.slots = {worker: slots for worker, slots in offered.items() if worker not in self._dead}
            effects += self._hand_out(name)
        return effects

    def forget(self, names: Iterable[str]) -> None:
        """Forget jobs that are over, unless something of theirs still runs."""
        for name in names:
            job = self._jobs.get(name)
            if job is not None and not job.running and not job.waiting:
                del self._jobs[name]

    def _hand_out(self, name: str) -> list[Effect]:
        job = self._jobs[name]
        effects: list[Effect] = []
        while (found := _next(job)) is not None:
            task, worker = found
            job.waiting.remove(task)
            job.running[task] = worker
            effects.append(RunTask(task, worker))
        return effects


def _next(job: _Job) -> tuple[int, str] | None:
    """Return the oldest piece of work for which a slot is free, and where."""
    loads: Mapping[str, Fraction] = {
        worker: Fraction(job.load(worker), slots) for worker, slots in job.slots.items() if slots > 0
    }
    free = sorted((load, worker) for worker, load in loads.items() if load < 1)
    if not free:
        return None
    for task in job.waiting:
        shunned = job.failed_at.get(job.labels[task], frozenset())
        has_others = any(station_of(worker) not in shunned for worker in loads)
        fitting = [worker for _, worker in free if not (has_others and station_of(worker) in shunned)]
        if fitting:
            return task, fitting[0]
    return None
