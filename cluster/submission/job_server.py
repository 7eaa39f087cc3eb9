"""A cluster's job server, through Ray's own client."""

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

from ...errors import FleetUnavailable, UsageError
from ..ray.private.words import LAST_LOGS, NOT_FOUND
from ..ray.public.job_client import TokenRefused, answer_of_server, open_job_client
from .entry import MARK, Entry

T = TypeVar("T")

_SIGN_IN: Final = "Copy the head's ~/.ray/auth_token here, or set RAY_AUTH_TOKEN to what is in it."
_REACH: Final = "Give the address of its dashboard, http://HEAD:8265, and check that it answers there."
_MS_PER_S: Final = 1000


def job_server_address(named: str | None) -> str:
    """Return the address of the job server: as named, or as Ray's own commands find it in the environment.

    Raises:
        UsageError: none is named.
    """
    found = named or os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS", "")
    if not found:
        raise UsageError("no job server is named", "Give --address http://HEAD:8265, or set RAY_API_SERVER_ADDRESS.")
    return found


class JobPhase(Enum):
    """Where a Ray job stands, in Ray's words."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"

    @property
    def is_over(self) -> bool:
        """Whether nothing follows."""
        return self not in (JobPhase.PENDING, JobPhase.RUNNING)


@dataclass(frozen=True, slots=True)
class RayJob:
    """A job as its server knows it.

    ``command`` is ours, "" for a job of others. ``message`` says why it stands where it does; ``exit_code`` is its
    program's, None where none has ended. Times are seconds since 1970, None before.
    """

    job_id: str
    phase: JobPhase
    command: str = ""
    message: str = ""
    exit_code: int | None = None
    started_utc_s: float | None = None
    ended_utc_s: float | None = None


class JobServer(ABC):
    """What we ask of a job server. Every method may raise FleetUnavailable, where it does not answer or let us in."""

    address: str

    @abstractmethod
    def submit(self, job_id: str, entry: Entry, package: Path | None) -> None:
        """Have ``entry`` run under this name, with the code of ``package`` if it is given."""

    @abstractmethod
    def job(self, job_id: str) -> RayJob:
        """Return a job.

        Raises:
            UsageError: there is none of this name.
        """

    @abstractmethod
    def jobs(self) -> list[RayJob]:
        """Return our jobs, the newest last."""

    @abstractmethod
    def stop(self, job_id: str) -> bool:
        """Have a job cancelled; return whether it was running.

        Raises:
            UsageError: there is none of this name.
        """

    @abstractmethod
    def printed(self, job_id: str) -> str:
        """Return what a job has printed so far.

        Raises:
            UsageError: there is none of this name.
        """

    @abstractmethod
    def log(self, job_id: str) -> AsyncIterator[str]:
        """Yield what a job has printed so far, from its beginning, and what it prints, until it ends.

        Raises:
            FleetUnavailable: the connection ended before the job.
        """


class RayJobServer(JobServer):
    """The job server of a real cluster, at the address of its dashboard.

    Raises:
        UsageError: the address makes no sense.
        FleetUnavailable: it does not answer, or does not let us in.
    """

    def __init__(self, address: str) -> None:
        if not address.startswith(("http://", "https://")):
            raise UsageError(f"{address} is not the address of a job server", _REACH)
        self.address = address.rstrip("/")
        self._client = self._asked(lambda: open_job_client(self.address))

    def submit(self, job_id: str, entry: Entry, package: Path | None) -> None:
        runtime_env: dict[str, Any] = {} if package is None else {"py_modules": [str(package)]}
        self._asked(
            lambda: self._client.submit_job(
                entrypoint=entry.shell_line, submission_id=job_id, runtime_env=runtime_env, metadata=entry.metadata
            )
        )

    def job(self, job_id: str) -> RayJob:
        return _job(self._of(job_id, lambda: self._client.get_job_info(job_id)))

    def jobs(self) -> list[RayJob]:
        found = (_job(each) for each in self._asked(self._client.list_jobs) if MARK in (each.metadata or {}))
        return sorted(found, key=lambda job: job.started_utc_s or 0.0)

    def stop(self, job_id: str) -> bool:
        return self._of(job_id, lambda: self._client.stop_job(job_id))

    def printed(self, job_id: str) -> str:
        return self._of(job_id, lambda: self._client.get_job_logs(job_id))

    async def log(self, job_id: str) -> AsyncIterator[str]:
        import aiohttp  # noqa: PLC0415 - a part of Ray's client

        try:
            async for text in self._client.tail_job_logs(job_id):
                yield text
        except (aiohttp.ClientError, RuntimeError, OSError) as error:
            raise FleetUnavailable(f"the log of job {job_id} broke off: {error}", _REACH) from None

    def _of(self, job_id: str, ask: Callable[[], T]) -> T:
        try:
            return self._asked(ask)
        except FleetUnavailable as error:
            if NOT_FOUND not in error.message:
                raise
        raise UsageError(f"{self.address} has no job {job_id}", "`codecfleet jobs ray --address URL` lists them.")

    def _asked(self, ask: Callable[[], T]) -> T:
        """Ask Ray's client; its errors are mapped here, once."""
        try:
            return answer_of_server(ask)
        except TokenRefused:
            message = f"the job server at {self.address} did not let us in: the token is missing or wrong"
            raise FleetUnavailable(message, _SIGN_IN) from None
        except (RuntimeError, OSError, ValueError) as error:  # requests' errors are of OSError
            text = " ".join(str(error).split())
            raise FleetUnavailable(f"the job server at {self.address} failed: {text}", _REACH) from None


def _job(details: Any) -> RayJob:  # noqa: ANN401 - Ray's own model
    return RayJob(
        job_id=details.submission_id or details.job_id or "",
        phase=JobPhase(details.status.value),
        command=(details.metadata or {}).get(MARK, ""),
        message=" ".join((details.message or "").partition(LAST_LOGS)[0].split()),
        exit_code=details.driver_exit_code,
        started_utc_s=_seconds(details.start_time),
        ended_utc_s=_seconds(details.end_time),
    )


def _seconds(milliseconds: int | None) -> float | None:
    return milliseconds / _MS_PER_S if milliseconds else None
