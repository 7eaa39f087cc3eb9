"""Starts a process of any program, limits it, and reports how it ended."""

import ctypes
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from enum import Enum
from typing import Final, NamedTuple

END_S: Final = 5.0
"""How long a killed process may take to end; a process that hangs in the kernel never ends."""
LAST_WORDS_BYTES: Final = 4096
_PR_SET_PDEATHSIG: Final = 1  #: linux/prctl.h


class Limits(NamedTuple):
    """Limits of a process and its children; None means this process's own limit."""

    memory_bytes: int | None = None  #: bytes of data (RLIMIT_DATA): with more, Python raises MemoryError
    cpu_s: int | None = None  #: processor time of all threads together, after which the kernel ends the process

    def impose(self, process: int) -> None:
        """Impose the limits on a child process that has just started.

        A limit that the child has inherited is not set again: a confined process may not set limits of others.
        """
        for kind, limit in ((resource.RLIMIT_DATA, self.memory_bytes), (resource.RLIMIT_CPU, self.cpu_s)):
            if limit is not None:
                inherited = resource.getrlimit(kind)
                least = limit if inherited[1] == resource.RLIM_INFINITY else min(limit, inherited[1])
                if inherited != (least, least):
                    resource.prlimit(process, kind, (least, least))


UNLIMITED: Final = Limits()


class Prints(Enum):
    """Where a process's output goes."""

    KEPT = "kept"  #: all output is kept, for the report of how the process ended
    SENT = "sent"  #: standard output is sent through the channel; standard error is kept
    ALL_SENT = "all_sent"  #: standard error is sent through the channel, too


class Running(subprocess.Popen[bytes]):
    """A process that ``start_command`` has started. Thread-safe, except for ``ended``."""

    end: socket.socket  #: this process's end of the pair of sockets
    kept: int  #: the descriptor of a file with the output that is kept
    death: int  #: a descriptor that is readable once the process is dead (pidfd_open(2))

    def kill_group(self) -> None:
        """Kill the process group, even after the process itself has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def code(self, within_s: float = 0.0) -> int | None:
        """Return the exit code, the negative number of a signal, or None if the process does not end ``within_s``."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(within_s)
        return None

    def reaped(self, status: int) -> None:
        """Set the process's exit status, which another waiter received."""
        self.returncode = os.waitstatus_to_exitcode(status)

    def last_words(self) -> str:
        """Return the last ``LAST_WORDS_BYTES`` bytes of the process's kept output."""
        size = os.fstat(self.kept).st_size
        said = os.pread(self.kept, LAST_WORDS_BYTES, max(0, size - LAST_WORDS_BYTES))
        return said.decode(errors="replace")

    def ended(self) -> str:
        """Wait ``END_S`` for the process to end, call ``close``, and return how the process ended."""
        code = self.code(END_S)
        last = self.last_words()
        self.close()
        return how_it_ended(code, last_line(last))

    def close(self) -> None:
        """Close everything but ``end``; call no other method afterwards. The process goes on."""
        os.close(self.kept)
        os.close(self.death)


def start_command(
    command: Sequence[str],
    *,
    prints: Prints | int,
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
    inherited: Sequence[int] = (),
    limits: Limits = UNLIMITED,
) -> Running:
    """Start a program whose standard input is one end of a socket pair.

    The program gets its own session and process group, so Ctrl-C, Ctrl-Z and a hang-up of the terminal reach only this
    process. Raises OSError: the program cannot be started; ValueError: no program can have such arguments or variables.

    Args:
        command: the program and its arguments.
        prints: where the program's output goes; a number is a descriptor of this process.
        environment: the program's environment variables; None means those of this process.
        folder: the folder in which the program starts; None means this process's folder.
        inherited: descriptors of this process that the program gets, with the same numbers.
        limits: the program's limits.
    """
    with ExitStack() as undo:
        ours, theirs = socket.socketpair()
        undo.callback(ours.close)
        with theirs:
            kept = os.memfd_create("codecfleet")
            undo.callback(os.close, kept)
            sent = theirs.fileno()
            outputs = {Prints.KEPT: (kept, kept), Prints.SENT: (sent, kept), Prints.ALL_SENT: (sent, sent)}
            stdout, stderr = (prints, prints) if isinstance(prints, int) else outputs[prints]
            process = Running(
                command,
                stdin=sent,
                stdout=stdout,
                stderr=stderr,
                cwd=folder,
                env=environment,
                pass_fds=inherited,
                start_new_session=True,
            )
        undo.callback(process.wait)
        undo.callback(process.kill_group)
        process.end, process.kept, process.death = ours, kept, os.pidfd_open(process.pid)
        undo.callback(os.close, process.death)
        limits.impose(process.pid)
        undo.pop_all()
    return process


def how_it_ended(code: int | None, last_line: str) -> str:
    """Return how a process ended, from its return code (None: it has not ended) and its last line of output."""
    if code is None:
        return "it was killed but has not ended"
    if code >= 0:
        return last_line or f"it ended with exit code {code}"
    return f"it was killed by {signal_name(-code)}"


def signal_name(number: int) -> str:
    """Return a signal's name, for example SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def last_line(said: str) -> str:
    """Return the last line that is not blank, or ""."""
    return next((line.strip() for line in reversed(said.split("\n")) if line.strip()), "")


def end_with(parent: int) -> None:
    """Make the kernel kill this process, even if it hangs, when the thread of ``parent`` that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # the parent has ended already
        os._exit(1)
