"""A worker's helper: a child process that runs part of the worker's work; other processes see one worker.

A helper is either a second process on the same GPU, because one interpreter keeps only five 1080p sessions busy and a
GPU with seven engines takes eighteen (docs/nvdec.md), or a process that runs work alone, so that a crash affects no
other work (``lone_runs.py``).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..background import Background
from ..device.interface import SessionCounts
from ..device.pieces import EndedPieces, Piece
from ..process.child import Child, ChildDied
from ..process.messages import Buffer, Request, beside
from ..process.process import StartedProcess
from .outcome import Outcome

if TYPE_CHECKING:
    from .helper_host import HelperHost

ALONE_MAX: Final = 5
"""A second process may help only if the first runs more pieces of work than this; otherwise it would hardly add any
speed.
"""
ALONE_FPS: Final = 2000.0
"""The lowest speed, in frames a second, at which a second process helps; with CPU encoding a worker is far slower."""
PACE_S: Final = 0.5
"""The shortest interval over which speed is measured."""
QUIET_S: Final = 20.0
"""How long a helper may be silent. A call that holds the GIL stops all threads of the helper, which only its worker can
detect.
"""
STARTING_S: Final = 300.0
"""How long a helper may take to open its GPU, which the first process is using."""

Spawn: TypeAlias = Callable[[int], StartedProcess]
"""Starts a helper's process that has this number of slots."""


@dataclass(frozen=True, slots=True)
class HelperState:
    """A helper's report to its worker, sent several times a second."""

    frames_done: int = 0  #: since the helper started
    progress: Mapping[str, int] = field(default_factory=dict)  #: how many frames of running work are done, by run
    use: SessionCounts = field(default_factory=SessionCounts)  #: sessions on the helper's device
    pieces: tuple[Piece, ...] = ()  #: runs of work that are in progress, or ended since the last report


@dataclass(frozen=True, slots=True)
class HelperRun(Request["HelperHost", Outcome[Any]]):
    """Run packed work with its blobs."""

    run: str
    packed_work: Buffer
    blobs: tuple[Buffer, ...]

    async def serve(self, server: "HelperHost") -> Outcome[Any]:
        return await server.run(self.run, bytes(self.packed_work), tuple(map(bytes, self.blobs)))


@dataclass(frozen=True, slots=True)
class HelperCancel(Request["HelperHost", None]):
    """Cancel a run in the helper."""

    run: str

    async def serve(self, server: "HelperHost") -> None:
        server.core.cancel(self.run)


@dataclass(frozen=True, slots=True)
class HelperReport(Request["Helper", None]):
    """Sends the helper's state to the worker, several times a second."""

    state: HelperState | None  #: None only reports that the helper's device is open

    async def serve(self, server: "Helper") -> None:
        server.reported(self.state)


@dataclass(slots=True)
class Pace:
    """A process's speed, measured over at least ``PACE_S``."""

    looked_s: float
    frames: int = 0
    fps: float = 0.0

    def wants_help(self, now_s: float, frames_done: int, running: int) -> bool:
        """Return whether a process that runs this many pieces of work needs a second process to help it."""
        elapsed_s = now_s - self.looked_s
        if elapsed_s >= PACE_S:
            self.fps = (frames_done - self.frames) / elapsed_s
            self.looked_s, self.frames = now_s, frames_done
        return running > ALONE_MAX and self.fps >= ALONE_FPS


class Helper:
    """One helper process. Used from the worker's event loop, and ends with that loop.

    ``ended`` is called once, with the reason, when the helper is gone or cannot take work.
    """

    def __init__(self, spawn: Spawn, slots: int, ended: Callable[[str], object] = bool) -> None:
        self._spawn = spawn
        self._slots = slots
        self._on_end = ended
        self.is_up = asyncio.Event()  #: set when the helper takes work, or is gone
        self._child: Child[HelperHost] | None = None
        self._silent_since_s: float | None = None
        self._ended_pieces = EndedPieces()
        self.has_been_ready = False
        self.gone = ""  #: why the helper takes no more work
        self.busy = 0  #: how many runs of work the helper has now
        self.state = HelperState()  #: the helper's last report
        self._tasks = Background(lambda _, error: self.over(f"{type(error).__name__}: {error}"))
        self._tasks.spawn("a worker's helper", self._live())

    @property
    def is_ready(self) -> bool:
        """Whether the helper takes work."""
        return self.has_been_ready and not self.gone

    async def run(self, run: str, packed_work: bytes, blobs: Sequence[bytes]) -> Outcome[Any]:
        """Run work in the helper process.

        Raises ChildDied if the helper is gone or dies, and WorkError if the result is lost.
        """
        if self._child is None:
            raise ChildDied(self.gone)
        self.busy += 1
        try:
            return await self._child.call(HelperRun(run, beside(packed_work), tuple(map(beside, blobs))))
        finally:
            self.busy -= 1

    def pieces(self) -> tuple[Piece, ...]:
        """Return the helper's running work, as last reported."""
        return tuple(piece for piece in self.state.pieces if piece.ended_s is None)

    def take_ended(self) -> tuple[Piece, ...]:
        """Return the work that has ended since the last call of this method."""
        return self._ended_pieces.take()

    def cancel(self, run: str) -> None:
        """Cancel a run; unknown runs are ignored."""
        if self._child is not None:
            self._child.tell(HelperCancel(run))

    def look(self, now_s: float) -> None:
        """End the helper if it no longer reports; call this every few seconds."""
        if self.gone:
            return
        limit_s = QUIET_S if self.has_been_ready else STARTING_S
        if self._silent_since_s is None:
            self._silent_since_s = now_s
        elif now_s - self._silent_since_s >= limit_s:
            self.end(f"it was silent for {limit_s:.0f} s")

    def end(self, why: str) -> None:
        """Kill the helper process, and report ``why`` as the reason."""
        self.over(why)
        if self._child is not None:
            self._child.kill(why)

    def reported(self, state: HelperState | None) -> None:
        """Take a report; ``state`` is None if the helper only reports that its device is open."""
        self._silent_since_s = None
        if state is not None:
            self._ended_pieces.extend(state.pieces)
            self.state = state
        elif not self.gone:
            self.has_been_ready = True
            self.is_up.set()

    def over(self, why: str) -> None:
        """Record why the helper takes no more work; only the first reason is kept."""
        if not self.gone:
            self.gone = why
            self.is_up.set()
            self._on_end(why)

    async def _live(self) -> None:
        try:
            self._child = Child(self._spawn(self._slots), self)
        except Exception as error:  # noqa: BLE001 - the worker continues without a helper, whatever prevents the start
            self.over(f"it cannot be started: {type(error).__name__}: {error}")
            return
        self.over(await self._child.death())
