"""Decides which segments of a growing source may be encoded; what comes later never changes a decision. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ...actors.media.timeline import REORDER_FRAMES
from ..plan.track_ranges import PlannedSegment
from ..source.index import TrackIndex

_REACH: Final = 2
"""A cut is final once the source reaches this many segment lengths beyond the previous cut: a cut is at most 1.5
lengths after the previous one, and the last segment has at least half a length."""

MOST_AHEAD: Final = 2 * _REACH
"""A warning says that the ladder is too slow if it is more than this many segments behind its recording."""


@dataclass(frozen=True, slots=True)
class Window:
    """Segments to encode now, by their numbers [``first``, ``until``)."""

    first: int
    until: int
    is_last: bool = False


def needed_ticks(index: TrackIndex, taken_until: int | None, segment_s: Fraction) -> int:
    """Return the tick that a source must reach before its next segment can be final.

    ``taken_until`` is the tick at which the last segment taken ends; None before the first.
    """
    begin = index.first_ticks if taken_until is None else taken_until
    return begin + round(_REACH * segment_s / index.time_base)


def final_segments(index: TrackIndex, segments: Sequence[PlannedSegment], segment_s: Fraction) -> int:
    """Return how many of the first segments stay as they are, whatever follows in the source."""
    reliable = int(index.times[max(0, len(index.times) - 2 * REORDER_FRAMES)])
    before: int | None = None
    for number, segment in enumerate(segments):
        end = segment.end_ticks
        if end is None or index.end_ticks < needed_ticks(index, before, segment_s) or reliable <= end:
            return number
        before = end
    return len(segments)


def next_window(*, taken: int, final: int, planned: int, is_over: bool, most: int) -> Window | None:
    """Return the segments to encode now; None if there is none yet, or if an ended source has none left.

    Args:
        taken: how many segments were taken before.
        final: how many can no longer change.
        planned: how many segments the source has as it is now.
        is_over: whether the source has ended.
        most: how many to take at a time.
    """
    ready = planned if is_over else final
    until = min(ready, taken + most)
    if until <= taken:
        return None
    return Window(taken, until, is_last=is_over and until == planned)
