"""The jobs of all clients: what each wants, holds and was promised."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..placement.demand import Demand
from .messages import ClientReport, JobReport

__all__ = ["ClientBook", "Clients", "JobBook"]

DEPARTED_KEPT = 1024


@dataclass(slots=True)
class JobBook:
    """One job. ``key`` is unique among all clients; ``promised`` is what its client was last told it may use."""

    key: str
    demand: Demand
    held: dict[str, int] = field(default_factory=dict)
    promised: dict[str, int] = field(default_factory=dict)

    def occupies(self, worker: str) -> int:
        """How many of a worker's slots it may be using: what it holds, or may take up at any moment."""
        return max(self.held.get(worker, 0), self.promised.get(worker, 0))


@dataclass(slots=True)
class ClientBook:
    """One client and its jobs, by their own names."""

    client: str
    where: str
    turn: int
    seen_s: float
    jobs: dict[str, JobBook] = field(default_factory=dict)


class Clients:
    """Every client that has been heard of lately."""

    def __init__(self) -> None:
        self._clients: dict[str, ClientBook] = {}
        self._departed: deque[str] = deque(maxlen=DEPARTED_KEPT)

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[ClientBook]:
        return iter(self._clients.values())

    def get(self, client: str) -> ClientBook | None:
        """Return a client, None if it is unknown or expired."""
        return self._clients.get(client)

    def jobs(self) -> list[JobBook]:
        """Return every job, in order of its key."""
        return sorted((job for client in self for job in client.jobs.values()), key=lambda job: job.key)

    def renew(self, report: ClientReport, now_s: float) -> bool:
        """Take in a report, unless a newer one is known or its client has left; say whether any demand changed.

        A job that a report does not name is over.
        """
        if report.client in self._departed:
            return False
        book = self._clients.get(report.client)
        if book is None:
            book = self._clients[report.client] = ClientBook(report.client, report.where, 0, now_s)
        book.seen_s = now_s
        if report.turn <= book.turn:
            return False
        book.turn = report.turn
        before = {name: job.demand for name, job in book.jobs.items()}
        # What it was promised it may still take up, until it is told otherwise.
        promised = {name: job.promised for name, job in book.jobs.items()}
        book.jobs = {
            said.demand.job: _job(f"{report.client}/{said.demand.job}", said, promised.get(said.demand.job, {}))
            for said in report.jobs
        }
        return before != {name: job.demand for name, job in book.jobs.items()}

    def depart(self, client: str) -> None:
        """Forget a client that said goodbye; a report of its that is still on its way will not bring it back."""
        self._departed.append(client)
        self.forget(client)

    def forget(self, client: str) -> None:
        """Forget a client and all its jobs, until it is heard of again."""
        self._clients.pop(client, None)

    def expired(self, now_s: float, expiry_s: float) -> list[ClientBook]:
        """Return the clients that have not been heard of for too long."""
        return [book for book in self if now_s - book.seen_s > expiry_s]


def _job(key: str, said: JobReport, promised: dict[str, int]) -> JobBook:
    return JobBook(key, replace(said.demand, job=key), dict(said.held), dict(promised))
