"""Decides how many files are in flight, and estimates the demand of the waiting files. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Final

from ...cluster.autoscale.later import LaterDemand

_SEGMENTS_PER_SLOT: Final = 2  #: Two, so that a slot is busy while another file is planned, joined or proven
_AT_LEAST: Final = 4


def wants_file(segments_left: Iterable[int | None], *, slots: int, most: int) -> bool:
    """Return whether another file should start; at most ``most`` files may be in flight.

    A long film keeps all workers busy, and ends soonest if it runs alone. Of small files, many must run at once.
    ``segments_left`` has the number of unencoded segments of each file in flight, None for an unplanned file.
    """
    left = [1 if each is None else each for each in segments_left]
    return len(left) < most and sum(left) < max(_AT_LEAST, _SEGMENTS_PER_SLOT * slots)


@dataclass(slots=True)
class PlannedFiles:
    """Totals of the files planned so far, from which the demand of waiting files is estimated."""

    files: int = 0
    segments: int = 0
    frames: int = 0

    def add(self, segments: int, frames: int) -> None:
        """Count a planned file with ``segments`` and ``frames``."""
        self.files, self.segments, self.frames = self.files + 1, self.segments + segments, self.frames + frames

    def later(self, like: str, waiting: int, room: int) -> LaterDemand | None:
        """Return the demand of ``waiting`` files that are as large as the mean of the planned files.

        None if no file is planned yet, if no file waits, or if ``room`` is 0. ``room`` is how many files can run
        besides those in flight; it limits the segments, because more segments would start nodes that idle.
        """
        files = min(waiting, room)
        if files <= 0 or not self.frames:
            return None
        segments = ceil(files * self.segments / self.files)
        return LaterDemand(like, segments, ceil(waiting * self.frames / self.files))
