"""A worker's helpers: processes beside it that run part of its work, each a child with limits of its own.

A second process on the same GPU: each picture of an NVDEC session costs the interpreter a dozen calls. One interpreter
feeds five 1080p sessions at full speed; a GPU with seven engines takes eighteen (docs/nvdec.md has the figures). So a
worker that is that busy and that fast starts a second process. To everything else it remains one worker: it has one
station, and lives and dies as one.

A process in which work runs alone (``lone_runs.py``): what breaks there breaks no other work.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Final, TypeAlias

from ....actors.device.pieces import EndedPieces, Piece
from ... import machine
from ...process.child import Child, ChildDied
from ...process.messages import beside
from ...process.process import StartedProcess, start_program
from ...process.running import UNLIMITED, Limits
from ...sandbox.confine import DATA_OF_MEMORY
from ..outcome import Outcome
from .messages import HelperCancel, HelperRun, HelperServer, HelperState

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
_PROGRAM: Final = f"{__package__.rpartition('.')[0]}.helper_program"
SECOND: Final = "second"
GPU: Final = "gpu"
CPU: Final = "cpu"
DLA: Final = "dla#"


Spawn: TypeAlias = Callable[[int], StartedProcess]
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


class HelperProcess:
    """One helper, seen from its worker. Thread-safe; no method blocks. It ends with the worker.

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
        self._awaited: set[Future[Outcome[Any]]] = set()
        self._child: Child[HelperServer] | None = None
        self._messages = 0
        self._last_message = (-1, 0.0)
        self.said = HelperState()
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
            asyncio.run_coroutine_threadsafe(self._live(), _helpers_loop())
        except RuntimeError as error:  # no more threads
            self._conclude(f"it cannot be started: {error}")

    def submit(self, run: str, packed_work: bytes, blobs: Sequence[bytes]) -> Future[Outcome[Any]]:
        """Run packed work there, once it is ready; the future has the outcome.

        It has ``ChildDied`` where the helper ended meanwhile, and ``WorkError`` where the result did not arrive.
        """
        order = HelperRun(run, beside(packed_work), tuple(map(beside, blobs)))
        awaited = asyncio.run_coroutine_threadsafe(self._call(order), _helpers_loop())
        self._awaited.add(awaited)
        awaited.add_done_callback(self._awaited.discard)
        return awaited

    async def _call(self, order: HelperRun) -> Outcome[Any]:
        if self._child is None:
            raise ChildDied("it was never started")
        return await self._child.call(order)

    def pieces(self) -> tuple[Piece, ...]:
        """Return what it said last that it runs."""
        return tuple(piece for piece in self.said.pieces if piece.ended_s is None)

    def take_ended(self) -> tuple[Piece, ...]:
        """Return what has ended there since this was last called."""
        return self._ended.take()

    def cancel(self, run: str) -> None:
        """Cancel a run; a process ignores runs that it never had."""
        self._tell(HelperCancel(run))

    def cancel_all(self, beginning: str) -> None:
        """Cancel every run whose name begins with ``beginning``."""
        self._tell(HelperCancel(beginning, all_that_begin_so=True))

    def look(self, now_s: float) -> None:
        """Check that it still reports, and kill it if not. To be called every few seconds."""
        limit_s = {_State.STARTING: STARTING_S, _State.READY: QUIET_S}.get(self._state)
        if limit_s is None:
            return
        if self._last_message[0] != self._messages:
            self._last_message = self._messages, now_s
        elif now_s - self._last_message[1] >= limit_s:
            self._conclude(f"it has said nothing for {limit_s:.0f} s")
            self._kill()

    def end(self) -> None:
        """Kill it, whatever it does: nothing more is said of it."""
        with self._lock:
            self._state = _State.GONE
        self._kill()

    def heard(self, state: HelperState | None) -> None:
        """Take what it tells; see ``HelperWatch``."""
        self._messages += 1
        if state is not None:
            self._ended.extend(state.pieces)
            self.said = state
            return
        with self._lock:
            is_new = self._state is _State.STARTING
            self._state = _State.READY if is_new else self._state
        if is_new:
            self._ready()

    def cannot(self, reason: str) -> None:
        """Take why it cannot work."""
        self._conclude(reason)

    def _tell(self, order: HelperCancel) -> None:
        if self._state is _State.READY and self._child is not None:
            # As ``submit`` does it, behind which it stays.
            asyncio.run_coroutine_threadsafe(self._told(self._child, order), _helpers_loop())

    async def _told(self, child: Child[HelperServer], order: HelperCancel) -> None:
        child.tell(order)

    def _kill(self) -> None:
        if self._child is not None:
            _helpers_loop().call_soon_threadsafe(self._child.kill)

    async def _live(self) -> None:
        try:
            child: Child[HelperServer] = Child(self._spawn(self._slots), self)
            self._child = child
        except Exception as error:  # noqa: BLE001 - no process, memory or descriptor: the worker continues alone
            self._conclude(f"it cannot be started: {type(error).__name__}: {error}")
            return
        if self._state is _State.GONE:
            child.kill()
        self._conclude(await child.death())

    def _conclude(self, why: str) -> None:
        """It has ended, or never will start; report it once."""
        with self._lock:
            before, self._state = self._state, _State.GONE
        if before is _State.READY:
            self._lost(why)
        elif before is _State.STARTING:
            self._refused(why)


@cache
def _helpers_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of all helpers; its thread lives as long as this process, since they end with it.

    Raises:
        RuntimeError: there are no more threads.
    """
    loop = asyncio.new_event_loop()
    try:
        threading.Thread(target=loop.run_forever, name="codecfleet-helpers", daemon=True).start()
    except RuntimeError:
        loop.close()
        raise
    return loop


def spawned(role: str, slots: int) -> StartedProcess:
    """Start a helper; ``role`` is ``helper_program``'s. One without a GPU may have no more data than a command may."""
    limits = Limits(memory_bytes=DATA_OF_MEMORY * machine.memory_bytes()) if role == CPU else UNLIMITED
    return start_program(_PROGRAM, slots, role, limits=limits)
