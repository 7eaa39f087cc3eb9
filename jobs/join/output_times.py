"""Computes the presentation and decoding times of the joined track, segment by segment. Pure.

Packet i (in decoding order) is decoded ``lead`` before the time at which picture i (in presentation order) is shown.
This suits mp4 and mov, where decoding times are sums of durations: each sample then lasts as long as a picture.

With reorder delay D, packet i must also not be decoded after picture i-D is shown (H.264 C.4.5.3, H.265 C.5.2.3). Both
bounds rise with i, and neither bound needs a picture of a later segment, so cuts change no time.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...errors import ProofFailed

LONGEST_FINAL_LEAD_S: Final = 10  #: The last pictures do not count for the lead if they are shown for longer than this


def decoding_lead(times: NDArray[np.int64], reorder_frames: int, usual: Fraction, tick_s: Fraction) -> Fraction:
    """Return ``lead`` in the ticks of ``times``, the sorted times of all pictures.

    The lead is the longest span of ``reorder_frames`` pictures among the spans below 1.5 times the median. It is at
    least the span of the last pictures, unless their span exceeds ``LONGEST_FINAL_LEAD_S``. If the track has one
    picture, the picture lasts ``usual``.
    """
    if not reorder_frames:
        return Fraction(0)
    if len(times) <= reorder_frames:
        return reorder_frames * max([usual, *(Fraction(int(step)) for step in np.diff(times))])
    spans = times[reorder_frames:] - times[:-reorder_frames]
    median = int(np.sort(spans)[len(spans) // 2])
    last = int(spans[-1]) if int(spans[-1]) * tick_s <= LONGEST_FINAL_LEAD_S else 0
    return Fraction(max(int(spans[2 * spans < 3 * median].max(initial=median)), last))


@dataclass(frozen=True, slots=True)
class PacketTimes:
    """The times of one packet, in ticks of the output."""

    pts: int
    dts: int
    duration: int


@dataclass(slots=True)
class OutputTimes:
    """Turns the source's picture times into the output's packet times. Call ``segment`` for each segment in order."""

    source_time_base: Fraction
    output_tick: Fraction
    origin_s: Fraction  #: the source time that becomes 0 in the output
    reorder_frames: int
    lead_ticks: Fraction  #: ``lead``, in source ticks
    #: maps the last picture's time to its duration, both in source ticks
    last_shown_ticks: Callable[[int], Fraction]
    counts_decoding: bool = False  #: whether a packet's duration is the time until the next decoding time
    _shown: list[int] = field(default_factory=list)
    _placed: int = 0
    _forgotten: int = 0
    _first: int = 0

    def to_output(self, ticks: int) -> int:
        """Return a source time in ticks of the output, rounded to the nearest tick."""
        return round((ticks * self.source_time_base - self.origin_s) / self.output_tick)

    def segment(self, pts_ticks: Sequence[int], following: int | None) -> list[PacketTimes]:
        """Return the times of a segment's packets, in decoding order.

        ``following`` is the source time of the picture after the segment, None at the end.

        Raises ProofFailed: two pictures fall on one tick of the output, or a picture would be shown before it is
        decoded.
        """
        shown = sorted(pts_ticks)
        output = [self.to_output(ticks) for ticks in shown]
        if following is None:
            end_s = (shown[-1] + self.last_shown_ticks(shown[-1])) * self.source_time_base - self.origin_s
            after = max(output[-1] + 1, round(end_s / self.output_tick))
        else:
            after = self.to_output(following)
        durations = dict(zip(output, _steps([*output, after]), strict=True))
        self._first = output[0] if not self._placed else self._first
        self._shown = [*self._shown, *output]
        times = []
        for ticks in pts_ticks:
            pts, dts = self.to_output(ticks), self._decoded()
            times.append(PacketTimes(pts, dts, durations[pts]))
            self._placed += 1
            if dts > pts:
                message = f"the picture at tick {pts} would be decoded at {dts}, after it is shown"
                raise ProofFailed(
                    message, "The encoder reorders more than its parameter sets state; please report this error."
                )
        # A time that has limited one packet's decoding is not needed for later packets.
        gone = max(0, self._placed - self.reorder_frames - self._forgotten)
        self._shown = self._shown[gone:]
        self._forgotten += gone
        if following is None and self.counts_decoding:
            times[-1] = self._closing(times[-1], after)
        return times

    @property
    def _lead(self) -> int:
        # The first packets are decoded before any picture is shown, each at a tick of its own.
        return max(self.reorder_frames, round(self.lead_ticks * self.source_time_base / self.output_tick))

    def _decoded(self) -> int:
        latest = self._placed - self.reorder_frames
        if latest < 0:
            bound = self._first + floor(Fraction(self._lead * latest, self.reorder_frames))
        else:
            bound = self._shown[latest - self._forgotten]
        return min(bound, self._shown[self._placed - self._forgotten] - self._lead)

    def _closing(self, last: PacketTimes, end: int) -> PacketTimes:
        """Return the last packet's times: it is shown until ``end`` at most, and decoded until the lead before."""
        return PacketTimes(last.pts, last.dts, min(end - self._lead - last.dts, end - last.pts))


def _steps(times: Sequence[int]) -> list[int]:
    steps = [b - a for a, b in pairwise(times)]
    if any(step <= 0 for step in steps):
        message = "two pictures would be shown at the same tick of the output"
        raise ProofFailed(message, "Write to .mp4 or .mov, which keep the source's own ticks.")
    return steps
