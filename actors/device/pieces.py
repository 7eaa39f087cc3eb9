"""The work that a worker process runs or has just run.

Each run of work is a *piece*. A piece states when the run began and ended, and how it ended.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from ...errors import Cancelled, CodecfleetError, Retry

RECENT_S: Final = 5.0
"""How long an ended piece is still reported: heartbeats come every 2 s, and a heartbeat may be lost."""
ENDED_KEPT: Final = 256
"""The most ended pieces that are reported; older pieces are left out."""
KEPT_S: Final = 900.0
"""How long ended pieces are reported to a new supervisor; supervisors keep records this long."""
FULL_REPORTS: Final = 3
"""How many heartbeats report all kept pieces to a new supervisor: the first only identifies the worker, and another may
be lost.
"""

ReportedPiece: TypeAlias = tuple[str, str, str, float, float | None, str]
"""A piece in plain values, which every release can read: run, job, label, begin, end, ending.

Times are in seconds relative to the report, so they are 0 or negative. While the piece runs, the end is None and the
ending is "".
"""


class Ending(Enum):
    """How a run of work ended."""

    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"  #: the same work fails the same way anywhere
    RETRY = "retry"  #: another try may succeed
    RETRY_ELSEWHERE = "retry_elsewhere"  #: another try may succeed on another worker; this worker ends


_ENDINGS: Final = {
    Retry.NEVER: Ending.FAILED,
    Retry.ANYWHERE: Ending.RETRY,
    Retry.ELSEWHERE: Ending.RETRY_ELSEWHERE,
}


def ending_of(error: CodecfleetError | None) -> Ending:
    """Return the ending of work that raised this error; None means that the work raised no error."""
    if error is None:
        return Ending.DONE
    return Ending.CANCELLED if isinstance(error, Cancelled) else _ENDINGS[error.retry]


class Piece(NamedTuple):
    """One run of work. Times are those of the monotonic clock, which all processes of a machine share."""

    run: str  # the name of this run of (job, label)
    job: str
    label: str
    began_s: float
    ended_s: float | None = None  # None while the piece runs
    ending: Ending | None = None  # None while the piece runs

    def reported(self, now_s: float) -> ReportedPiece:
        """Return the piece as plain values, with times relative to ``now_s``."""
        ended_s = None if self.ended_s is None else self.ended_s - now_s
        # Supervisors learn that another try may succeed, but not whether that needs another worker.
        ending = "" if self.ending is None else self.ending.value.removesuffix("_elsewhere")
        return self.run, self.job, self.label, self.began_s - now_s, ended_s, ending


class EndedPieces:
    """The newest ``ENDED_KEPT`` of the pieces that have ended since the last ``take``. Thread-safe."""

    def __init__(self) -> None:
        # A lock would make decoding threads wait. No lock is needed, because a deque's append and pop are atomic.
        self._pieces: deque[Piece] = deque(maxlen=ENDED_KEPT)

    def extend(self, pieces: Iterable[Piece]) -> None:
        """Add the ended pieces among the given pieces."""
        self._pieces.extend(piece for piece in pieces if piece.ended_s is not None)

    def take(self) -> tuple[Piece, ...]:
        """Return the pieces, oldest first, and remove them."""
        return tuple(self._taken())

    def _taken(self) -> Iterator[Piece]:
        with suppress(IndexError):
            while True:
                yield self._pieces.popleft()


class KeptPieces:
    """The pieces that all processes of a worker ran. A supervisor gets the recent pieces, a new supervisor all of them.

    Only the newest ``ENDED_KEPT`` ended pieces are kept. Not thread-safe.
    """

    def __init__(self) -> None:
        self._ended: deque[Piece] = deque(maxlen=ENDED_KEPT)
        self._term: int | None = None
        self._reports = 0

    def note(self, ended: Iterable[Piece]) -> None:
        """Keep these ended pieces; a report has each piece only once, even if it was given twice."""
        self._ended.extend(ended)

    def reported(self, running: Iterable[Piece], term: int, now_s: float) -> tuple[ReportedPiece, ...]:
        """Return the report for the supervisor of ``term``: pieces that run, or that ended within ``RECENT_S``.

        ``running`` has the pieces that the processes report as running; any of them that have ended since are reported
        as ended. A new ``term`` is another supervisor, which knows no pieces yet: its first reports go back ``KEPT_S``.
        """
        self._reports = self._reports + 1 if term == self._term else 1
        self._term = term
        since_s = now_s - (KEPT_S if self._reports <= FULL_REPORTS else RECENT_S)
        ended = {piece.run: piece for piece in self._ended if (piece.ended_s or 0.0) >= since_s}
        named = ended | {piece.run: piece for piece in running if piece.run not in ended}
        return tuple(piece.reported(now_s) for piece in named.values())
