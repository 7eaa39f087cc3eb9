"""The jobs of all clients: what each wants, holds and was promised."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..placement.demand import Demand
from .messages import ClientReport

__all__ = ["ClientBook", "Clients", "JobBook"]


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
        """Take in a report; False if it is older than what is known. A job that it does not name is over."""
        book = self._clients.get(report.client)
        if book is None:
            book = self._clients[report.client] = ClientBook(report.client, report.where, 0, now_s)
        book.seen_s = now_s
        if report.turn <= book.turn:
            return False
        book.turn = report.turn
        jobs = {}
        for said in report.jobs:
            name = said.demand.job
            key = f"{report.client}/{name}"
            known = book.jobs.get(name)
            # What it was promised before it knew of the last answer, it may still take up: until that is answered.
            promised = known.promised if known is not None else {}
            jobs[name] = JobBook(key, replace(said.demand, job=key), dict(said.held), dict(promised))
        book.jobs = jobs
        return True

    def forget(self, client: str) -> bool:
        """Forget a client and all its jobs; False if nobody knew it."""
        return self._clients.pop(client, None) is not None

    def expired(self, now_s: float, expiry_s: float) -> list[str]:
        """Return the clients that have not been heard of for too long."""
        return [book.client for book in self if now_s - book.seen_s > expiry_s]
