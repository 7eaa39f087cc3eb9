"""What a worker process runs and has just run: when each piece of work began and ended, and how."""

import time
from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from ...errors import Cancelled, CodecfleetError, Retry

RECENT_S: Final = 5.0
"""How long an ended piece is still told of: heartbeats come every 2 s, and one may be lost."""
ENDED_KEPT: Final = 256
"""Of pieces that are shorter than that allows, only the newest are told of."""
KEPT_S: Final = 900.0
"""How far back a supervisor that takes over is told: as far as it keeps what it hears."""
TELLINGS: Final = 2
"""How many heartbeats in a row tell it all: one may be lost."""

ToldPiece: TypeAlias = tuple[str, str, str, float, float | None, str]
"""A piece as other processes are told of it, in plain values, which every release reads: run, job, label, begin, end.

Times are in seconds after the telling, so none is positive. The end is None while it runs, and the last value, which
says how it ended, "".
"""


class PieceEnding(Enum):
    """How a piece of work ended, for people."""

    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"  #: the same work fails the same way anywhere
    RETRY = "retry"  #: another try may succeed


def piece_ending(error: CodecfleetError | None) -> PieceEnding:
    """Return how a piece ended that has this error, or none."""
    if error is None:
        return PieceEnding.DONE
    if isinstance(error, Cancelled):
        return PieceEnding.CANCELLED
    return PieceEnding.FAILED if error.retry is Retry.NEVER else PieceEnding.RETRY


class Piece(NamedTuple):
    """A piece of work: ``run`` names this run of it, (``job``, ``label``) what it does.

    ``began_s`` and ``ended_s`` are of the machine's monotonic clock, which all its processes share; ``ended_s`` and
    ``ending`` are None while it runs.
    """

    run: str
    job: str
    label: str
    began_s: float
    ended_s: float | None = None
    ending: PieceEnding | None = None

    def told(self, now_s: float) -> ToldPiece:
        """Return it as others are told of it ``now_s``."""
        ended_s = None if self.ended_s is None else self.ended_s - now_s
        ending = "" if self.ending is None else self.ending.value
        return self.run, self.job, self.label, self.began_s - now_s, ended_s, ending


class EndedPieces:
    """The newest pieces that have ended. Not thread-safe."""

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque(maxlen=ENDED_KEPT)

    def add(self, piece: Piece, ending: PieceEnding) -> None:
        """Note the end of a piece, now."""
        self._pieces.append(piece._replace(ended_s=time.monotonic(), ending=ending))

    def recent(self, now_s: float | None = None) -> tuple[Piece, ...]:
        """Return those that ended within ``RECENT_S`` before now, oldest first."""
        since_s = (time.monotonic() if now_s is None else now_s) - RECENT_S
        return tuple(piece for piece in self._pieces if piece.ended_s is not None and piece.ended_s >= since_s)


class KeptPieces:
    """What all processes of a worker ran: a supervisor is told what is new, its successor all that is kept.

    At most ``ENDED_KEPT`` ended pieces are kept. Each is told by its run, so hearing of it again changes nothing. Not
    thread-safe.
    """

    def __init__(self) -> None:
        self._ended: dict[str, Piece] = {}
        self._term: int | None = None
        self._tellings = 0

    def note(self, pieces: Iterable[Piece]) -> None:
        """Keep those that have ended: while no supervisor asks, their processes name them for ``RECENT_S`` only."""
        self._ended |= {piece.run: piece for piece in pieces if piece.ended_s is not None}
        if len(self._ended) > ENDED_KEPT:
            newest = sorted(self._ended.values(), key=lambda piece: piece.ended_s or 0.0)[-ENDED_KEPT:]
            self._ended = {piece.run: piece for piece in newest}

    def told(self, pieces: Iterable[Piece], term: int, now_s: float) -> tuple[ToldPiece, ...]:
        """Return what the supervisor of ``term`` is told ``now_s``.

        Args:
            pieces: what all processes say of themselves: what runs, and what has ended lately.
            term: a new one is another supervisor's, which knows nothing.
            now_s: on the clock of the pieces.
        """
        said = tuple(pieces)
        self.note(said)
        self._tellings = self._tellings + 1 if term == self._term else 1
        self._term = term
        named = {piece.run: piece for piece in said if piece.ended_s is None or piece.ended_s >= now_s - RECENT_S}
        if self._tellings <= TELLINGS:
            since_s = now_s - KEPT_S
            named = {run: piece for run, piece in self._ended.items() if (piece.ended_s or 0.0) >= since_s} | named
        return tuple(piece.told(now_s) for piece in named.values())
