"""Which segments start next, and how many cores each may keep busy: pure arithmetic, which changes no byte.

Segments start in the film's order, so that little waits for the join, and in the end the longest first, so that all
end together. A segment gets the cores that are its part of the work that is left: one while segments fill the machine,
more in a short film and at the end of a long one.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Final

from .segment import BoardSegment

WINDOW_PER_WORKER: Final = 4
"""How far ahead of the oldest unfinished segment others may start, in multiples of what runs at once."""
END_PER_WORKER: Final = 3
"""With this many waiting segments or fewer, in multiples of what runs at once, the longest start first. Together with
the window this was the best of those tried (docs/speed.md)."""
_IDLE_PART: Final = Fraction(1, 10)
"""The part of the cores that may stay idle rather than have all segments run with one thread more."""


def in_starting_order(waiting: Sequence[BoardSegment], at_once: int) -> list[BoardSegment]:
    """Return all segments that wait, given in the film's order, in the order in which they start."""
    if len(waiting) > END_PER_WORKER * at_once:
        return list(waiting)
    return sorted(waiting, key=lambda segment: (-segment.frames, segment.number))


def cores_for(frames: int, frames_left: int, *, at_once: int, cores: int) -> int:
    """Return how many of a job's ``cores`` a segment may keep busy, of which ``at_once`` run together.

    That is an equal part for each, or its part of the frames that are left, its own too, where that is more.
    """
    share = max(Fraction(cores, max(at_once, 1)), Fraction(cores * frames, max(frames_left, frames, 1)))
    return max(1, min(cores, ceil(share * (1 - _IDLE_PART))))
