"""What every store of a queue promises, and its implementation in SQL; only transactions differ between databases.

Each call is one transaction, and no two transactions run at the same time. It first queues the jobs again whose lease
has ended, and it measures all times with the store's clock.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple, Protocol

from ...errors import NoSuchJob, WorkError
from .deciding import admit, cancelled, claimed, ended, expired, retried, same
from .values import DriverOrder, JobClaim, QueuedCommand, QueuedJob, QueueState, RunEnd

OUTPUT_MAX: Final = 256 << 10
"""How many of the last characters that a job prints are kept."""
SCHEMA: Final = 1
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS codecfleet_facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS codecfleet_jobs (
    number {identity},
    job_id TEXT NOT NULL UNIQUE,
    command TEXT NOT NULL,
    tenant TEXT NOT NULL,
    priority INTEGER NOT NULL,
    due_s DOUBLE PRECISION,
    state TEXT NOT NULL,
    submitted_s DOUBLE PRECISION NOT NULL,
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    driver TEXT NOT NULL,
    lease_ends_s DOUBLE PRECISION NOT NULL,
    waits_until_s DOUBLE PRECISION NOT NULL,
    began_s DOUBLE PRECISION,
    ended_s DOUBLE PRECISION,
    is_cancelling INTEGER NOT NULL,
    exit_code INTEGER,
    error TEXT NOT NULL,
    message TEXT NOT NULL,
    next_step TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS codecfleet_order ON codecfleet_jobs (state, priority DESC, due_s, number);
CREATE TABLE IF NOT EXISTS codecfleet_output (
    job_id TEXT NOT NULL, starts BIGINT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (job_id, starts)
);
"""


def tables(identity: str) -> list[str]:
    """Return the statements that create the tables; ``identity`` is the type of a column that counts rows."""
    return [each for each in _TABLES.format(identity=identity).split(";") if each.strip()]


_FIELDS: Final = tuple(each.name for each in fields(QueuedJob))
_COLUMNS: Final = tuple(name for name in _FIELDS if name != "number")
_SELECT: Final = f"SELECT {', '.join(_FIELDS)} FROM codecfleet_jobs "  # noqa: S608 - names of columns, as below
_INSERT: Final = (
    f"INSERT INTO codecfleet_jobs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) RETURNING number"  # noqa: S608
)
_UPDATE: Final = f"UPDATE codecfleet_jobs SET {', '.join(f'{name} = ?' for name in _COLUMNS)} WHERE number = ?"  # noqa: S608
_CLAIM: Final = _SELECT + (
    "WHERE state = ? AND (waits_until_s <= ? OR (exit_code >= ? AND failures = 1 AND driver <> ?)) "
    "ORDER BY priority DESC, due_s IS NULL, due_s, number LIMIT ?"
)
"""The order of a queue: by priority, due time and age. After a first failure, another driver may try it at once."""


def storable(value: object) -> object:
    """Return a value as databases can hold it: names of files that are not UTF-8 are escaped, as NUL is."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="backslashreplace").decode()


class Printed(NamedTuple):
    """A part of what a job has printed."""

    text: str
    ends: int  # where the part ends, in characters from the beginning of the job's output


class Transaction(Protocol):
    """A transaction of a database, and the store's time at its beginning."""

    @property
    def now_s(self) -> float:
        """Return seconds since 1970 on the store's clock."""
        ...

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement whose values are marked by ``?``, and return its rows."""
        ...


class JobStore(ABC):
    """A queue's jobs. Calls block, and may be made from any thread.

    Every method may raise QueueUnavailable; those with a job's id raise NoSuchJob if there is no such job.
    """

    option = ""  #: the option of commands that names this queue

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a transaction, alone in the store; it takes effect when the block ends without an error."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection. Idempotent."""

    def submit(
        self,
        job_id: str,
        command: QueuedCommand,
        *,
        tenant: str,
        priority: int,
        due_in_s: float | None,
        queued_max: int,
    ) -> QueuedJob:
        """Put a job into the queue, or return the one that has this id and command.

        Raises:
            QueueFull: ``queued_max`` jobs of the tenant are queued or running.
            UsageError: the id belongs to another command.
        """
        with self._current() as at:
            if found := _found(at.rows(_SELECT + "WHERE job_id = ?", job_id)):
                return same(found[0], command, self.option)
            over = [state.value for state in QueueState if not state.is_over]
            ((waiting,),) = at.rows(
                "SELECT count(*) FROM codecfleet_jobs WHERE tenant = ? AND state IN (?, ?)", tenant, *over
            )
            admit(waiting, tenant, queued_max, self.option)
            job = QueuedJob(
                job_id=job_id,
                number=0,
                command=command,
                tenant=tenant,
                priority=priority,
                due_s=None if due_in_s is None else at.now_s + due_in_s,
                submitted_s=at.now_s,
            )
            ((number,),) = at.rows(_INSERT, *_values(job))
            return replace(job, number=number)

    def claim(self, driver: str, most: int, lease_s: float) -> list[QueuedJob]:
        """Give a driver the next jobs, ``most`` at most, for ``lease_s``."""
        with self._current() as at:
            found = _found(at.rows(_CLAIM, QueueState.QUEUED.value, at.now_s, WorkError.exit_code, driver, most))
            return [_saved(at, claimed(job, driver, at.now_s, lease_s)) for job in found]

    def renew(self, claims: Sequence[JobClaim], lease_s: float) -> dict[JobClaim, DriverOrder]:
        """Renew the leases of claims that still hold, and return what their driver shall do."""
        with self._current() as at:
            return {claim: self._renewed(at, claim, lease_s) for claim in claims}

    def _renewed(self, at: Transaction, claim: JobClaim, lease_s: float) -> DriverOrder:
        if (job := _held(at, claim)) is None:
            return DriverOrder.LOST
        _saved(at, replace(job, lease_ends_s=at.now_s + lease_s))
        return DriverOrder.CANCEL if job.is_cancelling else DriverOrder.KEEP

    def end(self, claim: JobClaim, end: RunEnd) -> QueuedJob | None:
        """Note the end of an attempt, and return its job; None if the claim no longer holds."""
        with self._current() as at:
            job = _held(at, claim)
            return None if job is None else _saved(at, ended(job, end, at.now_s))

    def append(self, claim: JobClaim, text: str) -> None:
        """Keep what a job has printed, unless the claim no longer holds."""
        with self._current() as at:
            if text and _held(at, claim) is not None:
                starts = _end_of_output(at, claim.job_id)
                at.rows("INSERT INTO codecfleet_output VALUES (?, ?, ?)", claim.job_id, starts, text[-OUTPUT_MAX:])
                # A part that is kept in part stays whole: ``output`` cuts it.
                oldest = _end_of_output(at, claim.job_id) - OUTPUT_MAX
                old = "DELETE FROM codecfleet_output WHERE job_id = ? AND starts + length(text) <= ?"
                at.rows(old, claim.job_id, oldest)

    def output(self, job_id: str, after: int = 0) -> Printed:
        """Return what a job has printed after this many characters, as far as it is kept."""
        with self._current() as at:
            self._named(at, job_id)
            pieces = at.rows(
                "SELECT text FROM codecfleet_output WHERE job_id = ? AND starts >= ? ORDER BY starts", job_id, after
            )
            return Printed("".join(text for (text,) in pieces)[-OUTPUT_MAX:], max(after, _end_of_output(at, job_id)))

    def job(self, job_id: str) -> QueuedJob:
        """Return a job."""
        with self._current() as at:
            return self._named(at, job_id)

    def jobs(self, states: Iterable[QueueState] = tuple(QueueState)) -> list[QueuedJob]:
        """Return the jobs in these states, as submitted."""
        wanted = [each.value for each in states]
        marks = ", ".join("?" * len(wanted))
        with self._current() as at:
            return _found(at.rows(_SELECT + f"WHERE state IN ({marks}) ORDER BY number", *wanted))

    def cancel(self, job_id: str) -> QueuedJob:
        """Cancel a job; a running one ends once its driver has stopped it."""
        with self._current() as at:
            return _saved(at, cancelled(self._named(at, job_id), at.now_s))

    def retry(self, job_id: str) -> QueuedJob:
        """Queue a job again. Raises UsageError: it is queued, running or done."""
        with self._current() as at:
            return _saved(at, retried(self._named(at, job_id)))

    def prioritize(self, job_id: str, priority: int) -> QueuedJob:
        """Change a job's priority, which counts whenever it is queued."""
        with self._current() as at:
            return _saved(at, replace(self._named(at, job_id), priority=priority))

    def _named(self, at: Transaction, job_id: str) -> QueuedJob:
        if not (found := _found(at.rows(_SELECT + "WHERE job_id = ?", job_id))):
            raise NoSuchJob(f"the queue has no job {job_id}", f"`codecfleet jobs list{self.option}` shows its jobs.")
        return found[0]

    @contextmanager
    def _current(self) -> Iterator[Transaction]:
        """Begin a transaction in which the lease of every running job holds."""
        with self.transaction() as at:
            running = QueueState.RUNNING.value
            for job in _found(at.rows(_SELECT + "WHERE state = ? AND lease_ends_s <= ?", running, at.now_s)):
                _saved(at, expired(job, at.now_s))
            yield at


def _found(rows: Iterable[tuple[Any, ...]]) -> list[QueuedJob]:
    return [_job(dict(zip(_FIELDS, row, strict=True))) for row in rows]


def _job(values: dict[str, Any]) -> QueuedJob:
    command, state = QueuedCommand.of_text(values.pop("command")), QueueState(values.pop("state"))
    return QueuedJob(command=command, state=state, is_cancelling=bool(values.pop("is_cancelling")), **values)


def _values(job: QueuedJob) -> list[object]:
    own = {"command": job.command.to_text(), "state": job.state.value, "is_cancelling": int(job.is_cancelling)}
    return [own.get(name, getattr(job, name)) for name in _COLUMNS]


def _saved(at: Transaction, job: QueuedJob) -> QueuedJob:
    at.rows(_UPDATE, *_values(job), job.number)
    return job


def _held(at: Transaction, claim: JobClaim) -> QueuedJob | None:
    running = QueueState.RUNNING.value
    found = at.rows(_SELECT + "WHERE job_id = ? AND attempt = ? AND submitted_s = ? AND state = ?", *claim, running)
    return next(iter(_found(found)), None)


def _end_of_output(at: Transaction, job_id: str) -> int:
    rows = at.rows("SELECT coalesce(max(starts + length(text)), 0) FROM codecfleet_output WHERE job_id = ?", job_id)
    return int(rows[0][0])
