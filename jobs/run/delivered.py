"""The encoded segments of a job that are on disk, each with the run that encoded it."""

from collections.abc import Collection, Mapping

from ...actors.segment.encoding import EncodedSegment
from ..board.events import Run
from ..join.spool import Spool, SpooledSegment


class DeliveredSegments:
    """The encoded segments by number. A merged segment replaces the encodings of its parts, as in the journal."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._spooled: dict[int, SpooledSegment] = {}
        self._runs: dict[int, Run] = {}
        self._put_here: set[int] = set()

    @property
    def spooled(self) -> Mapping[int, SpooledSegment]:
        """The segments as they are on disk."""
        return self._spooled

    @property
    def runs(self) -> Mapping[int, Run]:
        """The run that encoded each segment."""
        return self._runs

    def restore(self, run: Run, spooled: SpooledSegment) -> None:
        """Add a segment of an earlier run of the job."""
        self._spooled[run.segment], self._runs[run.segment] = spooled, run

    def put(self, run: Run, spooled: SpooledSegment) -> None:
        """Add a segment that was encoded now, and delete the files of the segments that it replaces."""
        for number in [n for n, each in self._runs.items() if each.until >= run.segment and n <= run.until]:
            earlier = self._spooled.pop(number)
            del self._runs[number]
            if earlier.path != spooled.path:
                self._spool.drop(earlier)
        self.restore(run, spooled)
        self._put_here.add(run.segment)

    def restored(self, segments: Collection[int]) -> frozenset[int]:
        """Return those of ``segments`` that an earlier run of the job encoded."""
        return frozenset(segments) - self._put_here

    def has_ends_of(self, result: EncodedSegment) -> bool:
        """Return whether ``result`` fits the neighbours: its seams equal those of the encoding on disk."""
        before, now = self._spooled[result.segment].facts.tally, result.tally
        return (before.seam_before, before.seam_after) == (now.seam_before, now.seam_after)

    def frames(self, *, without: Collection[int]) -> int:
        """Return how many pictures are in the segments, except for those of ``without``."""
        return sum(each.facts.frames_out for number, each in self._spooled.items() if number not in without)

    def first_shown(self, segment: int) -> int | None:
        """Return the time of a segment's first picture; None if it has none, or is not encoded."""
        found = self._spooled.get(segment)
        return None if found is None else found.facts.first_shown
