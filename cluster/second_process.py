"""A worker's second process on the same GPU.

Every picture that a session of NVDEC gives takes the interpreter a dozen times. One interpreter feeds seven or eight
sessions of 1080p at full speed, and a GPU with seven engines takes fourteen (docs/nvdec.md has the figures). So a
worker that has more work than that, and is as fast as that, starts a second process, which runs part of it. To
everybody else it is still one worker: it has one seat, and lives and dies as one.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from ..actors.device import DeviceUse
from .outcome import Outcome

__all__ = ["Cancel", "CancelAll", "Cannot", "Ended", "Pace", "Ready", "Run", "Said", "SecondProcess", "SecondState"]

ALONE_MAX: Final = 8
"""How much work one process has before another may help it."""
ALONE_FPS: Final = 2000.0
"""How fast it must be besides. Whoever encodes on the processors beside the GPU is far slower, and needs no help."""
PACE_S: Final = 0.5
"""The shortest time in which speed is measured."""
_STANDARD_ERROR: Final = 2
"""Where the second one's output goes: to the first one's own, that one listens, for pictures called wrong."""
_PROGRAM: Final = f"{__package__}.second_program"


class Run(NamedTuple):
    """To the second process: run packed work, whose parcels are beside it."""

    run: str
    packed_work: bytes
    parcels: tuple[bytes, ...]


class Cancel(NamedTuple):
    """To the second process: cancel one run."""

    run: str


class CancelAll(NamedTuple):
    """To the second process: cancel every run whose name begins so."""

    beginning: str


@dataclass(frozen=True, slots=True)
class SecondState:
    """What the second process does: all frames it worked on, (job, label) of its work, its frames, and its device."""

    frames_done: int = 0
    running: tuple[tuple[str, str], ...] = ()
    progress: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    use: DeviceUse = field(default_factory=DeviceUse)


class Ready(NamedTuple):
    """From the second process: its GPU is open."""


class Cannot(NamedTuple):
    """From the second process, before it ends: why it is of no use."""

    reason: str


class Said(NamedTuple):
    """From the second process, now and then while it works."""

    state: SecondState


class Ended(NamedTuple):
    """From the second process: how a run ended, and what it does now."""

    run: str
    outcome: Outcome[Any]
    state: SecondState


Spawn: TypeAlias = Callable[[int], tuple[Connection, Callable[[], int]]]
"""Starts the process for so many slots; returns the way to talk to it, and what waits for its exit code."""


@dataclass(slots=True)
class Pace:
    """How fast a process is, from one look at it to the next that is not too early."""

    looked_s: float
    frames: int = 0
    fps: float = 0.0

    def wants_help(self, now_s: float, frames_done: int, running: int) -> bool:
        """Tell whether a process that has done so many frames by now, and runs so much work, wants a second one."""
        elapsed_s = now_s - self.looked_s
        if elapsed_s >= PACE_S:
            self.fps = (frames_done - self.frames) / elapsed_s
            self.looked_s, self.frames = now_s, frames_done
        return running > ALONE_MAX and self.fps >= ALONE_FPS


class _State(Enum):
    """Edges: ABSENT -> STARTING -> READY -> GONE; STARTING -> GONE where it cannot be."""

    ABSENT = "absent"
    """Nobody has needed it."""
    STARTING = "starting"
    READY = "ready"
    GONE = "gone"
    """For good: where it was ready before, its worker goes too."""


class SecondProcess:
    """The second process, seen from the first. Safe from any thread.

    It ends with the first one, however that ends: then nobody holds the other end of what it listens to.

    Args:
        slots: pieces of work at once.
        lost: called, in a thread of its own, when it ends after it was ready, with why: its work is lost.
        spawn: starts it; None starts this Python.
    """

    def __init__(self, slots: int, lost: Callable[[str], None], spawn: Spawn | None = None) -> None:
        self._slots = slots
        self._lost = lost
        self._spawn = spawn or _spawned
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._state = _State.ABSENT
        self._awaited: dict[str, Future[Outcome[Any]]] = {}
        self._connection: Connection | None = None
        self.said = SecondState()
        self.reason = ""

    @property
    def is_ready(self) -> bool:
        """Whether it takes work."""
        return self._state is _State.READY

    @property
    def busy(self) -> int:
        """How many pieces of work it has."""
        return len(self._awaited)

    def start(self) -> None:
        """Have it started, if it never was; returns at once."""
        with self._lock:
            if self._state is not _State.ABSENT:
                return
            self._state = _State.STARTING
        threading.Thread(target=self._listen, name="codecfleet-second", daemon=True).start()

    def submit(self, run: str, packed_work: bytes, parcels: Sequence[bytes]) -> Future[Outcome[Any]]:
        """Have it run packed work. If it ends meanwhile the future is never done: its worker ends too."""
        awaited: Future[Outcome[Any]] = Future()
        self._awaited[run] = awaited
        self._send(Run(run, packed_work, tuple(parcels)))
        return awaited

    def cancel(self, run: str) -> None:
        """Cancel a run, wherever it is; the other process knows what to do with one that it never had."""
        self._send(Cancel(run))

    def cancel_all(self, beginning: str) -> None:
        """Cancel every run whose name begins so."""
        self._send(CancelAll(beginning))

    def close(self) -> None:
        """Let it end, in the middle of whatever it does."""
        with self._lock:
            self._state = _State.GONE
        if self._connection is not None:
            self._connection.close()

    def _send(self, message: Run | Cancel | CancelAll) -> None:
        connection = self._connection
        if connection is not None and self._state is _State.READY:
            # One that is just ending does not listen any more: the thread that listens to it learns of that.
            with self._sending, suppress(OSError):
                connection.send(message)

    def _listen(self) -> None:
        connection, wait = self._spawn(self._slots)
        self._connection = connection
        with suppress(EOFError, OSError):
            while True:
                self._take(connection.recv())
        code = wait()
        with self._lock:
            before, self._state = self._state, _State.GONE
        if before is _State.READY:
            self._lost(f"the second process of this GPU's worker ended with code {code}")

    def _take(self, message: object) -> None:
        match message:
            case Ready():
                with self._lock:
                    if self._state is _State.STARTING:
                        self._state = _State.READY
            case Cannot(reason):
                self.reason = reason
            case Said(state):
                self.said = state
            case Ended(run, outcome, state):
                self.said = state
                awaited = self._awaited.pop(run, None)
                if awaited is not None:
                    with suppress(InvalidStateError):  # whoever waited has stopped doing so
                        awaited.set_result(outcome)


def _spawned(slots: int) -> tuple[Connection, Callable[[], int]]:
    """Start this Python once more, with the same modules to be found."""
    ours, theirs = Pipe()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
    descriptor = theirs.fileno()
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-m", _PROGRAM, str(descriptor), str(slots)],
        pass_fds=(descriptor,),
        stdin=subprocess.DEVNULL,
        stdout=_STANDARD_ERROR,
        env=environment,
    )
    theirs.close()
    return ours, process.wait
