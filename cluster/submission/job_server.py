"""The job server of a cluster, called through Ray's client."""

import os
import shlex
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

from ...errors import FleetUnavailable, UsageError
from ..ray.private.words import LAST_LOGS, NOT_FOUND
from ..ray.public.job_client import REACH, Details, answer_of_server, open_job_client, tail_log
from .entry import MARK, Entry

T = TypeVar("T")

_MS_PER_S: Final = 1000


def named_job_server(named: str | None) -> str | None:
    """Return the named address, otherwise the address that Ray's own commands use; None if neither is set."""
    return named or os.environ.get("RAY_API_SERVER_ADDRESS") or os.environ.get("RAY_ADDRESS") or None


class JobPhase(Enum):
    """The phase of a Ray job, with Ray's values."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self not in (JobPhase.PENDING, JobPhase.RUNNING)


@dataclass(frozen=True, slots=True)
class RayJob:
    """A job, as the job server reports it."""

    job_id: str
    phase: JobPhase
    command: str = ""  #: arguments for codecfleet; "" if the job does not run codecfleet
    message: str = ""  #: why the job is in this phase
    exit_code: int | None = None  #: the exit code of the job's program, if the job has ended
    started_utc_s: float | None = None  #: seconds since 1970
    ended_utc_s: float | None = None  #: seconds since 1970


class JobServer:
    """The job server of a cluster, at the address of the cluster's dashboard.

    Raises UsageError if the address is not an HTTP URL.

    Every method may raise FleetUnavailable: the server does not answer, or refuses our token.
    """

    address: str

    def __init__(self, address: str) -> None:
        if not address.startswith(("http://", "https://")):
            raise UsageError(f"{address} is not the address of a job server", REACH)
        self.address = address.rstrip("/")
        self._client = self._asked(lambda: open_job_client(self.address))

    def submit(self, job_id: str, entry: Entry, package: Path | None) -> None:
        """Run ``entry`` under this name, with the code in ``package`` if given."""
        runtime_env: dict[str, Any] = {} if package is None else {"py_modules": [str(package)]}
        self._asked(
            lambda: self._client.submit_job(
                entrypoint=entry.shell_line, submission_id=job_id, runtime_env=runtime_env, metadata=entry.metadata
            )
        )

    def job(self, job_id: str) -> RayJob:
        """Return a job. Raises UsageError if there is no job with this name."""
        return _job(self._of(job_id, lambda: self._client.get_job_info(job_id)))

    def jobs(self) -> list[RayJob]:
        """Return the jobs that run codecfleet, the newest last."""
        found = (_job(each) for each in self._asked(self._client.list_jobs) if MARK in (each.metadata or {}))
        return sorted(found, key=lambda job: job.started_utc_s or 0.0)

    def stop(self, job_id: str) -> bool:
        """Cancel a job; return whether it was running. Raises UsageError as ``job`` does."""
        return self._of(job_id, lambda: self._client.stop_job(job_id))

    def printed(self, job_id: str) -> str:
        """Return all that a job has printed. Raises UsageError as ``job`` does."""
        return self._of(job_id, lambda: self._client.get_job_logs(job_id))

    def log(self, job_id: str) -> AsyncIterator[str]:
        """Yield the whole output of a job until the job ends."""
        return tail_log(self._client, job_id)

    def _of(self, job_id: str, ask: Callable[[], T]) -> T:
        try:
            return self._asked(ask)
        except FleetUnavailable as error:
            if NOT_FOUND not in error.message:
                raise
        step = f"`codecfleet jobs list --address {shlex.quote(self.address)}` lists them."
        raise UsageError(f"{self.address} has no job {job_id}", step)

    def _asked(self, ask: Callable[[], T]) -> T:
        return answer_of_server(self.address, ask)


def _job(details: Details) -> RayJob:
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
