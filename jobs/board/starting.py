"""Which segments start next, and how many cores each may use. Pure; changes no output byte.

Segments start in film order, so that few wait to be joined; near the end the longest start first, so that all end
together. A segment's cores are its share of the remaining frames: one while segments fill the machine, more at the end.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Final

from .segment import BoardSegment

# Both are multiples of the number of concurrent runs, and the best pair of those tried (docs/speed.md).
WINDOW_PER_WORKER: Final = 4  #: How far ahead of the oldest unfinished segment others may start
END_PER_WORKER: Final = 3  #: With this many waiting segments or fewer, the longest start first
_IDLE_PART: Final = Fraction(1, 10)  #: The part of the cores that may stay idle: rounding up would add a thread each


def in_starting_order(waiting: Sequence[BoardSegment], at_once: int) -> list[BoardSegment]:
    """Return waiting segments, given in film order, in the order in which they start."""
    if len(waiting) > END_PER_WORKER * at_once:
        return list(waiting)
    return sorted(waiting, key=lambda segment: (-segment.frames, segment.number))


def cores_for(frames: int, frames_left: int, *, at_once: int, cores: int) -> int:
    """Return how many of a job's ``cores`` a segment may use while ``at_once`` segments run.

    That is the larger of an equal share and its share of ``frames_left``, which include its own.
    """
    share = max(Fraction(cores, max(at_once, 1)), Fraction(cores * frames, max(frames_left, frames, 1)))
    return max(1, min(cores, ceil(share * (1 - _IDLE_PART))))
