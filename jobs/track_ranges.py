"""A part of a track in segments, and what to decode for each of them, for whoever only looks at pictures."""

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Self

from ..actors.decoding import AccessPoint, DecodeRange
from ..actors.segment import SEAM_FRAMES
from ..actors.timeline import REORDER_FRAMES
from ..errors import UsageError
from .cuts import CutReason, choose_cuts
from .index import TrackIndex
from .plan import PACKET_MARGIN, PlannedSegment

__all__ = ["TrackRanges"]


@dataclass(frozen=True, slots=True)
class TrackRanges:
    """The segments of [``start_s``, ``end_s``) of a track; times count from its first picture."""

    index: TrackIndex
    segments: tuple[PlannedSegment, ...]

    @classmethod
    def cut(
        cls, index: TrackIndex, *, start_s: Fraction | None, end_s: Fraction | None, segment_s: Fraction | None
    ) -> Self:
        """Cut a part of a track, as a transcode would with segments of that length.

        Raises:
            UsageError: nothing is presented in that part.
        """
        start, end = (_ticks(index, moment_s) for moment_s in (start_s, end_s))
        if not index.frames_between(start, end):
            message = f"no picture of {index.source} is presented in the asked-for part"
            raise UsageError(message, "Give a smaller start_s or a larger end_s.")
        # Half of a segment must be a tick at least, or cutting would not get on.
        asked_s = None if segment_s is None else max(segment_s, 2 * index.time_base)
        cuts = choose_cuts(index, asked_s, start, end)
        begins = [(start, _first_packet(index, start), CutReason.START.value)]
        begins += [(cut.ticks, cut.entry.packet, cut.reason.value) for cut in cuts]
        ends = [*(cut.ticks for cut in cuts), end]
        return cls(
            index,
            tuple(
                PlannedSegment(number, begin, stop, packet, index.frames_between(begin, stop), reason)
                for number, ((begin, packet, reason), stop) in enumerate(zip(begins, ends, strict=True))
            ),
        )

    @property
    def frames(self) -> int:
        """How many pictures the index promises."""
        return sum(segment.frames for segment in self.segments)

    def decode(self, segment: PlannedSegment, entry_moves: int) -> DecodeRange:
        """Return what to decode for a segment, and for the pictures past its end that prove its seam."""
        index = self.index
        entry = self._entry(segment, entry_moves)
        last_packet = None
        if segment.end_ticks is not None:
            needed = index.last_packet_before(segment.end_ticks, SEAM_FRAMES)
            margin = REORDER_FRAMES if index.is_troubled(needed) else PACKET_MARGIN
            last_packet = min(needed + margin, index.packets - 1)
        return DecodeRange(
            source=index.source,
            stream_index=index.stream_index,
            time_base=index.time_base,
            nominal_ticks=index.nominal_ticks,
            entry=entry,
            last_packet=last_packet,
            shifts=index.shifts,
            expected_ticks=index.expected_from(entry, last_packet),
            expected_packets=index.packets_from(entry, last_packet),
            untimed=index.untimed,
        )

    def _entry(self, segment: PlannedSegment, moves: int) -> AccessPoint | None:
        if segment.start_ticks is None:
            return None
        points = self.index.access_points
        place = bisect_right(points, segment.cut_packet, key=lambda point: point.packet) - 1
        # Each move goes back twice as far as the one before, as in transcode.
        place -= 2**moves - 1
        return points[place] if place > 0 else None


def _ticks(index: TrackIndex, moment_s: Fraction | None) -> int | None:
    return None if not moment_s else index.first_ticks + ceil(moment_s / index.time_base)


def _first_packet(index: TrackIndex, start: int | None) -> int:
    """Return the access point for the picture at ``start``: one early, since no neighbour proves this seam."""
    if start is None:
        return 0
    before = [p.packet for p in index.access_points if index.timed[p.packet] and index.pts[p.packet] <= start]
    return before[-2] if len(before) > 1 else 0
