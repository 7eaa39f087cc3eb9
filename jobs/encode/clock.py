"""Presentation times of a caller's frames: from a constant rate, or the frames' own times. All times are exact."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import Final

from ...actors.decode.describe import nominal_frame_rate
from ...errors import UsageError
from ..request.values import TERM_MAX, is_ffmpeg_ratio
from .inputs import Offered

_USUAL_TICKS: Final = 90_000
_LATEST_TICKS: Final = 1 << 53  #: Times in a file have 64 bits, and a file's ticks may be finer than the caller's
_NEAR: Final = (Fraction(3, 4), Fraction(3, 2))


class FrameClock:
    """Gives every frame its time, in ticks of ``time_base``: n / ``fps``, or the frames' own times.

    If ``fps`` and ``time_base`` are None, the first frame's time base is used, or else one in which the times of the
    ``first`` frames are whole. Raises UsageError: these frames have no time.
    """

    def __init__(self, first: Sequence[Offered], *, fps: Fraction | None, time_base: Fraction | None) -> None:
        self._fps = fps
        self.time_base = 1 / fps if fps is not None else time_base or _tick(first)
        self._count = 0
        self._first: int | None = None
        self._last: int | None = None

    @property
    def last_ticks(self) -> int:
        """The last frame's time; 0 if there are no frames."""
        return self._last or 0

    @property
    def length_s(self) -> Fraction:
        """The time from the first frame to the last."""
        return ((self._last or 0) - (self._first or 0)) * self.time_base

    def ticks(self, offered: Offered) -> int:
        """Return the next frame's time. Raises UsageError: the time is missing, fractional or out of order."""
        number, self._count = self._count, self._count + 1
        if self._fps is not None:
            found = number
        else:
            found = self._own(number, offered)
            if self._last is not None and found <= self._last:
                message = f"frame {number} is shown at tick {found}, and the previous frame at tick {self._last}"
                raise UsageError(message, "Frames must come in the order in which they are shown.")
        if abs(found) > _LATEST_TICKS:
            message = f"frame {number} is shown at tick {found} of {self.time_base} s, which no container can hold"
            raise UsageError(message, "Give times near 0, or a coarser time_base.")
        self._first = found if self._first is None else self._first
        self._last = found
        return found

    def _own(self, number: int, offered: Offered) -> int:
        time_s = offered.time_s if offered.ticks is None else offered.ticks[0] * offered.ticks[1]
        if time_s is None:
            raise UsageError(f"frame {number} has no time", "Give fps, or (frame, seconds).")
        found = time_s / self.time_base
        if found.denominator != 1:
            message = f"frame {number} is shown at {time_s} s, not a whole number of ticks of {self.time_base} s"
            raise UsageError(message, "Give a time_base in which all times are whole.")
        return found.numerator


def measured_rate(first: Sequence[Offered]) -> Fraction:
    """Return the nominal frame rate that the first frame states, unless the first two frames' times contradict it."""
    stated = first[0].format.frame_rate
    times = [each.time_s for each in first[:2] if each.time_s is not None]
    apart_s = sum((after - before for before, after in pairwise(times)), Fraction(0))
    if apart_s <= 0:
        return stated
    measured = nominal_frame_rate(1 / apart_s)
    if not is_ffmpeg_ratio(measured):  # its numbers are too large for FFmpeg
        return stated
    is_near = first[0].states_rate and _NEAR[0] < measured / stated < _NEAR[1]
    return stated if is_near else measured


def _tick(first: Sequence[Offered]) -> Fraction:
    if first[0].ticks is not None:
        return first[0].ticks[1]
    times = [each.time_s for each in first if each.time_s is not None]
    if not times:
        raise UsageError("frame 0 has no time", "Give fps, or (frame, seconds).")
    ticks = lcm(_USUAL_TICKS, *(time_s.denominator for time_s in times))
    return Fraction(1, min(ticks, TERM_MAX))
