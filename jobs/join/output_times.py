"""Presentation and decoding times of the joined track: pure arithmetic, streamed segment by segment.

DTS are rewritten over the whole track. With the reorder delay D of the encoder's parameter sets, the picture in
place i of decoding order is decoded when the (i-D)-th picture of presentation order is shown: that is monotonic, never
after its own presentation, and the smallest delay that a decoder of those parameter sets can keep up with
(H.264 C.4.5.3, H.265 C.5.2.3). The first D pictures decode one tick apart before the first is shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from ...errors import ProofFailed


@dataclass(frozen=True, slots=True)
class PacketTimes:
    """The times of one packet, in ticks of the output."""

    pts: int
    dts: int
    duration: int


@dataclass(slots=True)
class OutputTimes:
    """Turns source times into output times. ``origin_s`` is the source's time that becomes 0."""

    source_time_base: Fraction
    output_tick: Fraction
    origin_s: Fraction
    reorder_frames: int
    last_duration_ticks: Fraction
    """How long the very last picture is shown, in source ticks."""
    _shown: list[int] = field(default_factory=list)
    _placed: int = 0
    _forgotten: int = 0

    def to_output(self, ticks: int) -> int:
        """Return a source time in ticks of the output, rounded to the nearest."""
        return round((ticks * self.source_time_base - self.origin_s) / self.output_tick)

    def segment(self, pts_ticks: Sequence[int], following: int | None) -> list[PacketTimes]:
        """Return the times of a segment's packets, given in decoding order by their source times.

        ``following`` is the source time of the first picture after the segment, None at the track's end.

        Raises:
            ProofFailed: two pictures fall on one tick of the output, or a picture would be shown before it is decoded.
        """
        shown = sorted(pts_ticks)
        output = [self.to_output(ticks) for ticks in shown]
        if following is None:
            end_s = (shown[-1] + self.last_duration_ticks) * self.source_time_base - self.origin_s
            after = max(output[-1] + 1, round(end_s / self.output_tick))
        else:
            after = self.to_output(following)
        durations = dict(zip(output, _steps([*output, after]), strict=True))
        first = self._shown[0] if self._shown else output[0]
        self._shown = [*self._shown, *output]
        times = []
        for ticks in pts_ticks:
            pts = self.to_output(ticks)
            place = self._placed - self.reorder_frames
            dts = first + place if place < 0 else self._shown[place - self._forgotten]
            times.append(PacketTimes(pts, dts, durations[pts]))
            self._placed += 1
            if dts > pts:
                message = f"the picture at tick {pts} would be decoded at {dts}, after it is shown"
                raise ProofFailed(message, "The encoder reorders more than its parameter sets state; please report it.")
        # Later packets need only the times that no picture was decoded at yet.
        gone = max(0, self._placed - self.reorder_frames - self._forgotten)
        self._shown = self._shown[gone:]
        self._forgotten += gone
        return times


def _steps(times: Sequence[int]) -> list[int]:
    steps = [b - a for a, b in pairwise(times)]
    if any(step <= 0 for step in steps):
        message = "two pictures would be shown at the same tick of the output"
        raise ProofFailed(message, "Write to .mp4 or .mov, which keep the source's own ticks.")
    return steps
