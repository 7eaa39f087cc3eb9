"""What a worker process runs and has just run: when each piece of work began and ended, and how."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from ...errors import Cancelled, CodecfleetError, Retry

RECENT_S: Final = 5.0
"""How long an ended piece is still told of: heartbeats come every 2 s, and one may be lost."""
ENDED_KEPT: Final = 256
"""Of more ended pieces, only the newest are told of."""
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
    """The pieces that have ended since they were last taken: the newest ``ENDED_KEPT``. Thread-safe."""

    def __init__(self) -> None:
        # Without a lock, which threads that decode would queue for: both ends of a deque are put and taken atomically.
        self._pieces: deque[Piece] = deque(maxlen=ENDED_KEPT)

    def extend(self, pieces: Iterable[Piece]) -> None:
        """Add those of the pieces that have ended."""
        self._pieces.extend(piece for piece in pieces if piece.ended_s is not None)

    def take(self) -> tuple[Piece, ...]:
        """Return them, oldest first; each is returned once."""
        return tuple(self._taken())

    def _taken(self) -> Iterator[Piece]:
        with suppress(IndexError):
            while True:
                yield self._pieces.popleft()


class KeptPieces:
    """What all processes of a worker ran: a supervisor is told what is new, its successor all that is kept.

    At most ``ENDED_KEPT`` ended pieces are kept, the newest. Not thread-safe.
    """

    def __init__(self) -> None:
        self._ended: deque[Piece] = deque(maxlen=ENDED_KEPT)
        self._term: int | None = None
        self._tellings = 0

    def note(self, ended: Iterable[Piece]) -> None:
        """Keep pieces that have ended, each noted once."""
        self._ended.extend(ended)

    def told(self, running: Iterable[Piece], term: int, now_s: float) -> tuple[ToldPiece, ...]:
        """Return what the supervisor of ``term`` is told ``now_s``: what runs, and what ended within ``RECENT_S``.

        Args:
            running: what all processes say that they run; of what has ended since, the end is told.
            term: a new one is another supervisor's, which knows nothing.
            now_s: on the clock of the pieces.
        """
        self._tellings = self._tellings + 1 if term == self._term else 1
        self._term = term
        since_s = now_s - (KEPT_S if self._tellings <= TELLINGS else RECENT_S)
        ended = {piece.run: piece for piece in self._ended if (piece.ended_s or 0.0) >= since_s}
        named = ended | {piece.run: piece for piece in running if piece.run not in ended}
        return tuple(piece.told(now_s) for piece in named.values())
