"""The jobs of all clients: what each wants, holds and was promised."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...placement.model.demand import Demand
from .messages import ClientReport, Grants, JobReport

DEPARTED_KEPT = 1024
EXACT_BITS = 4
"""Up to 15 remaining segments are counted exactly, more in steps of at most an eighth."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a client's report changed."""

    is_wanted: bool = False  # which jobs there are, or what they ask for, in round numbers
    is_held: bool = False  # which slots are in use
    left: frozenset[str] = frozenset()  # workers that a job no longer uses
    moved: frozenset[str] = frozenset()  # workers of which jobs occupy other slots than before


@dataclass(frozen=True, slots=True)
class Call:
    """A client's report that waits for its answer."""

    event: int  # the number of the event that brought it
    sequence: int  # the report's
    until_s: float  # then it is answered though nothing has changed
    latest_s: float  # then even if everything is still to be placed


@dataclass(slots=True)
class JobBook:
    """One job."""

    key: str  # unique among all clients
    said: JobReport  # what its client last reported of it
    demand: Demand  # what it wants; its ``job`` is the key
    promised: dict[str, int] = field(default_factory=dict)  # the slots that its client was last sent, by worker
    revoked: dict[str, int] = field(default_factory=dict)  # those sent earlier that it may use until it acknowledges

    @property
    def held(self) -> dict[str, int]:
        """The slots that it uses, by worker."""
        return self.said.held

    def occupies(self, worker: str) -> int:
        """Return how many of a worker's slots it may be using: held, promised, or not known to be revoked."""
        return max(self.held.get(worker, 0), self.promised.get(worker, 0), self.revoked.get(worker, 0))

    def promise(self, promised: dict[str, int]) -> None:
        """Change what it may use; what is revoked stays occupied until its client acknowledges."""
        for worker, slots in self.promised.items():
            if promised.get(worker, 0) < slots:
                self.revoked[worker] = max(slots, self.revoked.get(worker, 0))
        self.promised = promised


@dataclass(slots=True)
class ClientBook:
    """One client."""

    client: str  # its unique name
    where: str  # its host and process, for people
    sequence: int  # that of its newest report
    seen_s: float  # when it last reported
    sent: Grants | None = None  # the last grants that it was sent
    faults_seen: int = 0  # the number of the newest fault that was counted
    jobs: dict[str, JobBook] = field(default_factory=dict)  # by its own names
    behind: tuple[Demand, ...] = ()  # what it will ask for later
    calls: tuple[Call, ...] = ()  # its reports that wait for an answer


class Clients:
    """Every client that has not expired."""

    def __init__(self) -> None:
        self._clients: dict[str, ClientBook] = {}
        self._departed: deque[str] = deque(maxlen=DEPARTED_KEPT)
        self._jobs: dict[str, JobBook] = {}
        self._slots_at: dict[str, dict[str, int]] = {}
        """How many slots of a worker jobs occupy: {worker: {key: slots}}."""
        self._workers_of: dict[str, tuple[str, ...]] = {}
        """The workers of which a job occupies slots, by its key."""

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[ClientBook]:
        return iter(self._clients.values())

    def get(self, client: str) -> ClientBook | None:
        """Return a client, None if it is unknown or expired."""
        return self._clients.get(client)

    def jobs(self) -> list[JobBook]:
        """Return every job, in order of its key."""
        return [self._jobs[key] for key in sorted(self._jobs)]

    @property
    def jobs_by_key(self) -> Mapping[str, JobBook]:
        """Every job, by its key."""
        return self._jobs

    def at(self, worker: str) -> list[JobBook]:
        """Return the jobs that occupy slots of a worker, in order of their keys."""
        return [self._jobs[key] for key in sorted(self._slots_at.get(worker, ()))]

    def uses(self, worker: str) -> bool:
        """Return whether any job occupies a slot of a worker."""
        return worker in self._slots_at

    def occupied(self, worker: str, *, but_by: str) -> int:
        """Return how many slots of a worker all jobs occupy but one, which is named by its key."""
        slots = self._slots_at.get(worker, {})
        return sum(slots.values()) - slots.get(but_by, 0)

    def promise(self, job: JobBook, promised: dict[str, int]) -> None:
        """Change what a job may use."""
        if promised != job.promised:
            job.promise(promised)
            self._count(job)

    def _count(self, job: JobBook) -> frozenset[str]:
        """Count what a job occupies now; return the workers of which that is something else."""
        workers = {*job.held, *job.promised, *job.revoked}
        return self._set_slots(job.key, {worker: slots for worker in workers if (slots := job.occupies(worker))})

    def _set_slots(self, key: str, slots: Mapping[str, int]) -> frozenset[str]:
        moved = set()
        for worker in {*self._workers_of.pop(key, ()), *slots}:
            here = self._slots_at.setdefault(worker, {})
            if here.pop(key, 0) != slots.get(worker, 0):
                moved.add(worker)
            if worker in slots:
                here[key] = slots[worker]
            if not here:
                del self._slots_at[worker]
        if slots:
            self._workers_of[key] = tuple(sorted(slots))
        return frozenset(moved)

    def renew(self, report: ClientReport, now_s: float) -> Renewal:
        """Apply a report, unless a newer one is known or its client has left; return what it changed.

        A job that it does not name is over.
        """
        if report.client in self._departed:
            return Renewal()
        book = self._clients.get(report.client)
        if book is None:
            book = self._clients[report.client] = ClientBook(report.client, report.where, 0, now_s)
        book.seen_s = now_s
        if report.sequence <= book.sequence:
            return Renewal()
        book.sequence, book.behind = report.sequence, report.behind
        is_known = book.sent is None or report.acknowledged >= book.sent.number
        ended = [self._end_revoked(job) for job in book.jobs.values() if job.revoked] if is_known else []
        named = {said.demand.job: said for said in report.jobs}
        changes = [self._end(book, name) for name in book.jobs.keys() - named.keys()]
        changes += [self._renew_job(book, name, said) for name, said in named.items()]
        return Renewal(
            is_wanted=any(each.is_wanted for each in changes),
            is_held=any(each.is_held for each in changes),
            left=frozenset().union(*(each.left for each in changes)),
            moved=frozenset().union(*ended, *(each.moved for each in changes)),
        )

    def _end_revoked(self, job: JobBook) -> frozenset[str]:
        """A job's client knows what was revoked: others may have it. Return the workers that it concerns."""
        job.revoked = {}
        return self._count(job)

    def _renew_job(self, book: ClientBook, name: str, said: JobReport) -> Renewal:
        job, key = book.jobs.get(name), f"{book.client}/{name}"
        if job is None:
            book.jobs[name] = self._jobs[key] = job = JobBook(key, said, replace(said.demand, job=key))
            return Renewal(is_wanted=True, is_held=bool(said.held), moved=self._count(job))
        if job.said == said:
            return _NOTHING
        before, job.said = job.said, said
        if before.demand != said.demand:
            job.demand = replace(said.demand, job=key)
        is_held = before.held != said.held
        return Renewal(
            is_wanted=before.demand != said.demand and about(before.demand) != about(said.demand),
            is_held=is_held,
            left=frozenset(before.held.keys() - said.held.keys()),
            moved=self._count(job) if is_held else frozenset(),
        )

    def _end(self, book: ClientBook, name: str) -> Renewal:
        """A job is over: nothing of it is left."""
        job = book.jobs.pop(name)
        del self._jobs[job.key]
        moved = self._set_slots(job.key, {})
        return Renewal(is_wanted=True, is_held=bool(job.held), left=frozenset(job.held), moved=moved)

    def depart(self, client: str) -> ClientBook | None:
        """Remove a client that left, and return it; a late report does not bring it back."""
        self._departed.append(client)
        return self.forget(client)

    def forget(self, client: str) -> ClientBook | None:
        """Remove a client and all its jobs until its next report, and return it."""
        book = self._clients.pop(client, None)
        if book is None:
            return None
        gone = replace(book, jobs=dict(book.jobs))
        for name in gone.jobs:
            self._end(book, name)
        return gone

    def excuse(self, seconds: float) -> None:
        """Do not count ``seconds`` of silence against any client."""
        for book in self:
            book.seen_s += seconds

    def expired(self, now_s: float, expiry_s: float) -> list[ClientBook]:
        """Return the clients whose last report is older than ``expiry_s``."""
        return [book for book in self if now_s - book.seen_s > expiry_s]


_NOTHING = Renewal()


def job_of(key: str) -> str:
    """Return a job's own name, as its client calls it."""
    return key.partition("/")[2]


def client_of(key: str) -> str:
    """Return the client of a job."""
    return key.partition("/")[0]


def about(demand: Demand) -> Demand:
    """Return a demand with its remaining segments counted roughly, for comparisons alone.

    So a long job does not trigger a placement with each segment that ends.
    """
    count = len(demand.segments)
    step = 1 << max(0, count.bit_length() - EXACT_BITS)
    return replace(demand, segments=(count // step * step, step))
