"""The queue of submitted jobs, in Python."""

import asyncio
import getpass
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ...errors import QueueUnavailable, UsageError
from ..submission.entry import refuse_secrets
from .background import ensure_driver
from .places import open_store, queue_file
from .store import Printed
from .tenants import PRIORITY_MAX, Tenant, load_queue_policy
from .values import QueuedCommand, QueuedJob, QueueState, Submittable, UsageRow

LOOK_S: Final = 0.25
"""How often ``wait`` looks at a job."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Queue:
    """A durable queue of commands: this user's on this machine, or the one at ``place``, a file or a postgresql:// URL.

    Drivers run its jobs, which outlive the program that submits them. For a queue in a file, ``submit``, ``retry`` and
    ``wait`` start a driver in the background if none runs, unless ``starts_driver`` is False. With ``makes`` False, a
    missing file is an error. Every call may raise QueueUnavailable; calls with a job's id may also raise NoSuchJob.
    """

    def __init__(self, place: str | Path | None = None, *, starts_driver: bool = True, makes: bool = True) -> None:
        self._place = None if place is None else str(place)
        self._file = queue_file(self._place)
        self._starts_driver = starts_driver
        self._store = open_store(self._place, makes=makes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the queue; its jobs continue."""
        await asyncio.to_thread(self._store.close)

    async def submit(
        self,
        arguments: Sequence[str] | Submittable,
        *,
        job_id: str | None = None,
        tenant: str | None = None,
        priority: int = 0,
        due_in_s: float | None = None,
        folder: str | Path | None = None,
        variables: Mapping[str, str] | None = None,
        queued_max: int | None = None,
        token: str | None = None,
    ) -> QueuedJob:
        """Put a job into the queue, and return it at once.

        Args:
            arguments: a ``TranscodeSpec``, ``BatchSpec``, ``LadderSpec`` or ``StillsSpec``; or the command with its
                arguments, which are not checked: ``["transcode", "film.mkv", "film.mp4"]``.
            job_id: letters, digits, dots, dashes, underscores. If a job already has this id and command, that job is
                returned. Default: a new id.
            tenant: who submits the job. Default: the token's tenant, or this user.
            priority: a job of higher priority runs first; from -1,000,000 to 1,000,000.
            due_in_s: among equal priorities, the job that is due first runs first.
            folder: the folder in which the command runs. Default: the current one.
            variables: environment variables for the command, besides the variables of its driver.
            queued_max: how many jobs of the tenant may be queued or running, if less than the queue's policy allows.
            token: the tenant's token, which a queue with tokens requires; other queues ignore it.

        Raises:
            QueueFull: the tenant has as many jobs as it may have.
            TenantRefused: the queue refuses the token, or the tenant may not give jobs this priority.
            UsageError: the id is invalid, or belongs to another command or tenant; the priority is out of range; the
                command would refuse the spec; the queue is in a database, and an argument contains a secret.
        """
        name = new_job_id() if job_id is None else checked_id(job_id)
        words = tuple(arguments.command_line() if isinstance(arguments, Submittable) else arguments)
        if self._file is None:
            refuse_secrets(words)  # other users may read a database, but a file belongs to this user
        command = QueuedCommand(words, str(folder or Path.cwd()), dict(variables or {}))
        job = await asyncio.to_thread(
            self._store.submit,
            name,
            command,
            tenant=tenant or "",
            priority=checked_priority(priority),
            due_in_s=due_in_s,
            queued_max=queued_max,
            token=token,
            user=_user(),
        )
        await self._ensure_driver(job)
        return job

    async def _ensure_driver(self, job: QueuedJob) -> None:
        if self._file is None or not self._starts_driver or job.state.is_over:
            return
        try:
            await asyncio.to_thread(ensure_driver, self._file, self._store.option)
        except QueueUnavailable as error:
            message = f"job {job.job_id} is {job.state.value}, but {error.message}"
            raise QueueUnavailable(message, error.next_step) from error

    async def get(self, job_id: str) -> QueuedJob:
        """Return a job with its present state."""
        return await asyncio.to_thread(self._store.job, job_id)

    async def output(self, job_id: str, after: int = 0) -> Printed:
        """Return a job's output from ``after`` on (0, or ``ends`` of a part); the last 256 Ki characters are kept."""
        return await asyncio.to_thread(self._store.output, job_id, after)

    async def cancel(self, job_id: str) -> QueuedJob:
        """Cancel a job. A running job ends within seconds; its finished work is kept, and ``retry`` continues it."""
        return await asyncio.to_thread(self._store.cancel, job_id)

    async def retry(self, job_id: str) -> QueuedJob:
        """Requeue a job that failed, was parked or was cancelled.

        Raises UsageError: the job is in another state; QueueFull: see ``submit``.
        """
        job = await asyncio.to_thread(self._store.retry, job_id)
        await self._ensure_driver(job)
        return job

    async def prioritize(self, job_id: str, priority: int) -> QueuedJob:
        """Change a job's priority. Raises UsageError: ``priority`` is out of range; TenantRefused: see ``submit``."""
        return await asyncio.to_thread(self._store.prioritize, job_id, checked_priority(priority))

    async def wait(self, job_id: str, *, on_output: Callable[[str], object] | None = None) -> QueuedJob:
        """Wait until a job has ended, and return it. ``on_output`` is called with each new part of the job's output."""
        job, ends = await self.get(job_id), 0
        await self._ensure_driver(job)
        while True:
            if on_output is not None:
                text, ends = await self.output(job_id, ends)
                on_output(text)
            if job.state.is_over:
                return job
            await asyncio.sleep(LOOK_S)
            job = await self.get(job_id)

    async def list(self, states: Iterable[QueueState] = tuple(QueueState)) -> tuple[QueuedJob, ...]:
        """Return the jobs in these states, oldest first."""
        return tuple(await asyncio.to_thread(self._store.jobs, tuple(states)))

    async def set_policy(self, path: str | Path) -> None:
        """Give the queue the policy in a TOML file, which the queue keeps. Raises UsageError: the file is wrong."""
        policy = await asyncio.to_thread(load_queue_policy, path)
        await asyncio.to_thread(self._store.set_policy, policy)

    async def tenants(self) -> tuple[Tenant, ...]:
        """Return the tenants, with their quotas and their use."""
        return tuple(await asyncio.to_thread(self._store.tenants))

    async def make_token(self, tenant: str) -> str:
        """Return a new token of a tenant, which replaces an earlier one; the queue keeps only its hash.

        From the first token on, the queue takes jobs only with a token.
        """
        return await asyncio.to_thread(self._store.make_token, tenant)

    async def revoke_token(self, tenant: str) -> None:
        """Refuse new jobs with a tenant's token; old jobs stay. Raises UsageError: the tenant has no valid token."""
        await asyncio.to_thread(self._store.revoke_token, tenant)

    async def usage(self, *, by_job: bool = False, since_s: float | None = None) -> tuple[UsageRow, ...]:
        """Return the use of all attempts that ended in the last ``since_s`` (default: ever), by tenant or by job."""
        return tuple(await asyncio.to_thread(self._store.usage, since_s, by_job=by_job))


def new_job_id() -> str:
    """Return a new, random id for a job."""
    return f"job-{secrets.token_hex(6)}"


def checked_id(job_id: str) -> str:
    """Return ``job_id``. Raises UsageError: it is not a valid id."""
    if _ID.fullmatch(job_id) is None:
        step = "Use up to 64 letters, digits, dots, dashes and underscores, and begin with a letter or digit."
        raise UsageError(f"{job_id!r} is not a valid id for a job", step)
    return job_id


def checked_priority(priority: int) -> int:
    """Return ``priority``. Raises UsageError: it is out of range."""
    if abs(priority) > PRIORITY_MAX:
        step = f"Give a whole number from -{PRIORITY_MAX:,} to {PRIORITY_MAX:,}."
        raise UsageError(f"the priority {priority} is out of range", step)
    return priority


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a user without a name
        return str(os.geteuid())
