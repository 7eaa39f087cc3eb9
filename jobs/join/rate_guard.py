"""Keeps the joined track within its leaky bucket: a segment that would empty the bucket is encoded again.

The bucket is a decoder's buffer (the hypothetical reference decoder of H.264 C.1 and H.265 C.2, with variable bitrate).
An encoder keeps its own segment within the buffer, but has to assume how full the buffer is at first. Segments are
judged in order, each from the level at which the previous one ends, so the outcome depends only on the plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import floor

from ...actors.encode.profiles import INITIAL_FULLNESS
from ...actors.segment.encoding import EncodedSegment, EncodeSegment
from ...actors.settle.request import with_initial_fullness
from ..plan.plan import Plan
from ..report.report import Warning_

#: The encoder takes the initial fullness in hundredths; it is rounded down, and so never too high
STEPS = 100
TRIES = 3  #: A segment is encoded again at most this often: with the actual fullness, with half of it, and so on


@dataclass(frozen=True, slots=True)
class Passage:
    """The buffer after a run of pictures: its fullness, and how many times it underflowed."""

    fullness_bits: Fraction
    underflows: int


@dataclass(frozen=True, slots=True)
class LeakyBucket:
    """A decoder's buffer of ``size_bits`` that fills at ``rate_bps``."""

    size_bits: int
    rate_bps: int

    @property
    def begins_bits(self) -> Fraction:
        """How full it is at the beginning of a track."""
        return self.size_bits * INITIAL_FULLNESS

    def pass_through(
        self, fullness_bits: Fraction, sizes_bytes: Sequence[int], durations_s: Sequence[Fraction]
    ) -> Passage:
        """Take pictures out of the buffer in decoding order; ``durations_s[n]`` is the time after picture n.

        After an underflow the buffer counts as empty, so that one late picture is counted once.
        """
        underflows = 0
        for size, duration_s in zip(sizes_bytes, durations_s, strict=True):
            fullness_bits -= size * 8
            if fullness_bits < 0:
                underflows += 1
                fullness_bits = Fraction(0)
            fullness_bits = min(Fraction(self.size_bits), fullness_bits + self.rate_bps * duration_s)
        return Passage(fullness_bits, underflows)


class RateGuard:
    """The bucket of one track, through which its segments pass in order; without limits, all segments pass."""

    def __init__(self, plan: Plan) -> None:
        rate = plan.encoder.rate
        self._plan = plan
        self._bucket = None
        if rate.maxrate_bps is not None and rate.bufsize_bits is not None:
            self._bucket = LeakyBucket(rate.bufsize_bits, rate.maxrate_bps)
        begins = Fraction(0) if self._bucket is None else self._bucket.begins_bits
        self._fullness_bits = begins if plan.fullness_bits is None else plan.fullness_bits
        self._tries = 0
        self.underflows = 0

    def judge(self, facts: EncodedSegment, following_ticks: int | None) -> bool:
        """Return whether a segment may be joined unchanged; if so, update the bucket."""
        if self._bucket is None:
            return True
        passage = self._pass(self._bucket, facts, following_ticks)
        if passage.underflows and self._tries < TRIES:
            lowest = with_initial_fullness(self._plan.encoder, Fraction(0))
            if lowest != self._plan.encoder:  # some encoders cannot set the initial fullness
                return False
        self._fullness_bits = passage.fullness_bits
        self.underflows += passage.underflows
        self._tries = 0
        return True

    def again(self, work: EncodeSegment) -> EncodeSegment:
        """Return the work of a rejected segment, with the initial fullness of its next try (see ``TRIES``)."""
        if self._bucket is None:
            return work
        expected = self._fullness_bits / self._bucket.size_bits / 2**self._tries
        self._tries += 1
        fullness = Fraction(floor(expected * STEPS), STEPS)
        return replace(work, encoder=with_initial_fullness(work.encoder, fullness))

    def warnings(self) -> list[Warning_]:
        """Return a warning if pictures exceed the limits."""
        if not self.underflows:
            return []
        message = f"{self.underflows} pictures are larger than --maxrate and --bufsize allow, after all retries"
        return [Warning_(code="rate-exceeded", message=message, checks=())]

    def _pass(self, bucket: LeakyBucket, facts: EncodedSegment, following_ticks: int | None) -> Passage:
        shown = sorted(int(ticks) for ticks in facts.pts_ticks)
        if not shown:
            return Passage(self._fullness_bits, 0)
        clock = self._plan.clock
        after = shown[-1] + clock.shown_ticks(shown[-1]) if following_ticks is None else following_ticks
        # Pictures leave the buffer at the pace of presentation, since decoding is a constant time ahead of it.
        durations_s = [(b - a) * clock.tick_s for a, b in pairwise([*shown, after])]
        return bucket.pass_through(self._fullness_bits, [int(size) for size in facts.sizes_bytes], durations_s)
