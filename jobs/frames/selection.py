"""Plans the reads for wanted frames from a track's index. Pure.

A *group* is decoded from one entry. It ends at the next access point. If the track's times are unreliable, it is a
whole segment, in which pictures are counted.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from operator import index as whole_number
from typing import Final, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...actors.media.timeline import spread
from ...errors import NoSuchFrame
from ..plan.track_ranges import PlannedSegment, TrackRanges
from ..source.index import MISSING

ChosenT = TypeVar("ChosenT")

MERGED_FRAMES: Final = 32
MERGED_MOST: Final = 64
MERGED_GAP: Final = 2
"""Neighbouring groups are read together if they span at most one thread's share of the wanted frames, but at least
``MERGED_FRAMES`` and at most ``MERGED_MOST`` frames, and the next wanted frame is at most ``MERGED_GAP`` pictures or
fields after the last one."""
_FLOAT_BITS: Final = 50  #: A time given as float counts as the nearest tick if only rounding separates the two


@dataclass(frozen=True, eq=False)
class PartFrames:
    """The frames of a track's requested part: ``number`` n is the n-th picture of the part, from 0."""

    ranges: TrackRanges
    every: int = 1

    def __len__(self) -> int:
        """Return how many frames there are if every ``every``-th picture is taken."""
        return len(range(0, len(self.times), self.every))

    @cached_property
    def is_counted(self) -> bool:
        """Whether pictures are counted to number them, because times are missing, repeated or jump back."""
        return bool(len(self.ranges.index.unreliable))

    @cached_property
    def first(self) -> int:
        """The number, in the whole track, of the part's first picture."""
        start = self.ranges.segments[0].start_ticks
        return 0 if start is None else self.ranges.index.frames_between(None, start)

    @cached_property
    def times(self) -> NDArray[np.int64]:
        """When each picture of the part is shown, in ticks."""
        segments = self.ranges.segments
        times = self.ranges.index.times_between(segments[0].start_ticks, segments[-1].end_ticks)
        return _spread(times, self.ranges.index.nominal_ticks) if self.is_counted else times

    @cached_property
    def keyframes(self) -> frozenset[int]:
        """The times of the pictures where decoding can start."""
        pts = self.ranges.index.pts
        return frozenset(int(pts[point.packet]) for point in self.ranges.index.access_points)

    def duration(self, ticks: int) -> Fraction | int:
        """Return how many ticks the picture shown at ``ticks`` stays on screen, until the track's next picture."""
        times = self.ranges.index.times.data  # NumPy's search would release the GIL
        place = bisect_right(times, ticks)
        return self.ranges.index.shown_ticks(None) if place >= len(times) else times[place] - ticks

    def number_at(self, time_s: float | Fraction) -> int:
        """Return the position of the frame on screen at ``time_s``, in seconds after the track's first picture.

        Raises NoSuchFrame: the part has no frame at that time.
        """
        index = self.ranges.index
        exact = Fraction(time_s) / index.time_base
        nearest = round(exact)
        if isinstance(time_s, float) and abs(exact - nearest) * (1 << _FLOAT_BITS) <= abs(exact):
            exact = Fraction(nearest)
        ticks = index.first_ticks + exact
        last = int(self.times[-1])
        if not int(self.times[0]) <= ticks < last + self.duration(last):
            first_s, end_s = ((each - index.first_ticks) * index.time_base for each in (int(self.times[0]), last))
            message = f"no frame is on screen at {float(time_s):g} s"
            step = f"Ask for a time from {float(first_s):g} s to {float(end_s):g} s, when the last frame begins."
            raise NoSuchFrame(message, step)
        return (int(np.searchsorted(self.times, int(ticks // 1), side="right")) - 1) // self.every

    def between(self, start_s: Fraction | float, end_s: Fraction | float) -> range:
        """Return the positions of the frames that begin in [``start_s``, ``end_s``), in seconds as in ``number_at``."""
        index = self.ranges.index
        low, high = (
            int(np.searchsorted(self.times, index.tick_at(Fraction(each)))) for each in (start_s, max(start_s, end_s))
        )
        return range(-(-low // self.every), -(-high // self.every))

    def position(self, index: int) -> int:
        """Return the position of frame ``index``, counted from 0; a negative ``index`` counts from the end.

        Raises NoSuchFrame.
        """
        count = len(self)
        if not -count <= index < count:
            raise NoSuchFrame(f"there is no frame {index}", f"The frames are 0 to {count - 1}.", index)
        return index % count

    @cached_property
    def groups(self) -> tuple[PlannedSegment, ...]:
        """The groups with pictures of the part, in order."""
        if self.is_counted:
            return self.ranges.segments
        entries, counts = np.unique(self._entries, return_counts=True)
        return tuple(map(self._group, range(len(entries)), entries.tolist(), counts.tolist()))

    @cached_property
    def group_of(self) -> list[int]:
        """The number of the group that holds each picture of the part."""
        if self.is_counted:
            return np.repeat(np.arange(len(self.groups)), [segment.frames for segment in self.groups]).tolist()
        found: list[int] = np.unique(self._entries, return_inverse=True)[1].tolist()
        return found

    def first_of(self, group: int) -> int:
        """Return the number of a group's first picture. Only for pictures that are counted."""
        return sum(segment.frames for segment in self.groups[:group])

    def first_ticks_of(self, group: int, count: int) -> tuple[int, ...]:
        """Return the times of a group's first pictures, including those before the part. Only for reliable times."""
        times = self.ranges.index.times
        place = int(np.searchsorted(times, self.groups[group].start_ticks or times[0]))
        return tuple(times[place : place + count].tolist())

    def last_packet(self, ticks: Sequence[int]) -> int:
        """Return the last packet, in demux order, of the pictures shown at ``ticks``. Only for reliable times."""
        return int(self._ordered[np.searchsorted(self.ranges.index.times, np.array(ticks))].max())

    @cached_property
    def _ordered(self) -> NDArray[np.int64]:
        """The packets of the track's pictures, in presentation order."""
        timed = np.flatnonzero(self.ranges.index.timed)
        return timed[np.argsort(self.ranges.index.pts[timed], kind="stable")]

    @cached_property
    def _entries(self) -> NDArray[np.int64]:
        """For each picture, the packet of the last access point that precedes it in both decoding and display order.

        -1 means the track's start.
        """
        index = self.ranges.index
        packets = self._ordered[self.first : self.first + len(self.times)]
        points = np.array([p.packet for p in index.access_points if index.pts[p.packet] != MISSING], dtype=np.int64)
        place = np.searchsorted(points, packets, side="right") - 1
        while True:
            late = (place >= 0) & (index.pts[points[np.maximum(place, 0)]] > self.times) if len(points) else None
            if late is None or not late.any():
                break
            place = place - late
        return np.where(place > 0, points[np.maximum(place, 0)], -1) if len(points) else np.full(len(place), -1)

    def _group(self, number: int, entry: int, frames: int) -> PlannedSegment:
        start = None if entry < 0 else int(self.ranges.index.pts[entry])
        return PlannedSegment(number, start, None, max(0, entry), frames, "")


class FrameChooser(ABC, Generic[ChosenT]):
    """Chooses frames of a film; nothing is read until the choice is used."""

    def at(self, indices: Iterable[int]) -> ChosenT:
        """Return the selection of the frames with these numbers, in that order; negative numbers count from the end."""
        numbers = [whole_number(each) for each in indices]
        return self._select(lambda part: [part.position(each) for each in numbers])

    def at_times(self, times_s: Iterable[float | Fraction]) -> ChosenT:
        """Return the selection of the frames on screen at times, in seconds after the source's first picture."""
        moments = [each if isinstance(each, Fraction) else float(each) for each in times_s]
        return self._select(lambda part: [part.number_at(each) for each in moments])

    def between(self, start_s: float | Fraction, end_s: float | Fraction) -> ChosenT:
        """Return the selection of the frames that begin in [start, end), in seconds after the first picture."""
        return self._select(lambda part: part.between(start_s, end_s))

    @abstractmethod
    def _select(self, choose: Callable[[PartFrames], Sequence[int]]) -> ChosenT:
        """Return the selection of the frames whose positions in the part ``choose`` returns."""


def _spread(times: NDArray[np.int64], nominal: Fraction) -> NDArray[np.int64]:
    """Return the times, where equal times are spread up to the next time (rule R4 in docs/timeline.md)."""
    distinct, counts = np.unique(times, return_counts=True)
    found: list[int] = []
    for place, (time, count) in enumerate(zip(distinct.tolist(), counts.tolist(), strict=True)):
        following = int(distinct[place + 1]) if place + 1 < len(distinct) else None
        found += spread(time, count, following, nominal)
    return np.array(found, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class GroupRead:
    """The pictures that one decoder reads in one go, beginning in ``group``."""

    group: int
    numbers: tuple[int, ...]  #: ascending, each once


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The reads for some frames, in order of first need.

    ``slots`` has (index in ``reads``, frame number) of each requested frame, in the requested order.
    """

    reads: tuple[GroupRead, ...]
    slots: tuple[tuple[int, int], ...]
    ascends: bool  #: whether the requested order is the order in the film

    @classmethod
    def of(cls, numbers: Sequence[int], group_of: Sequence[int], *, most: int, whole: bool, merged: int) -> Self:
        """Plan the reads of ``numbers``, each in the group that ``group_of`` states; memory holds ``most`` frames.

        Ascending numbers are handed out while they are decoded, so that each group is read once. In other orders,
        frames are read in windows of ``most`` frames, and a group is read once in each window. With ``whole``, frames
        can be taken only after their whole read, so no read has more than ``most``. Neighbouring groups are read
        together if they span at most ``merged`` frames.
        """
        reads: list[GroupRead] = []
        slots: list[tuple[int, int]] = []
        ascends = all(first <= second for first, second in pairwise(numbers))
        for window in (numbers,) if ascends else _windows(numbers, most):
            found = _reads(window, group_of, most if whole else None, merged)
            of_number = {number: len(reads) + place for place, read in enumerate(found) for number in read.numbers}
            slots += [(of_number[number], number) for number in window]
            reads += found
        return cls(tuple(reads), tuple(slots), ascends)


def _windows(numbers: Sequence[int], most: int) -> Iterable[Sequence[int]]:
    held: set[int] = set()
    begin = 0
    for place, number in enumerate(numbers):
        if number not in held and len(held) == max(1, most):
            yield numbers[begin:place]
            begin, held = place, set()
        held.add(number)
    yield numbers[begin:]


def _reads(window: Sequence[int], group_of: Sequence[int], most: int | None, merged: int) -> list[GroupRead]:
    """Return the reads of a window, in the order of first need."""
    parts: list[list[int]] = []
    for number in sorted(set(window)):
        part = parts[-1] if parts else None
        if part is None or not _joins(number, part, group_of, merged) or len(part) == (most or -1):
            parts.append([number])
        else:
            part.append(number)
    need = {number: place for place, number in reversed(list(enumerate(window)))}
    parts.sort(key=lambda part: min(need[number] for number in part))
    return [GroupRead(group_of[part[0]], tuple(part)) for part in parts]


def _joins(number: int, part: Sequence[int], group_of: Sequence[int], merged: int) -> bool:
    if group_of[number] == group_of[part[-1]]:
        return True
    is_next = group_of[number] == group_of[part[-1]] + 1
    return is_next and number - part[0] < merged and number - part[-1] <= MERGED_GAP


def merged_frames(frames: int, threads: int) -> int:
    """Return the most frames that one read of neighbouring groups may span: a thread's share, within limits.

    Reads are large because each costs some milliseconds in addition to decoding its pictures.
    """
    return min(MERGED_MOST, max(MERGED_FRAMES, frames // threads))
