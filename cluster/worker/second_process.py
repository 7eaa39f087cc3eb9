"""A worker's second process on the same GPU.

Every picture that a session of NVDEC gives takes the interpreter a dozen times. One interpreter feeds five sessions of
1080p at full speed, and a GPU with seven engines takes eighteen (docs/nvdec.md has the figures). So a worker that has
more work than that, and is as fast as that, starts a second process, which runs part of it. To everybody else it is
still one worker: it has one seat, and lives and dies as one.
"""

import os
import queue
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

from ...actors.device.interface import SessionCounts
from .outcome import Outcome, unpacked

__all__ = [
    "Cancel",
    "CancelAll",
    "Cannot",
    "Child",
    "Pace",
    "Ready",
    "RunEnded",
    "RunWork",
    "SecondProcess",
    "SecondState",
    "StateReport",
]

ALONE_MAX: Final = 5
"""How much work one process has before another may help it: with five sessions two are hardly faster than one."""
ALONE_FPS: Final = 2000.0
"""How fast it must be besides. Whoever encodes on the processors beside the GPU is far slower, and needs no help."""
PACE_S: Final = 0.5
"""The shortest time in which speed is measured."""
QUIET_S: Final = 20.0
"""How long it may say nothing. A call that holds its interpreter stops every thread of it, and only we can tell."""
STARTING_S: Final = 300.0
"""How long until its GPU is open. It waits for as much as the first one did, and beside work."""
_END_S: Final = 5.0
"""How long one that was killed may take to end: one that hangs in the kernel never does."""
_STANDARD_ERROR: Final = 2
"""Where the second one's output goes: to the first one's own, that one listens, for pictures called wrong."""
_PROGRAM: Final = f"{__package__}.second_program"


class RunWork(NamedTuple):
    """To the second process: run packed work, whose parcels are beside it."""

    run: str
    packed_work: bytes
    blobs: tuple[bytes, ...]


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
    use: SessionCounts = field(default_factory=SessionCounts)


class Ready(NamedTuple):
    """From the second process: its GPU is open."""


class Cannot(NamedTuple):
    """From the second process, before it ends: why it is of no use."""

    reason: str


class StateReport(NamedTuple):
    """From the second process, a few times a second."""

    state: SecondState


class RunEnded(NamedTuple):
    """From the second process: how a run ended, packed as it may be of any class, and what it does now."""

    run: str
    packed_outcome: bytes
    state: SecondState


class Child(NamedTuple):
    """A process that was started: the way to talk to it, what kills it, and what waits a moment for its exit code."""

    connection: Connection
    kill: Callable[[], object]
    wait: Callable[[], int | None]


Spawn: TypeAlias = Callable[[int], Child]
"""Starts the process for so many slots."""


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
    """The second process, seen from the first. Safe from any thread, and none of its methods waits.

    It ends with the first one, however that ends.

    Args:
        slots: pieces of work at once.
        lost: called when it ends after it was ready, or says nothing any more, with why: its work is lost.
        refused: called when there will be none, with why: its worker goes on alone.
        spawn: starts it; None starts this Python.
    """

    def __init__(
        self, slots: int, lost: Callable[[str], None], refused: Callable[[str], None], spawn: Spawn | None = None
    ) -> None:
        self._slots = slots
        self._lost = lost
        self._refused = refused
        self._spawn = spawn or _spawned
        self._lock = threading.Lock()
        self._state = _State.ABSENT
        self._awaited: dict[str, Future[Outcome[Any]]] = {}
        self._outbox: queue.SimpleQueue[RunWork | Cancel | CancelAll | None] = queue.SimpleQueue()
        self._child: Child | None = None
        self._messages = 0
        self._last_message = (-1, 0.0)
        self.said = SecondState()

    @property
    def is_ready(self) -> bool:
        """Whether it takes work."""
        return self._state is _State.READY

    @property
    def busy(self) -> int:
        """How many pieces of work it has."""
        return len(self._awaited)

    def start(self) -> None:
        """Have it started, if it never was."""
        with self._lock:
            if self._state is not _State.ABSENT:
                return
            self._state = _State.STARTING
        try:
            threading.Thread(target=self._live, name="codecfleet-second", daemon=True).start()
        except RuntimeError as error:  # no more threads
            self._conclude(f"it cannot be started: {error}")

    def submit(self, run: str, packed_work: bytes, blobs: Sequence[bytes]) -> Future[Outcome[Any]]:
        """Have it run packed work. If it ends meanwhile the future is never done: its worker ends too."""
        awaited: Future[Outcome[Any]] = Future()
        self._awaited[run] = awaited
        self._send(RunWork(run, packed_work, tuple(blobs)))
        return awaited

    def cancel(self, run: str) -> None:
        """Cancel a run, wherever it is; the other process knows what to do with one that it never had."""
        self._send(Cancel(run))

    def cancel_all(self, beginning: str) -> None:
        """Cancel every run whose name begins so."""
        self._send(CancelAll(beginning))

    def look(self, now_s: float) -> None:
        """See whether it still says something, and end it where it does not. To be called every few seconds."""
        limit_s = {_State.STARTING: STARTING_S, _State.READY: QUIET_S}.get(self._state)
        if limit_s is None:
            return
        if self._last_message[0] != self._messages:
            self._last_message = self._messages, now_s
        elif now_s - self._last_message[1] >= limit_s:
            self._conclude(f"it has said nothing for {limit_s:.0f} s")
            if self._child is not None:
                self._child.kill()

    def _send(self, message: RunWork | Cancel | CancelAll) -> None:
        if self._state is _State.READY:
            # By a thread of its own: whoever calls answers for a whole worker, and the other one may not be listening.
            self._outbox.put(message)

    def _live(self) -> None:
        # In one thread from beginning to end: the kernel kills the process when the thread that started it ends.
        try:
            self._child = child = self._spawn(self._slots)
        except Exception as error:  # noqa: BLE001 - no process, no memory, no descriptor: the worker goes on alone
            self._conclude(f"it cannot be started: {type(error).__name__}: {error}")
            return
        why = ""
        try:
            threading.Thread(target=self._write, args=(child,), name="codecfleet-second-write", daemon=True).start()
            self._listen(child.connection)
        except Exception as error:  # noqa: BLE001 - no thread, no memory: who cannot be heard is of no use
            why = f"{type(error).__name__}: {error}"
        child.kill()
        self._conclude(why or f"it ended with code {child.wait()}")

    def _write(self, child: Child) -> None:
        try:
            while (message := self._outbox.get()) is not None:
                child.connection.send(message)
        except Exception:  # noqa: BLE001 - who cannot be told what to do is of no use; who listens learns of its end
            child.kill()

    def _listen(self, connection: Connection) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._take(connection.recv())

    def _conclude(self, why: str) -> None:
        """It is over, or never will be; tell it once."""
        with self._lock:
            before, self._state = self._state, _State.GONE
        self._outbox.put(None)
        if before is _State.READY:
            self._lost(why)
        elif before is _State.STARTING:
            self._refused(why)

    def _take(self, message: object) -> None:
        self._messages += 1
        match message:
            case Ready():
                with self._lock:
                    if self._state is _State.STARTING:
                        self._state = _State.READY
            case Cannot(reason):
                self._conclude(reason)
            case StateReport(state):
                self.said = state
            case RunEnded(run, packed_outcome, state):
                self.said = state
                awaited = self._awaited.pop(run, None)
                if awaited is not None:
                    with suppress(InvalidStateError):  # whoever waited has stopped doing so
                        awaited.set_result(unpacked(packed_outcome))


def _spawned(slots: int) -> Child:
    """Start this Python once more, with the same modules to be found."""
    ours, theirs = Pipe()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
    descriptor = theirs.fileno()
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - our own program
            # -P: what lies in the working folder is not found before what this process finds.
            [sys.executable, "-P", "-m", _PROGRAM, str(descriptor), str(slots), str(os.getpid())],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=_STANDARD_ERROR,
            env=environment,
        )

    def wait() -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_END_S)
        return None

    return Child(ours, process.kill, wait)
