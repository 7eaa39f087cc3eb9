"""The interface of a queue's stores, and its implementation in SQL; databases differ only in their transactions.

Each call is one transaction, and no two transactions run at the same time. A call first takes back the jobs whose lease
has ended, and it measures all times with the store's clock.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple, Protocol

from ...errors import NoSuchJob, QueueUnavailable, UsageError, WorkError
from .deciding import (
    CLAIM_S,
    admit,
    allow,
    cancelled,
    charged,
    chosen,
    claimed,
    ended,
    expired,
    identified,
    retried,
    same,
)
from .tenants import QueuePolicy, Tenant, TokenState, new_token, policy_of_text, token_hash
from .values import (
    NO_USAGE,
    DriverOrder,
    JobClaim,
    QueuedCommand,
    QueuedJob,
    QueueFigures,
    QueueState,
    RunEnd,
    TenantUse,
    TokenHolder,
    Usage,
    UsageRow,
)

OUTPUT_MAX: Final = 256 << 10
"""How many characters of a job's output are kept; older ones are dropped."""
_FIELDS: Final = tuple(each.name for each in fields(QueuedJob))
_COLUMNS: Final = tuple(name for name in _FIELDS if name != "number")
_SELECT: Final = f"SELECT {', '.join(_FIELDS)} FROM codecfleet_jobs "  # noqa: S608 - only names of columns, as below
_INSERT: Final = (
    f"INSERT INTO codecfleet_jobs ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) RETURNING number"  # noqa: S608
)
_UPDATE: Final = f"UPDATE codecfleet_jobs SET {', '.join(f'{name} = ?' for name in _COLUMNS)} WHERE number = ?"  # noqa: S608
_WAITING: Final = _SELECT + (  # noqa: S608
    "WHERE number IN (SELECT number FROM (SELECT number, "
    "row_number() OVER (PARTITION BY tenant ORDER BY priority DESC, due_s IS NULL, due_s, number) AS place "
    "FROM codecfleet_jobs WHERE state = 'queued' "
    "AND (waits_until_s <= ? OR (exit_code >= ? AND failures = 1 AND driver <> ?))) AS waiting WHERE place <= ?)"
)
"""The first jobs of each tenant, in the order of ``deciding._own_order``.

After a first failure, another driver may try a job at once.
"""
_USES: Final = (
    f"SELECT tenant, sum(runs), sum(ended_s - CASE WHEN began_s > ? THEN began_s ELSE ? END + {CLAIM_S}), "  # noqa: S608
    "sum(core_s), sum(gpu_s), sum(written_bytes) FROM ("
    "SELECT tenant, 0 AS runs, began_s, ended_s, core_s, gpu_s, written_bytes FROM codecfleet_runs WHERE ended_s > ? "
    "UNION ALL SELECT tenant, 1, began_s, ?, 0, 0, 0 FROM codecfleet_jobs WHERE state = 'running') AS attempts "
    "GROUP BY tenant"
)
"""Each tenant's use: how many attempts are running; the time of all attempts in the window, with ``CLAIM_S`` added for
each; and the resources of the attempts that ended in the window.
"""
_USAGE: Final = (
    "SELECT tenant, {job}, count(*), sum(ended_s - began_s), sum(core_s), sum(gpu_s), sum(written_bytes), sum(cost) "
    "FROM codecfleet_runs WHERE ended_s > ? GROUP BY 1, 2 ORDER BY 1, 2"
)
_OLDEST: Final = "SELECT min(coalesce(began_s, submitted_s)) FROM codecfleet_jobs WHERE state = ?"
_RUN: Final = "INSERT INTO codecfleet_runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_REVOKE: Final = "UPDATE codecfleet_tokens SET revoked_s = ? WHERE tenant = ? AND revoked_s IS NULL"
_WAITING_OF: Final = "SELECT count(*) FROM codecfleet_jobs WHERE tenant = ? AND state IN ('queued', 'running')"
_POLICY: Final = "policy"


def storable(value: object) -> object:
    """Return a value that databases can hold: in a string, NUL is replaced, and surrogates are escaped."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="backslashreplace").decode()


class Printed(NamedTuple):
    """A part of a job's output."""

    text: str
    ends: int  # where the part ends, in characters from the beginning of the job's output


class Transaction(Protocol):
    """A transaction of a database, and the store's time at its beginning."""

    @property
    def now_s(self) -> float:
        """Seconds since 1970 on the store's clock."""
        ...

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement whose values are marked by ``?``, and return its rows."""
        ...


class JobStore(ABC):
    """A queue's jobs. Calls block, and may be made from any thread.

    Every method may raise QueueUnavailable; methods with a job's id raise NoSuchJob if the queue has no such job.
    """

    option = ""  #: the command-line option that names this queue, for messages

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """Begin an exclusive transaction; its changes take effect when the block ends without an error."""

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
        queued_max: int | None = None,
        token: str | None = None,
        user: str = "",
    ) -> QueuedJob:
        """Put a job into the queue, or return the job that already has this id and command.

        If ``tenant`` is "", the ``token`` decides who the tenant is; in a queue without tokens, the tenant is ``user``.

        Raises:
            QueueFull: as many jobs of the tenant are queued or running as the policy or ``queued_max`` allows.
            TenantRefused: the token is not valid, or missing; or the priority is above the tenant's limit.
            UsageError: the id belongs to another command or tenant.
        """
        with self._current() as at:
            tenant = _identified(at, tenant, token) or user
            if found := _found(at.rows(_SELECT + "WHERE job_id = ?", job_id)):
                return same(found[0], command, tenant, self.option)
            self._admit(at, tenant, queued_max)
            allow(priority, tenant, _policy(at).quota(tenant))
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

    def _admit(self, at: Transaction, tenant: str, queued_max: int | None = None) -> None:
        most = _policy(at).quota(tenant).queued_max
        ((waiting,),) = at.rows(_WAITING_OF, tenant)
        admit(waiting, tenant, most if queued_max is None else min(most, queued_max), self.option)

    def claim(self, driver: str, most: int, lease_s: float) -> list[QueuedJob]:
        """Lease the next jobs, at most ``most``, to a driver for ``lease_s``."""
        with self._current() as at:
            if not (waiting := _found(at.rows(_WAITING, at.now_s, WorkError.exit_code, driver, most))):
                return []
            policy = _policy(at)
            found = chosen(waiting, _uses(at, policy.window_s), policy, most)
            return [_saved(at, claimed(job, driver, at.now_s, lease_s)) for job in found]

    def renew(self, claims: Sequence[JobClaim], lease_s: float) -> dict[JobClaim, DriverOrder]:
        """Renew the leases of claims that still hold; return an order to the driver for each claim."""
        with self._current() as at:
            return {claim: self._renewed(at, claim, lease_s) for claim in claims}

    def _renewed(self, at: Transaction, claim: JobClaim, lease_s: float) -> DriverOrder:
        if (job := _held(at, claim)) is None:
            return DriverOrder.LOST
        _saved(at, replace(job, lease_ends_s=at.now_s + lease_s))
        return DriverOrder.CANCEL if job.is_cancelling else DriverOrder.KEEP

    def end(self, claim: JobClaim, end: RunEnd) -> QueuedJob | None:
        """Record the end of an attempt, and return the job; None if the claim no longer holds."""
        with self._current() as at:
            job = _held(at, claim)
            return None if job is None else _run_over(at, job, ended(job, end, at.now_s), at.now_s, end.used)

    def append(self, claim: JobClaim, text: str) -> None:
        """Append to the output of a job if the claim still holds."""
        with self._current() as at:
            if text and _held(at, claim) is not None:
                starts = _end_of_output(at, claim.job_id)
                at.rows("INSERT INTO codecfleet_output VALUES (?, ?, ?)", claim.job_id, starts, text[-OUTPUT_MAX:])
                # A part that is only partly needed stays whole; ``output`` cuts it.
                oldest = _end_of_output(at, claim.job_id) - OUTPUT_MAX
                old = "DELETE FROM codecfleet_output WHERE job_id = ? AND starts + length(text) <= ?"
                at.rows(old, claim.job_id, oldest)

    def output(self, job_id: str, after: int = 0) -> Printed:
        """Return a job's output, as far as it is kept, from ``after`` on (0, or ``ends`` of an earlier part)."""
        with self._current() as at:
            self._named(at, job_id)
            pieces = at.rows(
                "SELECT text FROM codecfleet_output WHERE job_id = ? AND starts >= ? ORDER BY starts", job_id, after
            )
            return Printed("".join(text for (text,) in pieces)[-OUTPUT_MAX:], max(after, _end_of_output(at, job_id)))

    def job(self, job_id: str) -> QueuedJob:
        """Return the job with this id."""
        with self._current() as at:
            return self._named(at, job_id)

    def jobs(self, states: Iterable[QueueState] = tuple(QueueState)) -> list[QueuedJob]:
        """Return the jobs in these states, in the order of submission."""
        wanted = [each.value for each in states]
        marks = ", ".join("?" * len(wanted))
        with self._current() as at:
            return _found(at.rows(_SELECT + f"WHERE state IN ({marks}) ORDER BY number", *wanted))

    def cancel(self, job_id: str) -> QueuedJob:
        """Cancel a job; a running job ends when its driver has stopped it."""
        with self._current() as at:
            return _saved(at, cancelled(self._named(at, job_id), at.now_s))

    def retry(self, job_id: str) -> QueuedJob:
        """Requeue a job that failed, was parked or was cancelled.

        Raises UsageError: the job is queued, running or done; QueueFull: see ``submit``.
        """
        with self._current() as at:
            job = retried(self._named(at, job_id))
            self._admit(at, job.tenant)
            return _saved(at, job)

    def prioritize(self, job_id: str, priority: int) -> QueuedJob:
        """Change a job's priority, which counts whenever the job is queued. Raises TenantRefused: see ``submit``."""
        with self._current() as at:
            job = self._named(at, job_id)
            allow(priority, job.tenant, _policy(at).quota(job.tenant))
            return _saved(at, replace(job, priority=priority))

    def set_policy(self, policy: QueuePolicy) -> None:
        """Replace the queue's policy for all programs that use the queue; queued and running jobs stay."""
        with self._current() as at:
            at.rows("DELETE FROM codecfleet_facts WHERE name = ?", _POLICY)
            at.rows("INSERT INTO codecfleet_facts VALUES (?, ?)", _POLICY, policy.to_text())

    def tenants(self) -> list[Tenant]:
        """Return the tenants that have queued jobs, recent use, a token or a table in the policy, sorted by name."""
        with self._current() as at:
            policy = _policy(at)
            uses = _uses(at, policy.window_s)
            queued = dict(
                at.rows("SELECT tenant, count(*) FROM codecfleet_jobs WHERE state = 'queued' GROUP BY tenant")
            )
            tokens = {
                tenant: TokenState.VALID if valid else TokenState.REVOKED
                for tenant, valid in at.rows(
                    "SELECT tenant, count(*) - count(revoked_s) FROM codecfleet_tokens GROUP BY tenant"
                )
            }
            return [
                Tenant(
                    name,
                    policy.quota(name),
                    uses.get(name, TenantUse()),
                    queued.get(name, 0),
                    tokens.get(name, TokenState.NONE),
                )
                for name in sorted({*policy.tenants, *uses, *queued, *tokens})
            ]

    def make_token(self, tenant: str) -> str:
        """Return a new token of a tenant, which replaces an earlier one; the store keeps only its hash.

        From the first token on, the queue takes jobs only with a token.
        """
        token = new_token()
        with self._current() as at:
            at.rows(_REVOKE, at.now_s, tenant)
            at.rows("INSERT INTO codecfleet_tokens VALUES (?, ?, ?, NULL)", token_hash(token), tenant, at.now_s)
        return token

    def revoke_token(self, tenant: str) -> None:
        """Refuse new jobs with a tenant's token; old jobs stay. Raises UsageError: the tenant has no valid token."""
        with self._current() as at:
            if not at.rows(f"{_REVOKE} RETURNING tenant", at.now_s, tenant):
                step = f"`codecfleet tenants list{self.option}` shows who has one."
                raise UsageError(f"the queue has no valid token of {tenant}", step)

    def usage(self, since_s: float | None = None, *, by_job: bool = False) -> list[UsageRow]:
        """Return the use of all attempts that ended in the last ``since_s`` (default: ever), by tenant or by job."""
        job = "job_id" if by_job else "''"
        with self._current() as at:
            begins_s = 0.0 if since_s is None else at.now_s - since_s
            rows = at.rows(_USAGE.format(job=job), begins_s)
        return [UsageRow._make((*row[:-2], int(row[-2]), row[-1])) for row in rows]

    def figures(self) -> QueueFigures:
        """Return the number of jobs in each state, and how long queued jobs have waited (``QueueFigures.oldest_s``)."""
        with self._current() as at:
            counts = dict(at.rows("SELECT state, count(*) FROM codecfleet_jobs GROUP BY state"))
            ((oldest_s,),) = at.rows(_OLDEST, QueueState.QUEUED.value)
            waited_s = 0.0 if oldest_s is None else max(0.0, at.now_s - oldest_s)
            return QueueFigures({state: counts.get(state.value, 0) for state in QueueState}, waited_s)

    def _named(self, at: Transaction, job_id: str) -> QueuedJob:
        if not (found := _found(at.rows(_SELECT + "WHERE job_id = ?", job_id))):
            raise NoSuchJob(f"the queue has no job {job_id}", f"`codecfleet jobs list{self.option}` shows its jobs.")
        return found[0]

    @contextmanager
    def _current(self) -> Iterator[Transaction]:
        """Begin a transaction that first takes back the running jobs whose lease has ended."""
        with self.transaction() as at:
            running = QueueState.RUNNING.value
            for job in _found(at.rows(_SELECT + "WHERE state = ? AND lease_ends_s <= ?", running, at.now_s)):
                _run_over(at, job, expired(job, at.now_s), job.lease_ends_s)
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


def _run_over(at: Transaction, job: QueuedJob, after: QueuedJob, ended_s: float, used: Usage = NO_USAGE) -> QueuedJob:
    """Record an ended attempt of ``job``, and save the job's state ``after`` the attempt."""
    began_s, cost = job.began_s or 0.0, _cost(at, used)
    at.rows(_RUN, job.job_id, job.tenant, began_s, max(began_s, ended_s), *used, cost)
    return _saved(at, charged(after, used, cost))


def _cost(at: Transaction, used: Usage) -> float:
    try:
        return _policy(at).prices.cost(used)
    except QueueUnavailable:  # another version wrote the policy: the use is recorded without a cost
        return 0.0


def _identified(at: Transaction, declared: str, token: str | None) -> str:
    ((tokens,),) = at.rows("SELECT count(*) FROM codecfleet_tokens")
    found = "SELECT tenant, revoked_s IS NOT NULL FROM codecfleet_tokens WHERE sha256 = ?"
    rows = [] if token is None else at.rows(found, token_hash(token))
    holder = TokenHolder(rows[0][0], bool(rows[0][1])) if rows else None
    return identified(declared, token, holder, is_open=not tokens)


def _policy(at: Transaction) -> QueuePolicy:
    found = at.rows("SELECT value FROM codecfleet_facts WHERE name = ?", _POLICY)
    return policy_of_text(found[0][0] if found else "")


def _uses(at: Transaction, window_s: float) -> dict[str, TenantUse]:
    begins_s = at.now_s - window_s
    rows = at.rows(_USES, begins_s, begins_s, begins_s, at.now_s)
    return {
        tenant: TenantUse(int(runs), float(used_s), Usage(core_s, gpu_s, int(written_bytes)))
        for tenant, runs, used_s, core_s, gpu_s, written_bytes in rows
    }


def _held(at: Transaction, claim: JobClaim) -> QueuedJob | None:
    running = QueueState.RUNNING.value
    found = at.rows(_SELECT + "WHERE job_id = ? AND attempt = ? AND submitted_s = ? AND state = ?", *claim, running)
    return next(iter(_found(found)), None)


def _end_of_output(at: Transaction, job_id: str) -> int:
    rows = at.rows("SELECT coalesce(max(starts + length(text)), 0) FROM codecfleet_output WHERE job_id = ?", job_id)
    return int(rows[0][0])
