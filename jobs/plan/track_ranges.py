"""Cuts a part of a track into segments, and finds the packets to decode for each segment."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Final, Self

import numpy as np

from ...actors.decode.decoding import DecodeRange
from ...actors.decode.wanted import WantedPictures
from ...actors.media.seeking import AccessPoint
from ...actors.media.timeline import REORDER_FRAMES
from ...actors.segment.frame_rate import CountedGrid, FrameRate, KeyframeGrid
from ...actors.segment.walk import SEAM_FRAMES
from ...errors import InputUnreadable, UsageError
from ..source.index import TrackIndex
from .cuts import CutReason, choose_cuts

#: Extra packets to decode if a packet may hold less than a picture: a field, or a hidden frame
PACKET_MARGIN: Final = 2


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """One segment: presentation times [``start_ticks``, ``end_ticks``). None means the track's start or end."""

    segment: int  #: The segment's number
    start_ticks: int | None
    end_ticks: int | None
    cut_packet: int  #: The packet of the cut's access point; for the first segment, see ``_first_packet``
    frames: int  #: How many pictures the index promises
    reason: str  #: Why the segment starts there
    #: The numbers [first, end) of the output's pictures, if the output has its own frame rate
    numbers: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class TrackRanges:
    """The segments of [``start_s``, ``end_s``) of a track, in seconds after the track's first picture."""

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
        """Cut a part of a track into segments of about ``segment_s``; ``grid`` and ``rate`` are as in ``choose_cuts``.

        Raises InputUnreadable: the track has no visible picture; UsageError: the part has no visible picture.
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
        """How many pictures the index promises in all segments."""
        return sum(segment.frames for segment in self.segments)

    def decode(
        self, segment: PlannedSegment, entry_moves: int, *, until: PlannedSegment | None = None, warm_up_frames: int = 0
    ) -> DecodeRange:
        """Return the range to decode for ``segment`` to ``until``, including warm-up and the pictures of the seam.

        The usual entry is at least ``warm_up_frames`` before the segment. Decoding starts ``entry_moves`` steps before
        that entry; the first step goes back by one access point, and each further step twice as far.
        """
        entry = self.entry(segment, entry_moves, warm_up_frames)
        last_packet = self._last_packet((until or segment).end_ticks)
        return self._range(entry, last_packet)

    def decode_wanted(
        self,
        segment: PlannedSegment,
        entry_moves: int,
        ticks: frozenset[int],
        last_packet: int,
        *,
        skips: bool = True,
    ) -> DecodeRange:
        """Return the range to decode for the pictures at ``ticks``. The segment's times must be reliable.

        ``last_packet`` is the packet of the last of these pictures. With ``skips``, packets that the pictures do not
        need are left out.
        """
        index = self.index
        margin = 0 if index.has_whole_pictures else PACKET_MARGIN
        found = self._range(self.entry(segment, entry_moves), min(last_packet + margin, index.packets - 1))
        by_packet = skips and index.has_whole_pictures and not ticks.issuperset(found.expected_ticks)
        return replace(found, wanted=WantedPictures(ticks, index.shifts, index.tick_divisor, by_packet))

    def _range(self, entry: AccessPoint | None, last_packet: int | None) -> DecodeRange:
        index = self.index
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
        """Return the access point from which to decode; None is the track's start. Parameters are as in ``decode``."""
        if segment.start_ticks is None:
            return None
        points = self.index.access_points
        start = segment.start_ticks

        def ahead(point: AccessPoint) -> int:
            return self.index.frames_between(int(self.index.pts[point.packet]), start)

        place = bisect_right(points, segment.cut_packet, key=lambda point: point.packet) - 1
        while place >= 0 and ahead(points[place]) < warm_up_frames:
            place -= 1
        # The steps double, so that a stream whose packets are all flagged as keyframes does not need thousands of
        # moves.
        place -= 2**moves - 1
        return points[place] if place > 0 else None

    def _last_packet(self, end_ticks: int | None) -> int | None:
        """Return the last packet needed for the pictures before ``end_ticks`` and the seam after them; None for all."""
        if end_ticks is None:
            return None
        index = self.index
        needed = index.last_packet_before(end_ticks, SEAM_FRAMES)
        margin = 0 if index.has_whole_pictures else PACKET_MARGIN
        if index.is_unreliable(needed):
            margin = REORDER_FRAMES
        return min(needed + margin, index.packets - 1)


def _interval(index: TrackIndex, start_s: Fraction | None, end_s: Fraction | None) -> tuple[int | None, int | None]:
    """Return the requested part in ticks; None means the track's own start or end."""
    if not len(index.times):
        message = f"no picture of {index.source} is visible: its edit list hides all of them, or they have no time"
        raise InputUnreadable(message, "The file may be damaged; get a complete copy.")
    start = None if not start_s else index.tick_at(start_s)
    end = None if end_s is None else index.tick_at(end_s)
    if start_s is not None and start_s >= index.duration_s:
        message = f"the start at {float(start_s)} s is after the end at {float(index.duration_s):.3f} s"
        raise UsageError(message, "Use an earlier start.")
    if not index.frames_between(start, end):
        message = f"no picture of {index.source} is visible in the requested part"
        raise UsageError(message, "Use an earlier start or a later end.")
    return start, end


def _first_packet(index: TrackIndex, start: int | None) -> int:
    """Return the packet of the second-last access point at or before ``start``, 0 if there are fewer.

    The first segment has no seam that would prove its decoding from the last access point.
    """
    if start is None:
        return 0
    timed = np.flatnonzero(index.timed)
    # If the clock steps back, pictures of the part may precede the access point nearest in time.
    within = timed[index.pts[timed] >= _earliest_time(index, start)]
    first = within[0] if len(within) else index.packets
    points = (p.packet for p in index.access_points if p.packet <= first)
    before = [packet for packet in points if index.timed[packet] and index.pts[packet] <= start]
    return before[-2] if len(before) > 1 else 0


def _earliest_time(index: TrackIndex, start: int) -> int:
    """Return the earliest time that the source states for a picture shown at ``start`` or later.

    Rule R4 (docs/timeline.md) spreads pictures with equal times, so a picture may be shown after its stated time.
    """
    place = int(np.searchsorted(index.times, start))
    if place == 0:
        return start
    before = int(index.times[place - 1])
    return before if place - int(np.searchsorted(index.times, before)) > 1 else start
