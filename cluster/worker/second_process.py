"""A worker's second process on the same GPU.

Each picture of an NVDEC session costs the interpreter a dozen calls. One interpreter feeds five 1080p sessions at full
speed; a GPU with seven engines takes eighteen (docs/nvdec.md has the figures). So a worker that is that busy and that
fast starts a second process, which runs part of its work. To everything else it remains one worker: it has one station,
and lives and dies as one.
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
from ...actors.device.pieces import EndedPieces, Piece
from .outcome import Outcome, unpacked

ALONE_MAX: Final = 5
"""How much work one process runs before a second one may help: with five sessions two are hardly faster."""
ALONE_FPS: Final = 2000.0
"""The least speed for a second process. CPU encoding beside the GPU is far slower, and needs none."""
PACE_S: Final = 0.5
"""The shortest interval over which speed is measured."""
QUIET_S: Final = 20.0
"""The longest silence. A call that holds its interpreter stops all its threads, and only we can detect that."""
STARTING_S: Final = 300.0
"""The time for opening its GPU, which waits as long as the first process did, and beside work."""
_END_S: Final = 5.0
"""How long a killed one may take to end: one that hangs in the kernel never does."""
_STANDARD_ERROR: Final = 2
"""The target of its standard output: the first process monitors its own for picture errors."""
_PROGRAM: Final = f"{__package__}.second_program"


class RunWork(NamedTuple):
    """To the second process: run packed work with its blobs."""

    run: str
    packed_work: bytes
    blobs: tuple[bytes, ...]


class Cancel(NamedTuple):
    """To the second process: cancel one run."""

    run: str


class CancelAll(NamedTuple):
    """To the second process: cancel every run whose name begins with ``beginning``."""

    beginning: str


@dataclass(frozen=True, slots=True)
class SecondState:
    """The second process's state: all frames done, (job, label) of its work, frames by job, sessions.

    ``pieces`` are what it runs, and what has ended since it last told its state.
    """

    frames_done: int = 0
    running: tuple[tuple[str, str], ...] = ()
    progress: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    use: SessionCounts = field(default_factory=SessionCounts)
    pieces: tuple[Piece, ...] = ()


class Ready(NamedTuple):
    """From the second process: its GPU is open."""


class Cannot(NamedTuple):
    """From the second process, before it ends: why it cannot work."""

    reason: str


class StateReport(NamedTuple):
    """From the second process, several times a second."""

    state: SecondState


class RunEnded(NamedTuple):
    """From the second process: a run's outcome, packed since it may be of any class, and its new state."""

    run: str
    packed_outcome: bytes
    state: SecondState


class SpawnedChild(NamedTuple):
    """A started process: its connection, how to kill it, and how to wait briefly for its exit code."""

    connection: Connection
    kill: Callable[[], object]
    wait: Callable[[], int | None]


Spawn: TypeAlias = Callable[[int], SpawnedChild]
"""Starts the process with a number of slots."""


@dataclass(slots=True)
class Pace:
    """A process's speed, between two looks that are far enough apart."""

    looked_s: float
    frames: int = 0
    fps: float = 0.0

    def wants_help(self, now_s: float, frames_done: int, running: int) -> bool:
        """Return whether a process with this much work and progress needs a second one."""
        elapsed_s = now_s - self.looked_s
        if elapsed_s >= PACE_S:
            self.fps = (frames_done - self.frames) / elapsed_s
            self.looked_s, self.frames = now_s, frames_done
        return running > ALONE_MAX and self.fps >= ALONE_FPS


class _State(Enum):
    """Edges: ABSENT -> STARTING -> READY -> GONE; STARTING -> GONE where it cannot work."""

    ABSENT = "absent"
    """Not needed yet."""
    STARTING = "starting"
    READY = "ready"
    GONE = "gone"
    """Permanent: if it was ready, its worker ends too."""


class SecondProcess:
    """The second process, seen from the first. Thread-safe; no method blocks. It ends with the first process.

    Args:
        slots: pieces of work at once.
        lost: called with the reason when it ends or falls silent after it was ready: its work is lost.
        refused: called with the reason when there will be none: its worker continues alone.
        spawn: starts it.
        ready: called once it takes work.
    """

    def __init__(
        self,
        slots: int,
        lost: Callable[[str], None],
        refused: Callable[[str], None],
        spawn: Spawn,
        ready: Callable[[], object] = bool,
    ) -> None:
        self._slots = slots
        self._lost = lost
        self._refused = refused
        self._spawn = spawn
        self._ready = ready
        self._lock = threading.Lock()
        self._state = _State.ABSENT
        self._awaited: dict[str, Future[Outcome[Any]]] = {}
        self._outbox: queue.SimpleQueue[RunWork | Cancel | CancelAll | None] = queue.SimpleQueue()
        self._child: SpawnedChild | None = None
        self._messages = 0
        self._last_message = (-1, 0.0)
        self.said = SecondState()
        self._ended = EndedPieces()

    @property
    def is_ready(self) -> bool:
        """Whether it takes work."""
        return self._state is _State.READY

    @property
    def busy(self) -> int:
        """How many pieces of work it has."""
        return len(self._awaited)

    def start(self) -> None:
        """Start it, unless it was started before."""
        with self._lock:
            if self._state is not _State.ABSENT:
                return
            self._state = _State.STARTING
        try:
            threading.Thread(target=self._live, name="codecfleet-second", daemon=True).start()
        except RuntimeError as error:  # no more threads
            self._conclude(f"it cannot be started: {error}")

    def submit(self, run: str, packed_work: bytes, blobs: Sequence[bytes]) -> Future[Outcome[Any]]:
        """Run packed work there. If it ends meanwhile the future is never done: its worker ends too."""
        awaited: Future[Outcome[Any]] = Future()
        self._awaited[run] = awaited
        self._send(RunWork(run, packed_work, tuple(blobs)))
        return awaited

    def pieces(self) -> tuple[Piece, ...]:
        """Return what it said last that it runs."""
        return tuple(piece for piece in self.said.pieces if piece.ended_s is None)

    def take_ended(self) -> tuple[Piece, ...]:
        """Return what has ended there since this was last called."""
        return self._ended.take()

    def cancel(self, run: str) -> None:
        """Cancel a run; a process ignores runs that it never had."""
        self._send(Cancel(run))

    def cancel_all(self, beginning: str) -> None:
        """Cancel every run whose name begins with ``beginning``."""
        self._send(CancelAll(beginning))

    def look(self, now_s: float) -> None:
        """Check that it still reports, and kill it if not. To be called every few seconds."""
        limit_s = {_State.STARTING: STARTING_S, _State.READY: QUIET_S}.get(self._state)
        if limit_s is None:
            return
        if self._last_message[0] != self._messages:
            self._last_message = self._messages, now_s
        elif now_s - self._last_message[1] >= limit_s:
            self._conclude(f"it has said nothing for {limit_s:.0f} s")
            if self._child is not None:
                self._child.kill()

    def end(self) -> None:
        """Kill it, whatever it does: nothing more is said of it."""
        with self._lock:
            self._state = _State.GONE
        if self._child is not None:
            self._child.kill()

    def _send(self, message: RunWork | Cancel | CancelAll) -> None:
        if self._state is _State.READY:
            # By a separate thread: the caller serves a whole worker, and the other end may not be reading.
            self._outbox.put(message)

    def _live(self) -> None:
        # All in one thread: the kernel kills the process when the thread that started it ends.
        try:
            self._child = child = self._spawn(self._slots)
        except Exception as error:  # noqa: BLE001 - no process, memory or descriptor: the worker continues alone
            self._conclude(f"it cannot be started: {type(error).__name__}: {error}")
            return
        why = ""
        try:
            threading.Thread(target=self._write, args=(child,), name="codecfleet-second-write", daemon=True).start()
            with suppress(EOFError, OSError):
                while True:
                    self._take(child.connection.recv())
        except Exception as error:  # noqa: BLE001 - no thread or memory: without messages it cannot work
            why = f"{type(error).__name__}: {error}"
        child.kill()
        self._conclude(why or f"it ended with code {child.wait()}")

    def _write(self, child: SpawnedChild) -> None:
        try:
            while (message := self._outbox.get()) is not None:
                child.connection.send(message)
        except Exception:  # noqa: BLE001 - without messages it cannot work; the reader sees its end
            child.kill()

    def _conclude(self, why: str) -> None:
        """It has ended, or never will start; report it once."""
        with self._lock:
            before, self._state = self._state, _State.GONE
        self._outbox.put(None)
        if before is _State.READY:
            self._lost(why)
        elif before is _State.STARTING:
            self._refused(why)

    def _note(self, state: SecondState) -> None:
        self._ended.extend(state.pieces)
        self.said = state

    def _take(self, message: object) -> None:
        self._messages += 1
        match message:
            case Ready():
                with self._lock:
                    is_new = self._state is _State.STARTING
                    self._state = _State.READY if is_new else self._state
                if is_new:
                    self._ready()
            case Cannot(reason):
                self._conclude(reason)
            case StateReport(state):
                self._note(state)
            case RunEnded(run, packed_outcome, state):
                self._note(state)
                awaited = self._awaited.pop(run, None)
                if awaited is not None:
                    with suppress(InvalidStateError):  # the caller no longer waits
                        awaited.set_result(unpacked(packed_outcome))


def spawned(role: str, slots: int) -> SpawnedChild:
    """Start this Python again, with the same module search path; ``role`` is ``second_program``'s."""
    ours, theirs = Pipe()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
    descriptor = theirs.fileno()
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - our own program
            # -P: the working folder does not come before this process's own path.
            [sys.executable, "-P", "-m", _PROGRAM, str(descriptor), str(slots), str(os.getpid()), role],
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=_STANDARD_ERROR,
            env=environment,
        )

    def wait() -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_END_S)
        return None

    return SpawnedChild(ours, process.kill, wait)
