"""A running job, as its driver sees it: a guard, the command's output, and its failure."""

import asyncio
import codecs
import json
import os
import socket
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from ...actors.process.running import Running, signal_name, start_command
from ...errors import InputNotFound, Retry, UsageError, WorkError
from ..fleet_variables import FAILURE, FAILURE_BYTES_MAX
from .guard import FENCED, STOP
from .store import OUTPUT_MAX
from .values import QueuedCommand, RunEnd, Usage

_GUARD: Final = "codecfleet.cluster.queue.guard"
_READ_BYTES: Final = 1 << 16
_SIGNALLED: Final = 128
"""A shell adds this to the number of the signal that ended a program."""


class RunningJob(Protocol):
    """A job's command while it runs."""

    def extend(self, ends_s: float) -> None:
        """Let the command run until ``ends_s`` on the guard's clock."""
        ...

    def stop(self) -> None:
        """Ask the command to stop as by SIGTERM; it keeps its finished work."""
        ...

    def kill(self) -> None:
        """Kill the command."""
        ...

    def take_output(self) -> str:
        """Return the output since the last call."""
        ...

    async def end(self) -> RunEnd:
        """Wait for the command's end, and return how it ended."""
        ...


@dataclass(slots=True)
class GuardedRun:
    """A command that runs under a guard."""

    process: Running  #: the guard, which reads its orders from ``end``
    output: int  #: the descriptor from which the command's output is read
    failure: int  #: the descriptor of the file in which the command reports its failure
    _is_silent: asyncio.Event = field(default_factory=asyncio.Event)  #: set at the end of the output
    _printed: str = ""
    _decode: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )

    def extend(self, ends_s: float) -> None:
        self._order(repr(ends_s).encode())

    def stop(self) -> None:
        self._order(STOP)

    def kill(self) -> None:
        self.process.end.close()  # the guard then kills the command, as if this driver had died

    def take_output(self) -> str:
        printed, self._printed = self._printed, ""
        return printed

    async def end(self) -> RunEnd:
        try:
            await self._read_output()
            return _run_end(await asyncio.to_thread(self.process.wait), os.pread(self.failure, FAILURE_BYTES_MAX, 0))
        finally:
            self.kill()
            os.close(self.output)
            os.close(self.failure)
            await asyncio.to_thread(self.process.ended)

    async def _read_output(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self.output, self._read)
        try:
            await self._is_silent.wait()
        finally:
            loop.remove_reader(self.output)

    def _read(self) -> None:
        read = os.read(self.output, _READ_BYTES)
        self._printed = (self._printed + self._decode.decode(read))[-OUTPUT_MAX:]
        if not read:
            self._is_silent.set()

    def _order(self, line: bytes) -> None:
        with suppress(OSError):  # the guard has just ended
            self.process.end.send(line + b"\n", socket.MSG_DONTWAIT)


async def start_run(command: QueuedCommand, ends_s: float) -> "GuardedRun | RunEnd":
    """Start a command that may run until ``ends_s`` on the guard's clock, or return why it cannot be started."""
    if not await asyncio.to_thread(Path(command.folder).is_dir):
        message = f"the job's folder {command.folder} is not on this machine"
        return RunEnd(InputNotFound.exit_code, InputNotFound.__name__, message, "Submit it again from another folder.")
    try:
        with ExitStack() as undo:
            failure = os.memfd_create("codecfleet")
            undo.callback(os.close, failure)
            output, printed = os.pipe()
            undo.callback(os.close, output)
            with os.fdopen(printed, "wb"):
                process = start_command(
                    [sys.executable, "-P", "-m", _GUARD, repr(ends_s), str(failure), *command.arguments],
                    prints=printed,
                    environment={**os.environ, **command.variables, FAILURE: str(failure)},
                    folder=command.folder,
                    inherited=(failure,),
                )
            undo.pop_all()
    except (OSError, ValueError) as error:
        return _not_started(error)
    return GuardedRun(process, output, failure)


def _not_started(error: OSError | ValueError) -> RunEnd:
    if isinstance(error, ValueError):  # a NUL or half a character in the command, or "=" in a variable's name
        message, step = f"the job's command cannot be started: {error}", "Submit the job again with a correct command."
        return RunEnd(UsageError.exit_code, UsageError.__name__, message, step)
    message, step = f"the job could not be started: {error}", "Check the limits on processes and memory."
    return RunEnd(WorkError.exit_code, WorkError.__name__, message, step)


def _run_end(code: int, told: bytes) -> RunEnd:
    facts = _facts(told)
    used = Usage.of(facts.get("used"))
    if code == 0:
        record = facts.get("record")
        return RunEnd(0, used=used, record=record if isinstance(record, str) else "")
    if code == FENCED:
        return RunEnd(None, used=used)
    if code < 0:  # the guard was killed, and its command with it
        code = _SIGNALLED - code
    try:
        failure = facts["error"], facts["message"], facts["next_step"], Retry(facts["retry"])
        return RunEnd(code, *failure, used)
    except (ValueError, KeyError, TypeError):
        killed_by = code - _SIGNALLED
        words = f"it ended with exit code {code}" if killed_by <= 0 else f"it was ended by {signal_name(killed_by)}"
        return RunEnd(code, WorkError.__name__, words, used=used)


def _facts(told: bytes) -> dict[str, Any]:
    """Return the values that a command reported to its driver as JSON; {} if they cannot be read."""
    with suppress(ValueError, TypeError):
        return dict(json.loads(told))
    return {}
