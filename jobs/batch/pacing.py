"""How many files are in flight, and how long a batch will take. Pure."""

from collections.abc import Iterable
from typing import Final

_SEGMENTS_PER_SLOT: Final = 2
"""In flight: one that is encoded, and one whose file is planned, joined or proven meanwhile."""
_AT_LEAST: Final = 4


def wants_file(segments_left: Iterable[int | None], *, slots: int, most: int) -> bool:
    """Return whether one more file is to start.

    A film of many segments keeps all workers busy alone, and is done soonest alone; of small files many are in flight.

    Args:
        segments_left: for each file in flight, its segments that are not encoded; None before it is planned.
        slots: pieces of work that run at once.
        most: files in flight at most.
    """
    left = [1 if each is None else each for each in segments_left]
    return len(left) < most and sum(left) < max(_AT_LEAST, _SEGMENTS_PER_SLOT * slots)


def eta_s(elapsed_s: float, *, done: float, left: float) -> float | None:
    """Return the seconds that what is left takes at the pace so far; None before anything is done."""
    if left <= 0:
        return 0.0
    return elapsed_s * left / done if done > 0 else None
