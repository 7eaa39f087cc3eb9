"""Keeping the joined track within its leaky bucket: segments that would run it dry are encoded again.

Segments are judged in order, each from the level that those before it really left. So the outcome is a function of the
plan alone, like everything else that decides bytes.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import floor

from ...actors.encode.profiles import INITIAL_FULLNESS
from ...actors.segment.encoding import EncodedSegment, EncodeSegment
from ...actors.settle.request import with_initial_fullness
from ..plan.plan import Plan
from ..report.report import Warning_
from .leaky_bucket import LeakyBucket, Passage

STEPS = 100
"""The encoder gets its initial fullness in hundredths, rounded down: it may find more, never less."""
TRIES = 3
"""How often one segment is encoded again; each time it is to expect half as much as before."""


class RateGuard:
    """The bucket of one track, while its segments pass in order. Without limits it lets everything pass."""

    def __init__(self, plan: Plan) -> None:
        rate = plan.encoder.rate
        self._plan = plan
        self._bucket = None
        if rate.maxrate_bps is not None and rate.bufsize_bits is not None:
            self._bucket = LeakyBucket(rate.bufsize_bits, rate.maxrate_bps)
        self._fullness_bits = Fraction(0) if self._bucket is None else self._bucket.size_bits * INITIAL_FULLNESS
        self._tries = 0
        self.underflows = 0

    def judge(self, facts: EncodedSegment, following_ticks: int | None) -> bool:
        """Return whether a segment may be joined as it is; if so, the bucket stands where the segment leaves it."""
        if self._bucket is None:
            return True
        passage = self._pass(self._bucket, facts, following_ticks)
        if passage.underflows and self._tries < TRIES:
            # Some encoders cannot be given the bucket's fullness.
            lowest = with_initial_fullness(self._plan.encoder, Fraction(0))
            if lowest != self._plan.encoder:
                return False
        self._fullness_bits = passage.fullness_bits
        self.underflows += passage.underflows
        self._tries = 0
        return True

    def again(self, work: EncodeSegment) -> EncodeSegment:
        """Return the work of a rejected segment, with the bucket's real fullness."""
        if self._bucket is None:
            return work
        expected = self._fullness_bits / self._bucket.size_bits / 2**self._tries
        self._tries += 1
        fullness = Fraction(floor(expected * STEPS), STEPS)
        return replace(work, encoder=with_initial_fullness(self._plan.encoder, fullness))

    def warnings(self) -> list[Warning_]:
        """Return what the user should know of the joined track's rate."""
        if not self.underflows:
            return []
        message = f"{self.underflows} pictures are larger than --maxrate and --bufsize allow, whatever was tried"
        return [Warning_(code="rate-exceeded", message=message, checks=())]

    def _pass(self, bucket: LeakyBucket, facts: EncodedSegment, following_ticks: int | None) -> Passage:
        shown = sorted(int(ticks) for ticks in facts.pts_ticks)
        if not shown:
            return Passage(self._fullness_bits, 0)
        index = self._plan.index
        after = shown[-1] + index.nominal_ticks if following_ticks is None else following_ticks
        # Pictures leave the buffer at the pace of presentation: decoding runs ahead by a constant delay.
        durations_s = [(b - a) * index.time_base for a, b in pairwise([*shown, after])]
        return bucket.pass_through(self._fullness_bits, [int(size) for size in facts.sizes_bytes], durations_s)
