"""Where scenes begin: a pure function of how much each picture differs from the one before it.

The measure is that of FFmpeg's filter ``scdet``, of small grey pictures: a picture begins a scene where the mean
difference from the one before it is large, and so is its change against the difference before that. A pan or a flicker
differs all the time and changes little.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from ...actors.stills.measuring import DIFFERENCE_MOST, MeasuredSegment, difference

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class MeasuredPictures:
    """All pictures of a part, measured in segments that are added in order: the same wherever those were cut."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.differences: list[int] = []
        self._last: NDArray[np.uint8] | None = None

    def add(self, segment: MeasuredSegment) -> None:
        """Take the next segment's pictures, and measure its first one against the last before it."""
        if not len(segment.pts_ticks):
            return
        self.differences.append(0 if self._last is None else difference(self._last, segment.first))
        self.differences += [int(each) for each in segment.differences]
        self.times += [int(each) for each in segment.pts_ticks]
        self._last = segment.last.copy()  # as it came, it may be a view that keeps the whole result in memory


def scene_starts(
    times: Sequence[int], differences: Sequence[int], *, threshold_percent: int, shortest_ticks: Fraction
) -> tuple[int, ...]:
    """Return the times at which scenes begin: the first one, and each picture that differs enough.

    Args:
        times: of all pictures, ascending, in ticks.
        differences: of each picture from the one before it, 0 .. ``DIFFERENCE_MOST``; 0 for the first.
        threshold_percent: of ``DIFFERENCE_MOST``: what counts as much.
        shortest_ticks: how long a scene lasts at least.
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
