"""How many files are in flight, and what the others will ask for later. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Final

from ...cluster.autoscale.later import LaterDemand

_SEGMENTS_PER_SLOT: Final = 2
"""In flight: one that is encoded, and one whose file is planned, joined or proven meanwhile."""
_AT_LEAST: Final = 4


def wants_file(segments_left: Iterable[int | None], *, slots: int, most: int) -> bool:
    """Return whether one more file is to start.

    A film of many segments keeps all workers busy alone, and is done soonest alone; of small files many are in flight.
    ``segments_left`` are those of each file in flight that are not encoded, None before it is planned; ``most`` is the
    largest number of files in flight.
    """
    left = [1 if each is None else each for each in segments_left]
    return len(left) < most and sum(left) < max(_AT_LEAST, _SEGMENTS_PER_SLOT * slots)


@dataclass(slots=True)
class PlannedFiles:
    """Totals of the files that were planned so far."""

    files: int = 0
    segments: int = 0
    frames: int = 0

    def add(self, segments: int, frames: int) -> None:
        """Count a file."""
        self.files, self.segments, self.frames = self.files + 1, self.segments + segments, self.frames + frames

    def later(self, like: str, waiting: int, room: int) -> LaterDemand | None:
        """Return the demand of ``waiting`` files, assuming the mean of those planned so far; None where it is unknown.

        Only ``room`` of them may run beside the files in flight; more nodes than those need are of no use.
        """
        files = min(waiting, room)
        if files <= 0 or not self.frames:
            return None
        segments = ceil(files * self.segments / self.files)
        return LaterDemand(like, segments, ceil(waiting * self.frames / self.files))
