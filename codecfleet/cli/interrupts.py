"""Handles Ctrl-C, SIGTERM and a closed terminal.

``decide`` is a pure function; ``Interrupts`` receives the signals. This module uses ``signal.signal`` and a separate
thread rather than the event loop's handlers, so that a second Ctrl-C and the deadline work while something blocks the
loop.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self, TypeVar

ResultT = TypeVar("ResultT")

# the longest time between the first signal and the forced exit
_CANCEL_WITHIN_S: Final = 1.5

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Phase(Enum):
    """The progress of a run. Once the output is published, an interruption only shortens the shutdown."""

    RUNNING = "running"
    CANCELLING = "cancelling"
    PUBLISHED = "published"
    KILLED = "killed"


class Act(Enum):
    """The action to take after an event."""

    CANCEL = "cancel"
    EXIT = "exit"  #: end the process now with the exit code of the state


class Happening(Enum):
    """An event other than a signal."""

    DEADLINE = "deadline"  #: cancelling took too long
    PUBLISHED = "published"


@dataclass(frozen=True, slots=True)
class State:
    """The phase, and the exit code if the run was interrupted."""

    phase: Phase = Phase.RUNNING
    exit_code: int | None = None


def decide(state: State, happening: int | Happening) -> tuple[State, Act | None]:
    """Return the next state and the action; ``happening`` is the number of a signal, or another event."""
    match state.phase, happening:
        case Phase.RUNNING, int(number):
            # Shells use 130 for SIGINT, 143 for SIGTERM, and 129 for SIGHUP.
            return State(Phase.CANCELLING, 128 + number), Act.CANCEL
        case Phase.RUNNING | Phase.CANCELLING, Happening.PUBLISHED:
            # The output is published, so the run counts as done even if it was being cancelled.
            return State(Phase.PUBLISHED), None
        case Phase.CANCELLING, int() | Happening.DEADLINE:
            return State(Phase.KILLED, state.exit_code), Act.EXIT
        case Phase.PUBLISHED, int() | Happening.DEADLINE:
            return State(Phase.KILLED, 0), Act.EXIT
        case _:
            return state, None


class Interrupts:
    """Handles signals while a job runs. It is a context manager for the main thread.

    ``exit_now`` ends the process with an exit code (``os._exit``).
    """

    def __init__(self, exit_now: Callable[[int], None]) -> None:
        self.next_step = ""  #: the advice to print on a forced exit
        self._exit_now = exit_now
        self._state = State()
        self._cancel: Callable[[], object] | None = None
        self._is_over = False
        self._wake: Callable[[], object] = bool
        self._watched: socket.socket | None = None
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    @property
    def exit_code(self) -> int | None:
        """The exit code if signals have interrupted the run; otherwise None."""
        return self._state.exit_code

    def __enter__(self) -> Self:
        """Handle signals from now on. Python allows this only in the main thread."""
        if threading.current_thread() is threading.main_thread():
            self._watch_signals()  # started first, because this thread, not the handlers, starts the deadline
            for number in _SIGNALS:
                if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                    continue  # nohup started this process, so it ignores SIGHUP
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        if self._watched is not None:
            signal.set_wakeup_fd(-1)
        # A cancelled run keeps its deadline, because Ray may end only while the interpreter exits.
        if self._state.phase is not Phase.CANCELLING:
            self.disarm()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def attach(self, cancel: Callable[[], object]) -> None:
        """Call ``cancel`` in the running loop when the run is cancelled, or at once if it already is."""
        from asyncio import get_running_loop

        loop = get_running_loop()
        self._cancel = lambda: loop.call_soon_threadsafe(cancel)
        self._wake = lambda: loop.call_soon_threadsafe(bool)
        if self._state.phase is Phase.CANCELLING:
            self._cancel()

    def attach_to_task(self) -> Callable[[], object]:
        """Cancel the running task when the run is cancelled; return the function that cancels the task."""
        from asyncio import current_task

        task = current_task()
        if task is None:
            raise AssertionError("there is no running task")
        self.attach(task.cancel)
        return task.cancel

    def attach_here(self) -> None:
        """Raise ``KeyboardInterrupt`` in the main thread when the run is cancelled, for work without an event loop."""

        def interrupt() -> None:
            raise KeyboardInterrupt

        self._cancel = interrupt

    def published(self) -> None:
        """Report that the output is published."""
        self._happen(Happening.PUBLISHED)

    def disarm(self) -> None:
        """Stop the deadline, because the run has cleaned up."""
        if self._watched is not None:
            self._watched.close()

    def _watch_signals(self) -> None:
        """Start a thread that the C handler wakes at each signal, even while the main thread is busy.

        Python runs ``_on_signal`` only between two bytecodes of the main thread, and so not during a system call that
        began just after the signal. A handler could not start the thread, because the start might wait for a lock that
        the interrupted code holds.
        """
        mine, self._watched = socket.socketpair()
        self._watched.settimeout(0)
        signal.set_wakeup_fd(self._watched.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(mine,), daemon=True).start()

    def _watch(self, signals: socket.socket) -> None:
        """Wake the loop at each signal, and enforce the deadline that begins with the first signal."""
        with signals:
            first = signals.recv(1)
            until_s = time.monotonic() + _CANCEL_WITHIN_S
            more = first
            while more:
                with contextlib.suppress(RuntimeError):  # the loop has just closed
                    self._wake()
                signals.settimeout(max(0.001, until_s - time.monotonic()))
                try:
                    more = signals.recv(1)
                except TimeoutError:
                    break
            else:
                return
        if self._state.phase is Phase.RUNNING:
            # The main thread has been busy since the signal, so the handler did not run.
            self._state, _ = decide(self._state, first[0])
        self._happen(Happening.DEADLINE)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signal's signature
        self._happen(number)

    def _happen(self, happening: int | Happening) -> None:
        self._state, act = decide(self._state, happening)
        if act is Act.EXIT:
            code = self._state.exit_code or 0
            line = f"codecfleet: error: interrupted. {self.next_step}".rstrip() + "\n"
            _last_acts(os.fsencode(line) if code and not self._is_over else b"")
            self._exit_now(code)
        elif act is Act.CANCEL and self._cancel is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just closed
                self._cancel()


def run_here(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run ``work`` in an event loop, and cancel it like any task if ``attach_here`` interrupts it.

    ``asyncio.run`` would also cancel the tasks of ``work``, and these would not wait for threads that use their files.
    """
    from asyncio import CancelledError, Runner

    with Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(work)
        try:
            return loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            with contextlib.suppress(CancelledError):
                return loop.run_until_complete(task)  # the output was already being published
            raise


def end_at_once_on_signals(exit_code: int) -> None:
    """Let the next signal end the process with ``exit_code``."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of signal handlers
        _last_acts()
        os._exit(exit_code)

    for number in _SIGNALS:
        signal.signal(number, end)


@dataclass(slots=True)
class FastEnd:
    """The last action of the program, which ends the process with ``exit_code``.

    Python itself would first destroy all imported objects one by one, which takes a sixth of a short command's time. If
    there is no exit code, as after an error of the interpreter, Python ends the process, and further signals are
    ignored.
    """

    exit_code: int | None = None

    def __call__(self) -> None:
        """End the process. Called after all threads have ended and all other exit functions have run."""
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        if self.exit_code is not None:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # stdout may be any object, which may raise any error
                    stream.flush()
            os._exit(self.exit_code)


def _last_acts(last_words: bytes = b"") -> None:
    """Kill this process's children, show the cursor and print ``last_words``.

    Any thread may call this function, which never blocks or raises. Processes that the fleet's host started end with
    the host, which also removes its files.
    """
    for child in children():
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
    with contextlib.suppress(OSError):  # the terminal or the reader of the pipe is gone
        _write_now(b"\x1b[?25h\r\x1b[J" * os.isatty(2) + last_words)


def _write_now(text: bytes) -> None:
    """Write to stderr without waiting; write nothing if a terminal is stopped or a pipe is full."""
    ready = select.poll()
    ready.register(2, select.POLLOUT)
    if text and ready.poll(0):
        os.write(2, text)


def children() -> list[int]:
    """Return the processes that this process started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in parentheses, may contain any characters; the state and the parent follow it.
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(stat.parent.name))
    return found
