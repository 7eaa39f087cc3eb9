"""A part of a track in segments, and what to decode for each of them, whatever is done with the pictures."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Final, Self

import numpy as np

from ...actors.decode.decoding import DecodeRange
from ...actors.media.seeking import AccessPoint
from ...actors.media.timeline import REORDER_FRAMES
from ...actors.segment.frame_rate import CountedGrid, FrameRate
from ...actors.segment.keyframe_grid import KeyframeGrid
from ...actors.segment.walk import SEAM_FRAMES
from ...errors import InputUnreadable, UsageError
from ..source.index import TrackIndex
from .cuts import CutReason, choose_cuts

PACKET_MARGIN: Final = 2  #: Extra packets where one may be less than a picture: a field, or a hidden frame


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """One segment: presentation times [``start_ticks``, ``end_ticks``), None at the track's own ends."""

    segment: int
    start_ticks: int | None
    end_ticks: int | None
    cut_packet: int  #: The packet of the access point at the start, or the last one before it; 0 at the track's start
    frames: int
    reason: str
    numbers: tuple[int, int] | None = None  #: The output's pictures [first, end), if they have a rate


@dataclass(frozen=True, slots=True)
class TrackRanges:
    """The segments of [``start_s``, ``end_s``) of a track; times count from its first picture."""

    index: TrackIndex
    segments: tuple[PlannedSegment, ...]

    @classmethod
    def cut(
        cls,
        index: TrackIndex,
        *,
        start_s: Fraction | None,
        end_s: Fraction | None,
        segment_s: Fraction | None,
        grid: KeyframeGrid | CountedGrid | None = None,
        rate: FrameRate | None = None,
    ) -> Self:
        """Cut a part of a track into segments of about ``segment_s``, as ``choose_cuts`` does.

        Raises InputUnreadable: nothing of the track is presented; UsageError: nothing is presented in that part.
        """
        start, end = _interval(index, start_s, end_s)
        cuts = choose_cuts(index, segment_s, start, end, grid=grid, rate=rate)
        begins = [(start, _first_packet(index, start), CutReason.START.value)]
        begins += [(cut.ticks, cut.entry.packet, cut.reason.value) for cut in cuts]
        ends = [*(cut.ticks for cut in cuts), end]
        segments = tuple(
            PlannedSegment(number, begin, stop, packet, index.frames_between(begin, stop), reason)
            for number, ((begin, packet, reason), stop) in enumerate(zip(begins, ends, strict=True))
        )
        if rate is not None:
            numbers = pairwise([0, *(cut.number or 0 for cut in cuts), rate.pictures])
            segments = tuple(
                replace(segment, numbers=(first, stop), frames=stop - first)
                for segment, (first, stop) in zip(segments, numbers, strict=True)
            )
        return cls(index, segments)

    @property
    def frames(self) -> int:
        """How many pictures the index promises."""
        return sum(segment.frames for segment in self.segments)

    def decode(
        self, segment: PlannedSegment, entry_moves: int, *, until: PlannedSegment | None = None, warm_up_frames: int = 0
    ) -> DecodeRange:
        """Return what to decode for ``segment`` to ``until``, ``warm_up_frames`` before it and the seam's pictures.

        The entry is moved back ``entry_moves`` times.
        """
        index = self.index
        entry = self.entry(segment, entry_moves, warm_up_frames)
        last_packet = self._last_packet((until or segment).end_ticks)
        return DecodeRange(
            source=index.source,
            stream_index=index.stream_index,
            time_base=index.time_base,
            nominal_ticks=index.nominal_ticks,
            tick_divisor=index.tick_divisor,
            entry=entry,
            last_packet=last_packet,
            shifts=index.shifts,
            expected_ticks=index.expected_from(entry, last_packet),
            expected_packets=index.packets_from(entry, last_packet),
            untimed=index.untimed,
            held_frames=index.held_frames,
            span_bytes=index.span_bytes(entry, last_packet),
            part=index.part(entry, last_packet),
            max_pixels=index.max_pixels,
            colours=index.colours,
        )

    def entry(self, segment: PlannedSegment, moves: int, warm_up_frames: int = 0) -> AccessPoint | None:
        """Return the access point to decode from: the segment's own, earlier for warm-up, and earlier by each move."""
        if segment.start_ticks is None:
            return None
        points = self.index.access_points
        start = segment.start_ticks

        def ahead(point: AccessPoint) -> int:
            return self.index.frames_between(int(self.index.pts[point.packet]), start)

        place = bisect_right(points, segment.cut_packet, key=lambda point: point.packet) - 1
        while place >= 0 and ahead(points[place]) < warm_up_frames:
            place -= 1
        # Each move goes back twice as far as the one before: a stream that flags every packet is not walked through.
        place -= 2**moves - 1
        return points[place] if place > 0 else None

    def _last_packet(self, end_ticks: int | None) -> int | None:
        """Return the last packet to decode for what lies before ``end_ticks`` and its seam; None is the end."""
        if end_ticks is None:
            return None
        index = self.index
        needed = index.last_packet_before(end_ticks, SEAM_FRAMES)
        margin = 0 if index.has_whole_pictures else PACKET_MARGIN
        if index.is_unreliable(needed):
            margin = REORDER_FRAMES
        return min(needed + margin, index.packets - 1)


def _interval(index: TrackIndex, start_s: Fraction | None, end_s: Fraction | None) -> tuple[int | None, int | None]:
    """Return the asked-for part in ticks: a picture belongs to it if it is presented at or after the start."""
    if not len(index.times):
        message = f"no picture of {index.source} is presented: its edit list leaves all out, or they have no time"
        raise InputUnreadable(message, "It may be damaged; get a complete one.")
    start = None if not start_s else index.tick_at(start_s)
    end = None if end_s is None else index.tick_at(end_s)
    if start_s is not None and start_s >= index.duration_s:
        message = f"the start at {float(start_s)} s lies behind the end at {float(index.duration_s):.3f} s"
        raise UsageError(message, "Give a smaller start.")
    if not index.frames_between(start, end):
        message = f"no picture of {index.source} is presented in the asked-for part"
        raise UsageError(message, "Give a smaller start or a larger end.")
    return start, end


def _first_packet(index: TrackIndex, start: int | None) -> int:
    """Return an access point from which ``start`` decodes: one before the nearest, as no neighbour proves this seam."""
    if start is None:
        return 0
    timed = np.flatnonzero(index.timed)
    # Where a clock steps back, pictures of the part may lie ahead of its nearest access point.
    within = timed[index.pts[timed] >= _earliest_time(index, start)]
    first = within[0] if len(within) else index.packets
    points = (p.packet for p in index.access_points if p.packet <= first)
    before = [packet for packet in points if index.timed[packet] and index.pts[packet] <= start]
    return before[-2] if len(before) > 1 else 0


def _earliest_time(index: TrackIndex, start: int) -> int:
    """Return the earliest source time shown at ``start`` or later: pictures that share a time are spread (rule R4)."""
    place = int(np.searchsorted(index.times, start))
    if place == 0:
        return start
    before = int(index.times[place - 1])
    return before if place - int(np.searchsorted(index.times, before)) > 1 else start
