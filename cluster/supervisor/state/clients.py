"""The jobs of all clients: what each wants, holds and was promised."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...placement.model.demand import Demand
from .messages import ClientReport, JobReport

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

    ``is_placed``: everything was placed since it last asked for something else.
    """

    client: str
    where: str
    sequence: int
    seen_s: float
    sent_number: int = 0
    faults_seen: int = 0
    is_placed: bool = False
    jobs: dict[str, JobBook] = field(default_factory=dict)


class Clients:
    """Every client that has not expired."""

    def __init__(self) -> None:
        self._clients: dict[str, ClientBook] = {}
        self._departed: deque[str] = deque(maxlen=DEPARTED_KEPT)
        self._jobs: dict[str, JobBook] = {}
        self._keys: list[str] | None = []
        self._seen_at: dict[str, set[str]] = {}
        """The keys of jobs that occupy a worker, by worker, and of some that no longer do."""

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
        keys = self._seen_at.get(worker, set())
        found = [job for key in sorted(keys) if (job := self._jobs.get(key)) is not None and job.occupies(worker)]
        if len(found) < len(keys):
            self._seen_at[worker] = {job.key for job in found}
        if not found:
            self._seen_at.pop(worker, None)
        return found

    def forget_unused(self) -> None:
        """Drop what is kept of workers that no job occupies."""
        for worker in list(self._seen_at):
            self.at(worker)

    def promise(self, job: JobBook, promised: dict[str, int]) -> None:
        """Change what a job may use."""
        job.promise(promised)
        self._see(job)

    def _see(self, job: JobBook) -> None:
        for worker in (*job.held, *job.promised, *job.revoked):
            self._seen_at.setdefault(worker, set()).add(job.key)

    @property
    def jobs_by_key(self) -> Mapping[str, JobBook]:
        """Every job, by its key."""
        return self._jobs

    def job(self, key: str) -> JobBook | None:
        """Return a job by its key, None if it is over."""
        return self._jobs.get(key)

    def renew(self, report: ClientReport, now_s: float) -> Renewal:
        """Apply a report, unless a newer one is known or its client has left; return what it changed.

        A job that a report does not name is over.
        """
        if report.client in self._departed:
            return Renewal()
        book = self._clients.get(report.client)
        if book is None:
            book = self._clients[report.client] = ClientBook(report.client, report.where, 0, now_s)
        book.seen_s = now_s
        if report.sequence <= book.sequence:
            return Renewal()
        book.sequence = report.sequence
        is_acknowledged = report.acknowledged >= book.sent_number
        old = book.jobs
        book.jobs = {
            said.demand.job: _job(report.client, said, old.get(said.demand.job), is_acknowledged=is_acknowledged)
            for said in report.jobs
        }
        self._replace(old.values(), book.jobs.values())
        renewal = _renewal(old, book.jobs)
        book.is_placed = book.is_placed and not renewal.is_wanted
        return renewal

    def _replace(self, before: Iterable[JobBook], after: Iterable[JobBook]) -> None:
        old, new = {job.key for job in before}, {job.key: job for job in after}
        if old != new.keys():
            self._keys = None
            for key in old - new.keys():
                del self._jobs[key]
        self._jobs |= new
        for job in new.values():
            self._see(job)

    def depart(self, client: str) -> ClientBook | None:
        """Remove a client that left, and return it; a late report does not bring it back."""
        self._departed.append(client)
        return self.forget(client)

    def forget(self, client: str) -> ClientBook | None:
        """Remove a client and all its jobs until its next report, and return it."""
        book = self._clients.pop(client, None)
        if book is not None:
            self._replace(book.jobs.values(), ())
        return book

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


def _job(client: str, said: JobReport, before: JobBook | None, *, is_acknowledged: bool) -> JobBook:
    key = f"{client}/{said.demand.job}"
    book = JobBook(key, replace(said.demand, job=key), dict(said.held))
    if before is not None:
        book.promised = before.promised
        book.revoked = {} if is_acknowledged else before.revoked
    return book
