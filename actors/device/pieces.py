"""What a worker process runs and has just run: when each piece of work began and ended, and how."""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from ...errors import Cancelled, CodecfleetError, Retry

RECENT_S: Final = 5.0
"""How long an ended piece is still reported: heartbeats come every 2 s, and one may be lost."""
ENDED_KEPT: Final = 256
"""Of more ended pieces, only the newest are reported."""
KEPT_S: Final = 900.0
"""How far back a new supervisor gets reports: as far as it keeps its records."""
TELLINGS: Final = 3
"""How many heartbeats in a row report everything: the first only identifies the worker, and one may be lost."""

ToldPiece: TypeAlias = tuple[str, str, str, float, float | None, str]
"""A piece in plain values for other processes, readable by every release: run, job, label, begin, end.

Times are in seconds after the report, so none is positive. The end is None while it runs, and the last value, which
says how it ended, "".
"""


class Ending(Enum):
    """How work ended."""

    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"  #: the same work fails the same way anywhere
    RETRY = "retry"  #: another try may succeed
    RETRY_ELSEWHERE = "retry_elsewhere"  #: another try may succeed on another worker; this one ends


_ENDINGS: Final = {
    Retry.NEVER: Ending.FAILED,
    Retry.ANYWHERE: Ending.RETRY,
    Retry.ELSEWHERE: Ending.RETRY_ELSEWHERE,
}


def ending_of(error: CodecfleetError | None) -> Ending:
    """Return how work ended that raised this error, or none."""
    if error is None:
        return Ending.DONE
    return Ending.CANCELLED if isinstance(error, Cancelled) else _ENDINGS[error.retry]


class Piece(NamedTuple):
    """One run of work; times are of the machine's monotonic clock, which all its processes share."""

    run: str  # names this run of (job, label)
    job: str
    label: str
    began_s: float
    ended_s: float | None = None  # None while it runs
    ending: Ending | None = None  # None while it runs

    def told(self, now_s: float) -> ToldPiece:
        """Return the piece as plain values, with times relative to ``now_s``."""
        ended_s = None if self.ended_s is None else self.ended_s - now_s
        # Other processes only learn that another try may succeed.
        ending = "" if self.ending is None else self.ending.value.removesuffix("_elsewhere")
        return self.run, self.job, self.label, self.began_s - now_s, ended_s, ending


class EndedPieces:
    """The pieces that have ended since they were last taken: the newest ``ENDED_KEPT``. Thread-safe."""

    def __init__(self) -> None:
        # Without a lock, which threads that decode would queue for: both ends of a deque are put and taken atomically.
        self._pieces: deque[Piece] = deque(maxlen=ENDED_KEPT)

    def extend(self, pieces: Iterable[Piece]) -> None:
        """Add the ended ones among these pieces."""
        self._pieces.extend(piece for piece in pieces if piece.ended_s is not None)

    def take(self) -> tuple[Piece, ...]:
        """Return the pieces, oldest first, and forget them."""
        return tuple(self._taken())

    def _taken(self) -> Iterator[Piece]:
        with suppress(IndexError):
            while True:
                yield self._pieces.popleft()


class KeptPieces:
    """What all processes of a worker ran: a supervisor gets the news, its successor everything kept.

    At most ``ENDED_KEPT`` ended pieces are kept, the newest. Not thread-safe.
    """

    def __init__(self) -> None:
        self._ended: deque[Piece] = deque(maxlen=ENDED_KEPT)
        self._term: int | None = None
        self._tellings = 0

    def note(self, ended: Iterable[Piece]) -> None:
        """Keep the ended pieces; each is kept once."""
        self._ended.extend(ended)

    def told(self, running: Iterable[Piece], term: int, now_s: float) -> tuple[ToldPiece, ...]:
        """Return what the supervisor of ``term`` gets: what runs, and what ended within ``RECENT_S``.

        ``running`` is what all processes say that they run; of what has ended since, the end is reported. A new
        ``term`` is another supervisor's, which knows nothing.
        """
        self._tellings = self._tellings + 1 if term == self._term else 1
        self._term = term
        since_s = now_s - (KEPT_S if self._tellings <= TELLINGS else RECENT_S)
        ended = {piece.run: piece for piece in self._ended if (piece.ended_s or 0.0) >= since_s}
        named = ended | {piece.run: piece for piece in running if piece.run not in ended}
        return tuple(piece.told(now_s) for piece in named.values())
