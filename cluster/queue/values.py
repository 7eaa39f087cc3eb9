"""The values of a queue: commands, jobs and their states, and the results of runs."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, Self, runtime_checkable

from ...errors import REDACTED, Retry, redacted

DATABASES: Final = ("postgresql://", "postgres://")
"""The place of a queue in a database begins with one of these."""
_USER_AND_PASSWORD: Final = re.compile(r"(?<=://)([^:@/?]*):.*@")  # a password may have any character, even unescaped
_USAGE_END: Final = 1 << 62


def without_password(place: str) -> str:
    """Return a queue's place without a database's password."""
    return redacted(_USER_AND_PASSWORD.sub(rf"\1:{REDACTED}@", place) if place.startswith(DATABASES) else place)


def has_password(place: str) -> bool:
    """Return whether a queue's place holds a password."""
    return place != without_password(place)


class QueueState(Enum):
    """The state of a job in a queue."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"  #: trying again would not help
    PARKED = "parked"  #: the job failed too often; a user can retry it
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether the job has ended, and starts again only if a user retries it."""
        return self not in (QueueState.QUEUED, QueueState.RUNNING)


EDGES: Final[Mapping[QueueState, frozenset[QueueState]]] = {
    QueueState.QUEUED: frozenset(
        {
            QueueState.RUNNING,  # a driver claimed the job
            QueueState.CANCELLED,
        }
    ),
    QueueState.RUNNING: frozenset(
        {
            QueueState.QUEUED,  # the driver returned the job, the driver's lease ended, or another try may help
            QueueState.DONE,
            QueueState.FAILED,
            QueueState.PARKED,
            QueueState.CANCELLED,
        }
    ),
    QueueState.DONE: frozenset(),
    QueueState.FAILED: frozenset({QueueState.QUEUED}),  # a user retries the job, as in the next two states
    QueueState.PARKED: frozenset({QueueState.QUEUED}),
    QueueState.CANCELLED: frozenset({QueueState.QUEUED}),
}


@dataclass(frozen=True, slots=True)
class QueuedCommand:
    """A command of codecfleet. The queue does not interpret it."""

    arguments: tuple[str, ...]  #: the command's name and arguments
    folder: str  #: the folder in which the command runs
    variables: Mapping[str, str] = field(default_factory=dict)  #: environment variables besides the driver's own

    def to_text(self) -> str:
        """Return the command as JSON in ASCII, which can hold a file name that is not UTF-8."""
        return json.dumps([list(self.arguments), self.folder, dict(self.variables)])

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Return the command that ``to_text`` has written."""
        arguments, folder, variables = json.loads(text)
        return cls(tuple(arguments), folder, variables)


@runtime_checkable
class Submittable(Protocol):
    """A request that a command of codecfleet can carry out, such as a ``TranscodeSpec``."""

    def command_line(self) -> tuple[str, ...]:
        """Return the command with its arguments. Raises UsageError: the command would refuse them."""
        ...


class Usage(NamedTuple):
    """The resources that work has used, as far as its jobs reported them."""

    core_s: float = 0.0  #: time of segments that software decoded or encoded
    gpu_s: float = 0.0  #: time of segments that a GPU decoded or encoded
    written_bytes: int = 0  #: size of the outputs

    @classmethod
    def of(cls, told: object) -> Self:
        """Return the use that a job reported as JSON; zero if the value is malformed."""
        if not isinstance(told, list) or len(told) != len(cls._fields):
            return cls()
        try:
            found = cls(float(told[0]), float(told[1]), int(told[2]))
        except (TypeError, ValueError, OverflowError):
            return cls()
        return found if all(math.isfinite(each) and 0 <= each < _USAGE_END for each in found) else cls()


NO_USAGE: Final = Usage()


class JobClaim(NamedTuple):
    """A driver's right to run one attempt of a job. The job's next attempt ends this right."""

    job_id: str
    attempt: int
    submitted_s: float  #: distinguishes the job from a job with the same id in a removed queue


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job in a queue. Times are in seconds since 1970 on the store's clock."""

    job_id: str
    number: int  #: the job's place in the order of submission
    command: QueuedCommand
    tenant: str
    priority: int  #: higher runs first
    due_s: float | None  #: when the job should be done; this affects only the order of jobs
    state: QueueState = QueueState.QUEUED
    submitted_s: float
    attempt: int = 0  #: how many times the job was claimed
    failures: int = 0  #: how many attempts failed although another try might help
    losses: int = 0  #: how many attempts ended because the driver's lease ended
    driver: str = ""  #: the driver that runs the job, or ran it last
    lease_ends_s: float = 0.0  #: when the driver loses the job, unless it renews the lease
    waits_until_s: float = 0.0  #: when the job may be claimed again; after a first failure, other drivers need not wait
    began_s: float | None = None  #: when the last attempt began
    ended_s: float | None = None  #: when the job ended
    is_cancelling: bool = False  #: whether the driver has to stop the job
    exit_code: int | None = None  #: the exit code of the last attempt that ended by itself
    error: str = ""  #: the class of the last attempt's error
    message: str = ""  #: what went wrong
    next_step: str = ""  #: what the user can do about it
    core_s: float = 0.0  #: the use of all attempts of the job, as in ``Usage``
    gpu_s: float = 0.0
    written_bytes: int = 0
    cost: float = 0.0  #: the cost of all attempts, by the policy's prices when each attempt ended

    @property
    def claim(self) -> JobClaim:
        """The claim of the driver that runs the job."""
        return JobClaim(self.job_id, self.attempt, self.submitted_s)

    def to_json(self) -> dict[str, Any]:
        """Return the job as JSON values."""
        return {
            "job": self.job_id,
            "state": self.state.value,
            "command": list(self.command.arguments),
            "folder": self.command.folder,
            "tenant": self.tenant,
            "priority": self.priority,
            "due_utc_s": self.due_s,
            "attempts": self.attempt,
            "failures": self.failures,
            "losses": self.losses,
            "driver": self.driver,
            "submitted_utc_s": self.submitted_s,
            "started_utc_s": self.began_s,
            "ended_utc_s": self.ended_s,
            "is_cancelling": self.is_cancelling,
            "exit_code": self.exit_code,
            "error": self.error,
            "message": self.message,
            "next_step": self.next_step,
            "core_s": self.core_s,
            "gpu_s": self.gpu_s,
            "written_bytes": self.written_bytes,
            "cost": self.cost,
        }


class TenantUse(NamedTuple):
    """A tenant's use of a queue's drivers."""

    running: int = 0  #: jobs that run now
    used_s: float = 0.0  #: time of the tenant's attempts in the policy's window, plus ``CLAIM_S`` for each attempt
    used: Usage = NO_USAGE  #: what the attempts that ended in the window used


class TokenHolder(NamedTuple):
    """The tenant to whom a token belongs."""

    tenant: str
    is_revoked: bool


class UsageRow(NamedTuple):
    """The use of a tenant or a job in a queue."""

    tenant: str
    job_id: str  #: the job; "" if the row counts all jobs of the tenant
    attempts: int
    run_s: float  #: how long the attempts ran, all together
    core_s: float
    gpu_s: float
    written_bytes: int
    cost: float


class QueueFigures(NamedTuple):
    """The numbers of a queue's jobs, for metrics."""

    jobs: Mapping[QueueState, int]
    #: the longest time since a queued job was submitted or, if it has run, last began to run; 0 if none is queued
    oldest_s: float


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How an attempt ended."""

    exit_code: int | None  #: the exit code as a shell reports it; None if the driver stopped the job and hands it back
    error: str = ""  #: the class of the program's error
    message: str = ""
    next_step: str = ""
    retry: Retry = Retry.NEVER  #: whether the error allows another try
    used: Usage = NO_USAGE
    #: where the record of the published output is, for another attempt to find; "" for none
    record: str = ""


class DriverOrder(Enum):
    """The store's answer to a driver that renews a lease."""

    KEEP = "keep"  #: the lease is renewed
    CANCEL = "cancel"  #: the lease is renewed, and the driver must stop the job
    LOST = "lost"  #: the job is no longer the driver's: the lease ended, or the queue was emptied
