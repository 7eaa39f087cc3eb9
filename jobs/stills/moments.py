"""Computes the times of stills, exactly and in seconds after the track's first picture, and the starts of scenes."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import TYPE_CHECKING

from ...actors.stills.measuring import DIFFERENCE_MOST, MeasuredSegment, difference
from ...errors import UsageError
from .spec import STILLS_MOST

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Moment:
    """One still: the picture on screen at ``at_s``, which represents [``begin_s``, ``end_s``)."""

    at_s: Fraction
    begin_s: Fraction
    end_s: Fraction

    def ticks(self, first_ticks: int, time_base: Fraction) -> int:
        """Return the last tick at or before ``at_s``, on a clock with the first picture at ``first_ticks``."""
        return first_ticks + floor(self.at_s / time_base)


def at_multiples(every_s: Fraction, begin_s: Fraction, end_s: Fraction) -> tuple[Moment, ...]:
    """Return the times from ``begin_s`` up to ``end_s``, ``every_s`` apart.

    Raises UsageError: there are too many.
    """
    count = ceil((end_s - begin_s) / every_s)
    if count > STILLS_MOST:
        message = f"{count} stills, one every {float(every_s):g} s, are more than {STILLS_MOST:,}"
        raise UsageError(message, "Use a longer time between stills, or a smaller part of the film.")
    return _from_each([begin_s + every_s * n for n in range(count)], end_s)


def at_middles(count: int, begin_s: Fraction, end_s: Fraction) -> tuple[Moment, ...]:
    """Return the middles of ``count`` equal parts of [``begin_s``, ``end_s``)."""
    part_s = (end_s - begin_s) / count
    return tuple(
        Moment(begin_s + part_s * (n + Fraction(1, 2)), begin_s + part_s * n, begin_s + part_s * (n + 1))
        for n in range(count)
    )


def at_scenes(starts_s: Sequence[Fraction], end_s: Fraction) -> tuple[Moment, ...]:
    """Return the scenes that begin at these times; the last scene ends at ``end_s``.

    Raises UsageError: there are too many.
    """
    if len(starts_s) > STILLS_MOST:
        message = f"{len(starts_s)} scenes are more than {STILLS_MOST:,}"
        raise UsageError(message, "Use a higher --scene-threshold or longer --scene-seconds.")
    return _from_each(starts_s, end_s)


def _from_each(starts_s: Sequence[Fraction], end_s: Fraction) -> tuple[Moment, ...]:
    return tuple(Moment(begin, begin, end) for begin, end in pairwise([*starts_s, end_s]))


class MeasuredPictures:
    """The measured pictures of a part, whose segments are added in order."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.differences: list[int] = []
        self._last: NDArray[np.uint8] | None = None

    def add(self, segment: MeasuredSegment) -> None:
        """Add the next segment, and compare its first picture with the last picture of the previous segment."""
        if not len(segment.pts_ticks):
            return
        self.differences.append(0 if self._last is None else difference(self._last, segment.first))
        self.differences += [int(each) for each in segment.differences]
        self.times += [int(each) for each in segment.pts_ticks]
        self._last = segment.last.copy()  # a view would keep the whole result in memory


def scene_starts(
    times: Sequence[int], differences: Sequence[int], *, threshold_percent: int, shortest_ticks: Fraction
) -> tuple[int, ...]:
    """Return the times at which scenes start: at the first picture, and at each picture that differs enough.

    As in FFmpeg's ``scdet``, both the mean difference from the previous picture and the change of that difference must
    reach ``threshold_percent`` of ``DIFFERENCE_MOST``. In a pan or a flicker the difference is large but hardly
    changes.
    """
    starts: list[int] = []
    enough = Fraction(threshold_percent * DIFFERENCE_MOST, 100)
    before = 0
    for ticks, now in zip(times, differences, strict=True):
        is_other = min(now, abs(now - before)) >= enough
        if not starts or (is_other and ticks - starts[-1] >= shortest_ticks):
            starts.append(ticks)
        before = now
    return tuple(starts)
