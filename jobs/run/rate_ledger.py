"""Keeps the encodings of a job that has to reach a rate, by segment and pass."""

from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction

from ...actors.encode.settings import crf_text, with_crf
from ...actors.segment.encoding import EncodeSegment
from ..journal.records import Encoded
from ..rate.allocation import SizeTry
from ..rate.goal import RateGoal
from ..rate.passes import BUCKET, FILM, SAMPLE, PassTry, RatePass


class RateLedger:
    """The encodings of a job's passes, and the pass that runs now. A job without a goal has no passes."""

    def __init__(self, goal: RateGoal | None) -> None:
        self.goal = goal
        self.tries: dict[int, tuple[PassTry, ...]] = {}
        self.now: RatePass | None = None

    def restore(self, record: Encoded) -> None:
        """Take a segment's encodings from the journal, if the job has passes."""
        if self.goal is None:
            return
        self.tries[record.segment] = tuple(
            PassTry(number, record.until, SizeTry(Fraction(crf), size)) for number, crf, size in record.tries
        )

    def begin(self, wanted: RatePass) -> None:
        """Begin a pass."""
        self.now = wanted

    def begin_join(self) -> None:
        """Begin the join, in which a segment keeps its last CRF if it is encoded again."""
        self.now = RatePass(BUCKET, {n: made[-1].tried.crf for n, made in self.tries.items()})

    def with_crf(self, work: EncodeSegment) -> EncodeSegment:
        """Return the work with the current pass's CRF for the segment."""
        return work if self.now is None else replace(work, encoder=with_crf(work.encoder, self._crf(work.segment)))

    def note(self, segment: int, until: int, size_bytes: int) -> tuple[tuple[int, str, int], ...]:
        """Add an encoding; return all encodings of its segment, in the form of a journal record."""
        if self.now is None:
            return ()
        made = PassTry(self.now.number, until, SizeTry(self._crf(segment), size_bytes))
        # Encodings from before a merge say nothing about the merged segment.
        earlier = tuple(each for each in self.tries.get(segment, ()) if each.until == until)
        self.tries[segment] = (*earlier, made)
        for merged in range(segment + 1, until + 1):
            self.tries.pop(merged, None)
        return tuple((each.number, crf_text(each.tried.crf), each.tried.size_bytes) for each in self.tries[segment])

    def of_film(self) -> Collection[int]:
        """Return the segments that need no encoding in the pass over the film; merged segments are not among them."""
        lasts = {segment: made[-1] for segment, made in self.tries.items()}
        return [n for n, last in lasts.items() if last.number >= FILM or last.tried.crf == self._crf(n)]

    def left(self) -> Collection[int]:
        """Return the segments that the pass has not encoded yet."""
        if self.now is None:
            return ()
        number = self.now.number
        return [n for n in self.now.crfs if all(each.number != number for each in self.tries.get(n, ()))]

    def frames_done(self, frames: list[int], left_frames: int) -> int:
        """Return the progress of the passes, as a number of the film's frames.

        ``frames`` has the number of frames in each segment; ``left_frames`` are left in this pass.
        """
        if self.goal is None or self.now is None:
            return 0
        film = sum(frames)
        work = film + sum(frames[number] for number in self.goal.sample)
        left = left_frames + (film if self.now.number == SAMPLE else 0)
        return film * max(0, work - left) // max(1, work)

    def _crf(self, segment: int) -> Fraction:
        if self.now is None:
            raise RuntimeError("no pass has begun")
        return self.now.crfs[segment]
