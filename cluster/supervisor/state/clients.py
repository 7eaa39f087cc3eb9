"""The jobs of all clients: what each wants, holds and was promised."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...placement.model.demand import Demand
from .messages import ClientReport, JobGrants, JobReport, ReportedChanges

DEPARTED_KEPT = 1024
EXACT_BITS = 4
"""Up to 15 remaining segments are counted exactly, more in steps of at most an eighth."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a client's report changed.

    ``is_wanted``: which jobs there are, or what they ask for, in round numbers. ``is_held``: which slots are in use.
    ``left`` are workers that a job no longer uses.
    """

    is_wanted: bool = False
    is_held: bool = False
    left: frozenset[str] = frozenset()


@dataclass(slots=True)
class JobBook:
    """One job. ``key`` is unique among all clients.

    ``promised`` is what its client was last sent; ``revoked`` is what it was sent earlier and may still use, until it
    acknowledges newer grants.
    """

    key: str
    demand: Demand
    held: dict[str, int] = field(default_factory=dict)
    promised: dict[str, int] = field(default_factory=dict)
    revoked: dict[str, int] = field(default_factory=dict)

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
    """One client and its jobs, by their own names; ``sent_number`` is that of the last grants it was sent.

    ``is_placed``: everything was placed since it last asked for something else. ``told`` is what its jobs were last
    found to get, without those that may get something else now, and ``told_at`` what that was found of. ``behind`` is
    what it will ask for later.
    """

    client: str
    where: str
    sequence: int
    seen_s: float
    sent_number: int = 0
    faults_seen: int = 0
    is_placed: bool = False
    jobs: dict[str, JobBook] = field(default_factory=dict)
    told: dict[str, JobGrants] = field(default_factory=dict)
    told_at: tuple[int, bool] | None = None
    behind: tuple[Demand, ...] = ()


class Clients:
    """Every client that has not expired."""

    def __init__(self) -> None:
        self._clients: dict[str, ClientBook] = {}
        self._departed: deque[str] = deque(maxlen=DEPARTED_KEPT)
        self._jobs: dict[str, JobBook] = {}
        self._keys: list[str] | None = []
        self._slots_at: dict[str, dict[str, int]] = {}
        """How many slots of a worker jobs occupy: {worker: {key: slots}}."""
        self._workers_of: dict[str, tuple[str, ...]] = {}
        """The workers of which a job occupies slots, by its key."""
        self._moved: set[str] = set()

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[ClientBook]:
        return iter(self._clients.values())

    def get(self, client: str) -> ClientBook | None:
        """Return a client, None if it is unknown or expired."""
        return self._clients.get(client)

    def jobs(self) -> list[JobBook]:
        """Return every job, in order of its key."""
        if self._keys is None:
            self._keys = sorted(self._jobs)
        return [self._jobs[key] for key in self._keys]

    def at(self, worker: str) -> list[JobBook]:
        """Return the jobs that occupy slots of a worker, in order of their keys."""
        return [self._jobs[key] for key in sorted(self._slots_at.get(worker, ()))]

    def occupied(self, worker: str, *, but_by: str) -> int:
        """Return how many slots of a worker all jobs occupy but one, which is named by its key."""
        slots = self._slots_at.get(worker, {})
        return sum(slots.values()) - slots.get(but_by, 0)

    def moved(self) -> set[str]:
        """Return the workers of which jobs occupy other slots than at the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def promise(self, job: JobBook, promised: dict[str, int]) -> None:
        """Change what a job may use."""
        if promised != job.promised:
            job.promise(promised)
            self._count(job)

    def _count(self, job: JobBook) -> None:
        """Count what a job occupies now."""
        workers = {*job.held, *job.promised, *job.revoked}
        self._set_slots(job.key, {worker: slots for worker in workers if (slots := job.occupies(worker))})

    def _set_slots(self, key: str, slots: Mapping[str, int]) -> None:
        for worker in {*self._workers_of.pop(key, ()), *slots}:
            here = self._slots_at.setdefault(worker, {})
            if here.get(key, 0) != slots.get(worker, 0):
                self._moved.add(worker)
            here.pop(key, None)
            if worker in slots:
                here[key] = slots[worker]
            if not here:
                del self._slots_at[worker]
        if slots:
            self._workers_of[key] = tuple(slots)

    @property
    def jobs_by_key(self) -> Mapping[str, JobBook]:
        """Every job, by its key."""
        return self._jobs

    def job(self, key: str) -> JobBook | None:
        """Return a job by its key, None if it is over."""
        return self._jobs.get(key)

    def follows(self, report: ClientReport) -> bool:
        """Return whether a report can be taken in: it tells of every job, or of all that is not known yet."""
        if not isinstance(report, ReportedChanges):
            return True
        book = self._clients.get(report.client)
        return book is not None and report.since <= book.sequence

    def renew(self, report: ClientReport, now_s: float) -> Renewal:
        """Apply a report that follows, unless a newer one is known or its client has left; return what it changed.

        A job that a whole report does not name is over.
        """
        if report.client in self._departed or not self.follows(report):
            return Renewal()
        book = self._clients.get(report.client)
        if book is None:
            book = self._clients[report.client] = ClientBook(report.client, report.where, 0, now_s)
        book.seen_s = now_s
        if report.sequence <= book.sequence:
            return Renewal()
        book.sequence, book.behind = report.sequence, report.behind
        if report.acknowledged >= book.sent_number:
            self._end_revoked(book)
        named = {said.demand.job: said for said in report.jobs}
        over = report.over if isinstance(report, ReportedChanges) else book.jobs.keys() - named.keys()
        before = {name: book.jobs[name] for name in (*named, *over) if name in book.jobs}
        after = {name: _job(report.client, said, before.get(name)) for name, said in named.items()}
        self._replace(book, before, after)
        renewal = _renewal(before, after)
        book.is_placed = book.is_placed and not renewal.is_wanted
        return renewal

    def _end_revoked(self, book: ClientBook) -> None:
        """A client knows what was revoked: others may have it."""
        for name, job in book.jobs.items():
            if job.revoked:
                job.revoked = {}
                book.told.pop(name, None)
                self._count(job)

    def _replace(self, book: ClientBook, before: Mapping[str, JobBook], after: Mapping[str, JobBook]) -> None:
        """Have a client's jobs ``before`` be those ``after``; its others stay."""
        if before.keys() != after.keys():
            self._keys = None
        for name in before:
            book.told.pop(name, None)
        for name in before.keys() - after.keys():
            key = book.jobs.pop(name).key
            self._set_slots(key, {})
            del self._jobs[key]
        for name, job in after.items():
            book.jobs[name] = self._jobs[job.key] = job
            self._count(job)

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
        self._replace(book, gone.jobs, {})
        return gone

    def excuse(self, seconds: float) -> None:
        """Do not count ``seconds`` of silence against any client."""
        for book in self:
            book.seen_s += seconds

    def expired(self, now_s: float, expiry_s: float) -> list[ClientBook]:
        """Return the clients whose last report is older than ``expiry_s``."""
        return [book for book in self if now_s - book.seen_s > expiry_s]


def job_of(key: str) -> str:
    """Return a job's own name, as its client calls it."""
    return key.partition("/")[2]


def about(demand: Demand) -> Demand:
    """Return a demand with its remaining segments counted roughly, for comparisons alone.

    So a long job does not trigger a placement with each segment that ends.
    """
    count = len(demand.segments)
    step = 1 << max(0, count.bit_length() - EXACT_BITS)
    return replace(demand, segments=(count // step * step, step))


def _renewal(before: Mapping[str, JobBook], after: Mapping[str, JobBook]) -> Renewal:
    wants = [(before[name].demand, job.demand) for name, job in after.items() if name in before]
    is_wanted = before.keys() != after.keys() or any(old != new and about(old) != about(new) for old, new in wants)
    held = {name: job.held for name, job in before.items()}
    now = {name: job.held for name, job in after.items()}
    left = frozenset(worker for name, workers in held.items() for worker in workers.keys() - now.get(name, {}).keys())
    return Renewal(is_wanted, held != now, left)


def _job(client: str, said: JobReport, before: JobBook | None) -> JobBook:
    key = f"{client}/{said.demand.job}"
    book = JobBook(key, replace(said.demand, job=key), dict(said.held))
    if before is not None:
        book.promised, book.revoked = before.promised, before.revoked
    return book
