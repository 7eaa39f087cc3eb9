"""What a worker and a helper of it say to each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ....actors.device.interface import SessionCounts
from ....actors.device.pieces import Piece
from ...process.messages import Buffer, Request
from ..outcome import Outcome


@dataclass(frozen=True, slots=True)
class HelperState:
    """What a helper does, and has done."""

    frames_done: int = 0  #: all of its life
    running: tuple[tuple[str, str], ...] = ()  #: (job, label) of its work
    progress: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  #: frames by job and label
    use: SessionCounts = field(default_factory=SessionCounts)  #: its device's sessions
    pieces: tuple[Piece, ...] = ()  #: what it runs, and what has ended since it last told its state


class HelperServer(Protocol):
    """What a helper does for the worker."""

    async def run(self, run: str, packed_work: bytes, blobs: tuple[bytes, ...]) -> Outcome[Any]:
        """Run packed work, and tell the state at its end before its outcome."""
        ...

    def cancel(self, run: str, *, all_that_begin_so: bool) -> None:
        """Cancel one run, or every run whose name begins so."""
        ...


@dataclass(frozen=True, slots=True)
class HelperRun(Request[HelperServer, Outcome[Any]]):
    """Run packed work with its blobs; the state at its end is sent before the outcome."""

    run: str
    packed_work: Buffer
    blobs: tuple[Buffer, ...]

    async def serve(self, server: HelperServer) -> Outcome[Any]:
        return await server.run(self.run, bytes(self.packed_work), tuple(map(bytes, self.blobs)))


@dataclass(frozen=True, slots=True)
class HelperCancel(Request[HelperServer, None]):
    """Cancel one run, or every run whose name begins so."""

    run: str
    all_that_begin_so: bool = False

    async def serve(self, server: HelperServer) -> None:
        server.cancel(self.run, all_that_begin_so=self.all_that_begin_so)


class HelperWatch(Protocol):
    """What a helper tells the worker."""

    def heard(self, state: HelperState | None) -> None:
        """Take its state; the first, or None, says that it takes work."""
        ...

    def cannot(self, reason: str) -> None:
        """Take the reason for which it will never take work."""
        ...


@dataclass(frozen=True, slots=True)
class HelperTells(Request[HelperWatch, None]):
    """Its state, several times a second, also when it is idle; None once its device is open."""

    state: HelperState | None

    async def serve(self, server: HelperWatch) -> None:
        server.heard(self.state)


@dataclass(frozen=True, slots=True)
class HelperCannot(Request[HelperWatch, None]):
    """Why it cannot work; it ends then."""

    reason: str

    async def serve(self, server: HelperWatch) -> None:
        server.cannot(self.reason)
