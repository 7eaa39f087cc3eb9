"""How many files are in flight, and what waits behind them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
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


@dataclass(frozen=True, slots=True)
class Behind:
    """What waits behind the files in flight: ``segments`` of it could run at once, ``frames`` are those of all."""

    segments: int = 0
    frames: int = 0


@dataclass(slots=True)
class PlannedFiles:
    """Files that were planned so far, and what they are together."""

    files: int = 0
    segments: int = 0
    frames: int = 0

    def add(self, segments: int, frames: int) -> None:
        """Count a file."""
        self.files, self.segments, self.frames = self.files + 1, self.segments + segments, self.frames + frames


def behind(waiting: int, planned: PlannedFiles, *, in_flight: int, most: int) -> Behind:
    """Return what waits, if each file is as those that were planned so far are in the mean.

    Args:
        waiting: files that wait.
        planned: what is known of others.
        in_flight: files in flight.
        most: files in flight at most: what cannot run beside them is of use to no more nodes.
    """
    files = min(waiting, most - in_flight)
    if files <= 0 or not planned.frames:
        return Behind()
    segments = ceil(files * planned.segments / planned.files)
    return Behind(segments, ceil(waiting * planned.frames / planned.files))
