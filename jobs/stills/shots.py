"""Chooses the ranges of a track to decode for stills: those with a wanted picture.

A range starts at its own access point if that resets the decoder (IDR, or a keyframe of VP9 or AV1), otherwise at an
earlier access point from which its pictures decode correctly. If no such point is near, as in H.264 with few IDR
pictures, the whole part is decoded, and seams are compared as in a transcode.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Final, NamedTuple

from ...actors.bitstream.access_points import RandomAccess
from ...actors.decode.decoding import DecodeRange
from ..board.events import Run
from ..plan.cuts import usual_segment_s
from ..plan.track_ranges import PlannedSegment, TrackRanges
from ..source.index import MISSING, TrackIndex

MOVES_MOST: Final = 3  # the most steps back in the search for a safe entry; together the steps pass 7 access points


@dataclass(frozen=True, slots=True)
class Shot:
    """One range to decode, and its stills."""

    segment: PlannedSegment
    moments: tuple[int, ...]  # the range's stills, as ascending ticks
    entry_moves: int = 0  # decoding starts this many steps before the range's usual entry (``TrackRanges.entry``)


@dataclass(frozen=True, slots=True)
class ShotList:
    """The ranges of a job, in order. With ``adjoin``, they cover the whole part, so seams can be compared."""

    index: TrackIndex
    shots: tuple[Shot, ...]
    adjoin: bool

    def decode(self, run: Run) -> DecodeRange:
        """Return the range to decode for a run."""
        first, last = self.shots[run.segment], self.shots[run.until]
        return self._ranges.decode(first.segment, first.entry_moves + run.entry_moves, until=last.segment)

    def moments(self, run: Run) -> tuple[int, ...]:
        """Return the times of the stills of a run, as ascending ticks."""
        return tuple(moment for shot in self.shots[run.segment : run.until + 1] for moment in shot.moments)

    @property
    def _ranges(self) -> TrackRanges:
        return TrackRanges(self.index, tuple(shot.segment for shot in self.shots))


def plan_shots(
    index: TrackIndex,
    moments: Sequence[int],
    *,
    start_s: Fraction | None,
    end_s: Fraction | None,
    segment_s: Fraction | None,
    most_pictures: int,
) -> ShotList:
    """Return the ranges that have the pictures on screen at ``moments``: ascending ticks in [``start_s``, ``end_s``).

    Neighbouring ranges are joined up to about ``segment_s`` (the usual length if None) and ``most_pictures`` stills.
    """
    # This length makes every access point start a group.
    groups = TrackRanges.cut(index, start_s=start_s, end_s=end_s, segment_s=index.time_base)
    wanted = [_Wanted(moment, index.shown_at(moment)) for moment in moments]
    moves = {group: entry_moves(groups, groups.segments[group]) for group in {_group(groups, each) for each in wanted}}
    if None in moves.values():
        whole = TrackRanges.cut(index, start_s=start_s, end_s=end_s, segment_s=segment_s)
        return ShotList(index, tuple(_adjoining(whole, wanted, most_pictures)), adjoin=True)
    longest_s = segment_s or usual_segment_s(index.duration_s)
    parts = _parts(groups, wanted, longest_s / index.time_base, most_pictures)
    shots = (_shot(groups, number, part, moves) for number, part in enumerate(parts))
    return ShotList(index, tuple(shots), adjoin=False)


def entry_moves(ranges: TrackRanges, segment: PlannedSegment) -> int | None:
    """Return how many steps earlier decoding must start for a segment's pictures to be correct; None if too many."""
    index = ranges.index
    if segment.start_ticks is None or index.resets_decoder(segment.cut_packet):
        return 0
    for moves in range(1, MOVES_MOST + 1):
        entry = ranges.entry(segment, moves)
        if entry is None or index.kinds.get(entry.packet) is not RandomAccess.INTRA_ONLY:
            return moves
    return None


class _Wanted(NamedTuple):
    """A moment, and the time of the picture that is on screen then."""

    moment: int
    shown: int


class _Part(NamedTuple):
    """The stills of one range, which starts with ``group``, or inside that group if the group is split."""

    group: int
    is_split: bool
    wanted: list[_Wanted]


def _group(ranges: TrackRanges, wanted: _Wanted) -> int:
    return bisect_right(ranges.segments, wanted.shown, key=_start) - 1


def _start(segment: PlannedSegment) -> int:
    return MISSING if segment.start_ticks is None else segment.start_ticks


def _parts(
    groups: TrackRanges, wanted: Sequence[_Wanted], longest_ticks: Fraction, most_pictures: int
) -> Iterator[_Part]:
    """Group wanted pictures into ranges, joining neighbours as far as allowed."""
    part: _Part | None = None
    last, pictures = 0, 0
    for each in wanted:
        group = _group(groups, each)
        if part is not None:
            is_same = each.shown == part.wanted[-1].shown
            is_near = group <= last + 1 and each.shown - part.wanted[0].shown < longest_ticks
            if is_same or (is_near and pictures < most_pictures):
                part.wanted.append(each)
                last, pictures = group, pictures + (not is_same)
                continue
            yield part
        part = _Part(group, is_split=part is not None and group == last, wanted=[each])
        last, pictures = group, 1
    if part is not None:
        yield part


def _shot(groups: TrackRanges, number: int, part: _Part, moves: Mapping[int, int | None]) -> Shot:
    group, shown = groups.segments[part.group], part.wanted[0].shown
    start, end = shown if part.is_split else group.start_ticks, part.wanted[-1].shown + 1
    segment = _piece(groups.index, group, number, start, end)
    return Shot(segment, tuple(each.moment for each in part.wanted), moves[part.group] or 0)


def _piece(index: TrackIndex, of: PlannedSegment, number: int, start: int | None, end: int | None) -> PlannedSegment:
    frames = index.frames_between(start, end)
    return replace(of, segment=number, start_ticks=start, end_ticks=end, frames=frames)


def _adjoining(whole: TrackRanges, wanted: Sequence[_Wanted], most_pictures: int) -> Iterator[Shot]:
    """Yield all segments; those with too many stills are split."""
    number = 0
    for segment in whole.segments:
        inside = [each for each in wanted if _group(whole, each) == segment.segment]
        pictures = sorted({each.shown for each in inside})
        starts = [segment.start_ticks, *pictures[most_pictures::most_pictures]]
        for start, end in pairwise([*starts, segment.end_ticks]):
            piece = _piece(whole.index, segment, number, start, end)
            shown = (each for each in inside if _start(piece) <= each.shown and (end is None or each.shown < end))
            yield Shot(piece, tuple(each.moment for each in shown))
            number += 1
