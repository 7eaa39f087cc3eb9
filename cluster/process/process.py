"""A process that runs a program of ours: how it is started, and how it ended."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

_PROGRAM: Final = (
    # Imports make much that stays, which is not to be searched for garbage.
    "import gc, json, runpy, sys; gc.set_threshold(10_000); sys.path[:] = json.loads(sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__')"
)
WORKER: Final = "codecfleet.cluster.process.worker_program"
"""The program of a worker, which waits for its settings."""
_END_S: Final = 5.0
"""How long a killed process may take to end: one that hangs in the kernel never does."""
_LAST_LINE_BYTES: Final = 4096
_FIRST_WORD_BYTES: Final = 1 << 16


class StartedProcess(NamedTuple):
    """A started process: our end of its channel, how to kill it, and how it ended, which may block for ``_END_S``."""

    end: socket.socket
    kill: Callable[[], object]
    ended: Callable[[], str]
    warm_fleet: int | None = None
    """The process of the warm fleet to which this is only a connection; None where it was started for its caller."""
    note: str = ""
    """What a job's report is to say of it."""

    def first_word(self) -> bytes:
        """Wait for the first message of a program that goes on without us, and close the channel; empty if it ended."""
        try:
            with self.end:
                return self.end.recv(_FIRST_WORD_BYTES)
        except BaseException:
            self.kill()
            raise


def start_program(program: str, *settings: object) -> StartedProcess:
    """Start a process that runs the module ``program``.

    Its one argument is JSON: the descriptor of its end of the channel, this process, this program's name, and
    ``settings``. The kernel ends it when the calling *thread* ends. It has this process's search path for modules, so
    that results may be of any class that is importable here.

    Raises:
        OSError: it cannot be started.
    """
    ours, theirs = socket.socketpair()
    # What it prints stays out of our terminal; of one that died the last line is told.
    said = os.memfd_create("codecfleet")
    argument = json.dumps([theirs.fileno(), os.getpid(), sys.argv[:1], *settings])
    try:
        with theirs:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-c", _PROGRAM, json.dumps(sys.path), program, argument],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                # A Ctrl-C, Ctrl-Z or hang-up of the terminal is for us to answer.
                start_new_session=True,
            )
    except BaseException:
        ours.close()
        os.close(said)
        raise

    def ended() -> str:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        last = _last_line(said)
        os.close(said)
        return how_it_ended(process.returncode, last)

    return StartedProcess(ours, process.kill, ended)


def how_it_ended(code: int | None, last_line: str) -> str:
    """Say in words how a process with this return code, None if it has not ended, and this last line ended."""
    if code is None:
        return "it does not end, though it was killed"
    if code >= 0:
        return last_line or f"it ended with exit code {code}"
    with suppress(ValueError):
        return f"it was killed by {signal.Signals(-code).name}"
    return f"it was killed by signal {-code}"


def _last_line(said: int) -> str:
    size = os.fstat(said).st_size
    lines = os.pread(said, _LAST_LINE_BYTES, max(0, size - _LAST_LINE_BYTES)).decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
