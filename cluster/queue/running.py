"""A running job, as its driver sees it: a guard, the command's output, and its failure."""

import asyncio
import codecs
import json
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from ...actors.process.running import signal_name
from ...errors import InputNotFound, Retry, UsageError, WorkError
from ..fleet_variables import FAILURE
from .guard import FENCED, STOP
from .store import OUTPUT_MAX
from .values import QueuedCommand, RunEnd

_GUARD: Final = "codecfleet.cluster.queue.guard"
_READ_BYTES: Final = 1 << 16
_FAILURE_BYTES: Final = 1 << 16
_SIGNALLED: Final = 128
"""A shell adds this to the number of the signal that ended a program."""


class RunningJob(Protocol):
    """A job's command while it runs."""

    def extend(self, ends_s: float) -> None:
        """Let it run until ``ends_s`` on the guard's clock."""
        ...

    def stop(self) -> None:
        """Ask it to stop as by SIGTERM; it keeps its finished work."""
        ...

    def kill(self) -> None:
        """Kill it."""
        ...

    def take_output(self) -> str:
        """Return what it has printed since the last call."""
        ...

    async def end(self) -> RunEnd:
        """Wait for its end."""
        ...


@dataclass(slots=True)
class GuardedRun:
    """A command below its guard."""

    process: asyncio.subprocess.Process
    failure: int  #: the descriptor of the file for its failure
    _printed: str = ""
    _decode: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )

    def extend(self, ends_s: float) -> None:
        self._order(repr(ends_s).encode())

    def stop(self) -> None:
        self._order(STOP)

    def kill(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()  # as if this driver had died

    def take_output(self) -> str:
        printed, self._printed = self._printed, ""
        return printed

    async def end(self) -> RunEnd:
        try:
            if self.process.stdout is not None:
                while read := await self.process.stdout.read(_READ_BYTES):
                    self._printed = (self._printed + self._decode.decode(read))[-OUTPUT_MAX:]
            return _run_end(await self.process.wait(), os.pread(self.failure, _FAILURE_BYTES, 0))
        finally:
            self.kill()
            os.close(self.failure)

    def _order(self, line: bytes) -> None:
        with suppress(ConnectionError, RuntimeError):  # it has just ended
            if self.process.stdin is not None:
                self.process.stdin.write(line + b"\n")


async def start_run(command: QueuedCommand, ends_s: float) -> "GuardedRun | RunEnd":
    """Start a command that may run until ``ends_s`` on the guard's clock, or return why it cannot be started."""
    if not await asyncio.to_thread(Path(command.folder).is_dir):
        message = f"the job's folder {command.folder} is not on this machine"
        return RunEnd(InputNotFound.exit_code, InputNotFound.__name__, message, "Submit it again from another folder.")
    failure = os.memfd_create("codecfleet")
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", _GUARD, repr(ends_s), str(failure), *command.arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=command.folder,
            env={**os.environ, **command.variables, FAILURE: str(failure)},
            pass_fds=(failure,),
            start_new_session=True,
        )
    except ValueError as error:  # a NUL or half a character in it, or a variable's name with "="
        os.close(failure)
        message = f"the job's command cannot be started: {error}"
        return RunEnd(UsageError.exit_code, UsageError.__name__, message, "Submit it again with a right command.")
    except OSError as error:
        os.close(failure)
        message, step = f"the job could not be started: {error}", "Check the limits on processes and memory."
        return RunEnd(WorkError.exit_code, WorkError.__name__, message, step)
    except BaseException:
        os.close(failure)
        raise
    return GuardedRun(process, failure)


def _run_end(code: int, failure: bytes) -> RunEnd:
    if code in (0, FENCED):
        return RunEnd(None if code else 0)
    if code < 0:  # the guard was killed, and its command with it
        code = _SIGNALLED - code
    try:
        told = json.loads(failure)
        return RunEnd(code, told["error"], told["message"], told["next_step"], Retry(told["retry"]))
    except (ValueError, KeyError, TypeError):
        killed_by = code - _SIGNALLED
        words = f"it ended with exit code {code}" if killed_by <= 0 else f"it was ended by {signal_name(killed_by)}"
        return RunEnd(code, WorkError.__name__, words)
