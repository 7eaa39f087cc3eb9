"""The jobs of all clients: their demands, held slots and promised slots."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ...placement.model.demand import Demand
from ...worker_names import NodeId, WorkerId
from .messages import ClientReport, Grants, JobReport

DEPARTED_KEPT = 1024
EXACT_BITS = 4
"""Up to 15 remaining segments are counted exactly; larger numbers are rounded down by less than an eighth."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """The changes in a client's report."""

    is_wanted: bool = False  # whether the jobs or their rounded demands changed
    is_new: bool = False  # whether a job came
    is_held: bool = False  # whether the slots in use changed
    left: frozenset[WorkerId] = frozenset()  # workers that a job no longer uses
    moved: frozenset[WorkerId] = frozenset()  # workers whose occupied slots changed


@dataclass(frozen=True, slots=True)
class Call:
    """A client's report that waits for an answer."""

    event: int  # the number of the event that brought the report
    sequence: int  # the report's number among the client's reports
    until_s: float  # at this time the client gets an answer, even without news
    latest_s: float  # the latest time for an answer with news; before it, the answer may wait for a pending placement


@dataclass(slots=True)
class JobBook:
    """A job of a client, with its slots."""

    key: str  # the job's name, unique among all clients
    said: JobReport  # the client's last report on the job
    demand: Demand  # the job's demand, in which ``job`` is the job's key
    promised: dict[WorkerId, int] = field(default_factory=dict)  # the slots last sent to the client, by worker
    revoked: dict[WorkerId, int] = field(default_factory=dict)  # revoked slots, which count until acknowledged
    # Slots that the job may be using, counted by ``Clients``.
    occupied: dict[WorkerId, int] = field(default_factory=dict)

    @property
    def held(self) -> dict[WorkerId, int]:
        """The slots that the job uses, by worker."""
        return self.said.held

    def occupies(self) -> dict[WorkerId, int]:
        """Return the slots that the job may be using: held, promised, or not known to be revoked."""
        found = {worker: slots for worker, slots in self.held.items() if slots}
        for more in (self.promised, self.revoked):
            for worker, slots in more.items():
                if slots > found.get(worker, 0):
                    found[worker] = slots
        return found


@dataclass(slots=True)
class ClientBook:
    """A client that reports to the supervisor."""

    client: str  # the client's unique name
    where: str  # the client's host and process, as text for display
    sequence: int  # the number of the client's newest report
    seen_s: float  # when the client last reported
    node: NodeId | None = None  # the client's node; None if it is not known
    keeper: str = ""  # see ``ClientReport``
    sent: Grants | None = None  # the grants that the client got last
    faults_seen: int = 0  # the number of the client's newest fault that was counted
    jobs: dict[str, JobBook] = field(default_factory=dict)  # the client's jobs, by the client's own names
    later: tuple[Demand, ...] = ()  # the demands of the waiting jobs in the client's batches
    calls: tuple[Call, ...] = ()  # the client's reports that wait for an answer
    is_owed: bool = False  # urgent news came while no call was open, so the next call is answered at once


class Clients:
    """Every client that has neither left nor expired."""

    def __init__(self) -> None:
        self._clients: dict[str, ClientBook] = {}
        self._departed: deque[str] = deque(maxlen=DEPARTED_KEPT)
        self.jobs_by_key: dict[str, JobBook] = {}
        self._slots_at: dict[WorkerId, dict[str, int]] = {}
        """The occupied slots of each worker: {worker: {job's key: slots}}."""

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def nodes(self) -> set[NodeId]:
        """The nodes on which clients run, as far as they are known."""
        return {client.node for client in self if client.node is not None}

    def __iter__(self) -> Iterator[ClientBook]:
        return iter(self._clients.values())

    def get(self, client: str) -> ClientBook | None:
        """Return a client; None if the client is unknown or expired."""
        return self._clients.get(client)

    def jobs(self) -> list[JobBook]:
        """Return every job, in order of the keys."""
        return [self.jobs_by_key[key] for key in sorted(self.jobs_by_key)]

    def at(self, worker: WorkerId) -> list[JobBook]:
        """Return the jobs that occupy slots of a worker, in order of the keys."""
        return [self.jobs_by_key[key] for key in sorted(self._slots_at.get(worker, ()))]

    def uses(self, worker: WorkerId) -> bool:
        """Return whether any job occupies a slot of a worker."""
        return worker in self._slots_at

    def occupied(self, worker: WorkerId, *, but_by: str = "") -> int:
        """Return how many slots of a worker all jobs occupy, not counting the job with the key ``but_by``."""
        slots = self._slots_at.get(worker)
        return sum(slots.values()) - slots.get(but_by, 0) if slots else 0

    def promise(self, job: JobBook, promised: dict[WorkerId, int]) -> None:
        """Change a job's slots; revoked slots stay occupied until the client acknowledges."""
        if promised == job.promised:
            return
        for worker, slots in job.promised.items():
            if promised.get(worker, 0) < slots:
                job.revoked[worker] = max(slots, job.revoked.get(worker, 0))
        job.promised = promised
        self._count(job)

    def _count(self, job: JobBook, *, is_over: bool = False) -> set[WorkerId]:
        """Count a job's occupied slots again; return the workers on which their number has changed."""
        now = {} if is_over else job.occupies()
        moved = {worker for worker in {*job.occupied, *now} if job.occupied.get(worker) != now.get(worker)}
        for worker in moved:
            here = self._slots_at.setdefault(worker, {})
            here.pop(job.key, None)
            if worker in now:
                here[job.key] = now[worker]
            if not here:
                del self._slots_at[worker]
        job.occupied = now
        return moved

    def renew(self, report: ClientReport, now_s: float) -> Renewal:
        """Apply a report, unless a newer report is known or the client has left.

        Jobs missing from the report have ended.
        """
        if report.client in self._departed:
            return Renewal()
        book = self._clients.get(report.client)
        if book is None:
            book = self._clients[report.client] = ClientBook(
                report.client, report.where, 0, now_s, report.node, report.keeper
            )
        book.seen_s = now_s
        if report.sequence <= book.sequence:
            return Renewal()
        book.sequence, book.later = report.sequence, report.later
        moved = self._acknowledge(book) if book.sent is None or report.acknowledged >= book.sent.number else set()
        changed: list[tuple[JobReport | None, JobReport | None]] = []
        for name in book.jobs.keys() - {said.demand.job for said in report.jobs}:
            ended = book.jobs.pop(name)
            changed.append((ended.said, None))
            moved |= self._end(ended)
        for said in report.jobs:
            job = book.jobs.get(said.demand.job)
            if job is None or job.said != said:
                changed.append((None if job is None else job.said, said))
                moved |= self._renew_job(book, said)
        return Renewal(
            is_wanted=any(_asked(old) != _asked(new) for old, new in changed),
            is_new=any(old is None for old, _ in changed),
            is_held=any(_held(old) != _held(new) for old, new in changed),
            left=frozenset(worker for old, new in changed for worker in _held(old).keys() - _held(new).keys()),
            moved=frozenset(moved),
        )

    def _acknowledge(self, book: ClientBook) -> set[WorkerId]:
        """Free a client's revoked slots after the client's acknowledgement; return the workers of these slots."""
        moved: set[WorkerId] = set()
        for job in book.jobs.values():
            if job.revoked:
                job.revoked = {}
                moved |= self._count(job)
        return moved

    def _renew_job(self, book: ClientBook, said: JobReport) -> set[WorkerId]:
        name = said.demand.job
        job = book.jobs.get(name)
        if job is None:
            key = f"{book.client}/{name}"
            book.jobs[name] = self.jobs_by_key[key] = job = JobBook(key, said, replace(said.demand, job=key))
            return self._count(job)
        before, job.said = job.said, said
        if before.demand != said.demand:
            job.demand = replace(said.demand, job=job.key)
        return self._count(job) if before.held != said.held else set()

    def _end(self, job: JobBook) -> set[WorkerId]:
        del self.jobs_by_key[job.key]
        return self._count(job, is_over=True)

    def depart(self, client: str) -> ClientBook | None:
        """Remove and return a client that left; a late report does not bring the client back."""
        self._departed.append(client)
        return self.forget(client)

    def forget(self, client: str) -> ClientBook | None:
        """Remove and return a client with all jobs; the client's next report brings the client back."""
        book = self._clients.pop(client, None)
        for job in () if book is None else book.jobs.values():
            self._end(job)
        return book

    def excuse(self, seconds: float) -> None:
        """Add ``seconds`` to every client's deadline for a report."""
        for book in self:
            book.seen_s += seconds


def _held(said: JobReport | None) -> dict[WorkerId, int]:
    return {} if said is None else said.held


def _asked(said: JobReport | None) -> Demand | None:
    """Round a demand's number of segments, so that not every finished segment causes a placement."""
    if said is None:
        return None
    count = len(said.demand.segments)
    step = 1 << max(0, count.bit_length() - EXACT_BITS)
    return replace(said.demand, segments=(count // step * step, step))


def job_of(key: str) -> str:
    """Return the client's own name for a job."""
    return key.partition("/")[2]


def client_of(key: str) -> str:
    """Return the client of a job."""
    return key.partition("/")[0]
