"""The leaky bucket of a rate-limited track: a decoder's buffer, simulated over the whole joined track.

Bits flow in at the maximum rate until the buffer is full; each picture takes its bits out at once when it is decoded
(the hypothetical reference decoder of H.264 C.1 and H.265 C.2, with variable bitrate). An encoder keeps one segment
within its buffer, but it assumes how full the buffer is when the segment starts; over a join only this sum is true.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Passage:
    """What a run of pictures did to the buffer: how full it was after them, and how often it ran dry."""

    fullness_bits: Fraction
    underflows: int


@dataclass(frozen=True, slots=True)
class LeakyBucket:
    """A decoder's buffer of ``size_bits`` that fills at ``rate_bps``."""

    size_bits: int
    rate_bps: int

    def pass_through(
        self, fullness_bits: Fraction, sizes_bytes: Sequence[int], durations_s: Sequence[Fraction]
    ) -> Passage:
        """Take pictures out of the buffer in decoding order; the n-th interval between them is ``durations_s[n]``.

        A picture that finds too few bits is an underflow; the buffer is then taken as empty, so that one late picture
        is counted once.
        """
        underflows = 0
        for size, duration_s in zip(sizes_bytes, durations_s, strict=True):
            fullness_bits -= size * 8
            if fullness_bits < 0:
                underflows += 1
                fullness_bits = Fraction(0)
            fullness_bits = min(Fraction(self.size_bits), fullness_bits + self.rate_bps * duration_s)
        return Passage(fullness_bits, underflows)
