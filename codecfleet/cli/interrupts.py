"""Ctrl-C, SIGTERM and a closed terminal: what they do to a running job.

``decide`` is pure: a phase and a happening give the next phase and what to do. ``Interrupts`` is the thin shell that
receives real signals. It uses ``signal.signal`` and a timer thread rather than the event loop's own handlers, so that
a second Ctrl-C and the deadline still work while something blocks the loop.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, Self

__all__ = [
    "Act",
    "Happening",
    "Interrupts",
    "Phase",
    "Signalled",
    "State",
    "decide",
    "descendants",
    "end_at_once_on_signals",
    "last_acts",
]

CANCEL_WITHIN_S: Final = 1.5
"""From the first signal to the forced exit; with the interpreter's own exit it stays under two seconds."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Phase(Enum):
    """How far the run is, as far as interruptions care."""

    RUNNING = "running"
    CANCELLING = "cancelling"
    """A signal came; the job is being cancelled and its files removed."""
    PUBLISHED = "published"
    """The output has its final name: an interruption only cuts the shutdown short."""
    KILLED = "killed"
    """The process is being ended at once."""


class Act(Enum):
    """What the shell must do."""

    CANCEL = "cancel"
    """Cancel the job, and start the deadline."""
    EXIT = "exit"
    """End the process now, with the state's exit code."""


class Happening(Enum):
    """What can happen besides a signal."""

    DEADLINE = "deadline"
    """Cancelling took too long."""
    PUBLISHED = "published"
    """The output is in its place."""


@dataclass(frozen=True, slots=True)
class Signalled:
    """The process received a signal."""

    number: int


@dataclass(frozen=True, slots=True)
class State:
    """Where the run stands, and the exit code an interruption has earned it (None: no interruption)."""

    phase: Phase = Phase.RUNNING
    exit_code: int | None = None


def decide(state: State, happening: Signalled | Happening) -> tuple[State, tuple[Act, ...]]:
    """Return the next state and what to do about ``happening``. Everything not listed changes nothing."""
    match state.phase, happening:
        case Phase.RUNNING, Signalled(number):
            # The shells' own convention: 130 for SIGINT, 143 for SIGTERM, 129 for SIGHUP.
            return State(Phase.CANCELLING, 128 + number), (Act.CANCEL,)
        case Phase.RUNNING | Phase.CANCELLING, Happening.PUBLISHED:
            # Cancelling lost the race: the output is there and proven, so the run counts as done.
            return State(Phase.PUBLISHED), ()
        case Phase.CANCELLING, Signalled() | Happening.DEADLINE:
            return State(Phase.KILLED, state.exit_code), (Act.EXIT,)
        case Phase.PUBLISHED, Signalled() | Happening.DEADLINE:
            return State(Phase.KILLED, 0), (Act.EXIT,)
        case _:
            return state, ()


class Interrupts:
    """Listens to signals while a job runs; a context manager, used from the main thread.

    Args:
        exit_now: ends the process at once with an exit code (``os._exit``).
        last_acts: what to do right before that, such as showing the cursor again; must not block.
        within_s: seconds from the first signal to the forced exit.
    """

    def __init__(
        self, exit_now: Callable[[int], None], last_acts: Callable[[], None], *, within_s: float = CANCEL_WITHIN_S
    ) -> None:
        self._exit_now = exit_now
        self._last_acts = last_acts
        self._within_s = within_s
        self._state = State()
        self._cancel: Callable[[], object] | None = None
        self._over = False
        """The run has ended, and has said how."""
        self._timer: threading.Timer | None = None
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    @property
    def exit_code(self) -> int | None:
        """The exit code the signals so far have earned; None when there were none that count."""
        return self._state.exit_code

    def __enter__(self) -> Self:
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        # A cancelled run's deadline stays: it also bounds what the interpreter does on its way out, such as ending Ray.
        if self._timer is not None and self._state.phase is not Phase.CANCELLING:
            self._timer.cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def listen(self) -> None:
        """Take the signals over; call it again when something else may have taken them since, as Ray does.

        Outside the main thread Python lets nobody take signals: then nothing happens.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # nohup asked for it
            before = signal.signal(number, self._on_signal)
            self._before.setdefault(number, before)

    def attach(self, cancel: Callable[[], object]) -> None:
        """Have ``cancel`` called in the running loop when the job is to be cancelled; at once, if it already is."""
        from asyncio import get_running_loop

        loop = get_running_loop()
        self._cancel = lambda: loop.call_soon_threadsafe(cancel)
        if self._state.phase is Phase.CANCELLING:
            self._cancel()

    def attach_here(self) -> None:
        """Have ``KeyboardInterrupt`` raised in the main thread, for work that runs in it without a loop."""
        self._cancel = _interrupt

    def published(self) -> None:
        """Say that the output is in its place."""
        self._happen(Happening.PUBLISHED)

    def disarm(self) -> None:
        """Say that nothing is left to be cut short: a run that has cleaned up after itself needs no deadline."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signal's signature
        self._happen(Signalled(number))

    def _happen(self, happening: Signalled | Happening) -> None:
        self._state, acts = decide(self._state, happening)
        for act in acts:
            self._do(act)

    def _do(self, act: Act) -> None:
        if act is Act.EXIT:
            self._last_acts()
            if self._state.exit_code and not self._over:
                os.write(2, b"codecfleet: error: interrupted.\n")
            self._exit_now(self._state.exit_code or 0)
            return
        self._timer = threading.Timer(self._within_s, self._happen, (Happening.DEADLINE,))
        self._timer.daemon = True
        self._timer.start()
        if self._cancel is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just closed: there is nothing left to cancel
                self._cancel()


def end_at_once_on_signals(exit_code: int) -> None:
    """From here on, let any further signal end the process with ``exit_code``: everything has been said already."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - signal's signature
        last_acts()
        os._exit(exit_code)

    for number in _SIGNALS:
        signal.signal(number, end)


def _interrupt() -> None:
    raise KeyboardInterrupt


def last_acts() -> None:
    """Do what a forced exit must not leave undone, from any thread, without blocking and without Python's streams.

    A live bar hides the cursor; and two of a private Ray's processes outlive us for a minute, because they notice
    their parent's death only by looking now and then.
    """
    if os.isatty(2):
        os.write(2, b"\x1b[?25h\r\x1b[J")
    for child in descendants(os.getpid(), _parents()):
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)


def _parents() -> dict[int, int]:
    """Return every process's parent, as far as this system shows them."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in parentheses, may hold anything; state and parent follow it.
            parents[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    return parents


def descendants(ancestor: int, parents: Mapping[int, int]) -> list[int]:
    """Return the children of ``ancestor``, and theirs, and so on, given every process's parent; nearest first."""
    found = [ancestor]
    for process in found:  # it grows while it is walked
        found.extend(child for child, parent in parents.items() if parent == process and child not in found)
    return found[1:]
