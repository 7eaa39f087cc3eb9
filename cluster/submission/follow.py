"""Follows a job to its end, even if the connection breaks."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ...errors import FleetUnavailable
from ..logs.entry import is_entry
from .job_server import JobPhase, JobServer, RayJob

_AGAIN_S: Final = 0.5
_AGAIN_MAX_S: Final = 5.0
_PATIENCE_S: Final = 120.0  #: How long a job server may be out of reach; a head node takes a minute to restart
_OURS: Final = "codecfleet: "  #: The beginning of each line from stderr, if stderr is no terminal
_RAYS: Final = re.compile(r"Running entrypoint for job |\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\t(INFO|DEBUG) ")
"""The lines that Ray adds about the start of a job."""


@dataclass(slots=True)
class LogLines:
    """Splits a log into lines; after ``restart``, skips the lines that were already yielded."""

    seen: int = 0  #: How many characters of the log were yielded
    _at: int = 0
    _rest: str = ""

    def restart(self) -> None:
        """Prepare to read the log from its beginning again."""
        self._at, self._rest = 0, ""

    def take(self, text: str) -> Iterator[str]:
        """Yield each line that has ended and was not yielded before."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._at += len(line) + 1
            if self._at > self.seen:
                self.seen = self._at
                yield line

    def end(self) -> Iterator[str]:
        """Yield the last line if it has no line end and was not yielded before."""
        if self._at + len(self._rest) > self.seen:
            self.seen = self._at + len(self._rest)
            yield self._rest


@dataclass(slots=True)
class Follower:
    """Shows the output of a job until the job ends."""

    server: JobServer
    show: Callable[[str, bool], object]  #: called with each line of output, and with whether the line belongs on stderr
    rest: Callable[[float], Awaitable[None]] = asyncio.sleep  #: sleeps for a number of seconds
    _lines: LogLines = field(default_factory=LogLines)

    async def follow(self, job_id: str) -> RayJob:
        """Show the whole output of a job, and return the job when it has ended.

        Raises UsageError: there is no such job; FleetUnavailable: the server was out of reach for two minutes, while
        the job may still run.
        """
        pause_s, silent_s = _AGAIN_S, 0.0
        while True:
            try:
                if (job := await self._shown(job_id)).phase.is_over:
                    return job
                pause_s, silent_s = _AGAIN_S, 0.0
            except FleetUnavailable:
                if silent_s >= _PATIENCE_S:
                    raise
                silent_s += pause_s
            await self.rest(pause_s)
            pause_s = min(2 * pause_s, _AGAIN_MAX_S) if silent_s else _AGAIN_S

    async def _shown(self, job_id: str) -> RayJob:
        job = await asyncio.to_thread(self.server.job, job_id)
        if job.phase is JobPhase.PENDING:
            return job
        await self._show_log(job_id)
        return await asyncio.to_thread(self.server.job, job_id)

    async def _show_log(self, job_id: str) -> None:
        self._lines.restart()
        async for text in self.server.log(job_id):
            self._show_all(self._lines.take(text))
        self._show_all(self._lines.end())

    def _show_all(self, lines: Iterator[str]) -> None:
        for line in lines:
            if not _RAYS.match(line):
                self.show(line, line.startswith(_OURS) or is_entry(line))


def exit_code_of(job: RayJob) -> int:
    """Return the exit code of a job's program as a shell reports it; 5 if Ray could not run the program."""
    if job.phase is JobPhase.SUCCEEDED:
        return 0
    if job.phase is JobPhase.STOPPED:
        return 130
    if job.exit_code is None:
        return FleetUnavailable.exit_code
    return job.exit_code if job.exit_code >= 0 else 128 - job.exit_code
