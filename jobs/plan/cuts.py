"""Chooses where a track is cut. Pure: cuts change the output's bytes, so only the index and the request decide them.

Each segment starts with an IDR picture. An IDR picture costs least at a scene change, where the source usually has a
keyframe too. Cuts therefore prefer access points that are not on the source's regular keyframe grid.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ...actors.media.seeking import AccessPoint
from ...actors.segment.frame_rate import CountedGrid, FrameRate, KeyframeGrid
from ..source.index import MISSING, TrackIndex

LONG_S = Fraction(10)  #: The usual length of a segment: 5 s adds 0.4 % of bytes to a film, 10 s almost none
SHORT_S = Fraction(4)  #: The default minimum length of a segment
SHARES = 4  #: A short source is cut into about this many segments, to keep several workers busy
#: Segments in a track's last third, at most in its last 120 s, are half as long, so that workers end together
TAIL_SHARE, TAIL_MOST_S = Fraction(1, 3), Fraction(120)


class CutReason(StrEnum):
    """Why a segment starts where it does."""

    START = "the track starts"
    SCENE = "access point off the source's keyframe grid, usually a scene change"
    GRID = "access point on the source's keyframe grid"
    ONLY = "the only access point within reach"
    MULTIPLE = "a multiple of the keyframe interval"


@dataclass(frozen=True, slots=True)
class Cut:
    """The border between two segments."""

    ticks: int  #: The presentation time at which the next segment starts
    #: The access point where decoding starts: at ``ticks``, or earlier if a keyframe interval decides the cut
    entry: AccessPoint
    reason: CutReason
    number: int | None = None  #: The first output picture after the cut, if the output has its own frame rate


def usual_segment_s(duration_s: Fraction) -> Fraction:
    """Return the default target length: 10 s, or less for short sources, but at least 4 s."""
    return min(LONG_S, max(SHORT_S, duration_s / SHARES))


@dataclass(frozen=True, slots=True)
class _Aim:
    """The target lengths of segments that start at ``begins`` or later, in ticks."""

    begins: int
    segment: int  #: The target length
    shortest: int  #: The minimum length

    @property
    def reach(self) -> int:
        return self.segment + self.segment // 2


def choose_cuts(
    index: TrackIndex,
    segment_s: Fraction | None = None,
    start: int | None = None,
    end: int | None = None,
    *,
    grid: KeyframeGrid | CountedGrid | None = None,
    rate: FrameRate | None = None,
) -> tuple[Cut, ...]:
    """Choose the cuts of a track, or of its part [start, end) in ticks, in presentation order.

    Segments last about ``segment_s``; None means the usual length, halved near the end. With a ``grid``, cuts are
    multiples of its interval; with a ``rate``, every segment has at least one output picture.
    """
    first = index.first_ticks if start is None else start
    last = index.end_ticks if end is None else end
    if segment_s is None:
        duration_s = (last - first) * index.time_base
        usual_s, tail_s = usual_segment_s(duration_s), min(duration_s * TAIL_SHARE, TAIL_MOST_S)
        whole = _aim(index, first, usual_s, SHORT_S)
        tail = _aim(index, last - round(tail_s / index.time_base), max(usual_s / 2, SHORT_S), SHORT_S)
    else:
        whole = tail = _aim(index, first, segment_s, Fraction(0))
    usable = _usable(index)
    if isinstance(grid, KeyframeGrid):
        candidates = _at_multiples(index, usable, grid)
    elif rate is None:
        candidates = _at_access_points(index, usable)
    else:
        candidates = _at_pictures(index, usable, rate, grid)
    within = [cut for cut in candidates if first + whole.shortest <= cut.ticks <= last - tail.shortest]
    cuts = _walk(within, first, last, whole, tail)
    return tuple(cuts if rate is None else _distinct(cuts))


def _aim(index: TrackIndex, begins: int, segment_s: Fraction, shortest_s: Fraction) -> _Aim:
    # Half a segment must be at least a tick; otherwise _walk would not advance.
    segment_s = max(segment_s, 2 * index.time_base)
    segment, shortest = (round(s / index.time_base) for s in (segment_s, max(segment_s / 2, shortest_s)))
    return _Aim(begins, segment, shortest)


def _usable(index: TrackIndex) -> list[AccessPoint]:
    """Return the access points around which times are reliable, sorted by time."""
    usable = [
        entry
        for entry in index.access_points
        if entry.packet > 0
        and index.timed[entry.packet]
        and index.pts[entry.packet] != MISSING
        and not index.is_unreliable(entry.packet)
    ]
    return sorted(usable, key=lambda entry: int(index.pts[entry.packet]))


def _at_access_points(index: TrackIndex, usable: Sequence[AccessPoint]) -> list[Cut]:
    return [
        Cut(int(index.pts[entry.packet]), entry, CutReason.GRID if regular else CutReason.SCENE)
        for entry, regular in zip(usable, _on_grid(index, usable), strict=True)
    ]


def _at_multiples(index: TrackIndex, usable: Sequence[AccessPoint], grid: KeyframeGrid) -> list[Cut]:
    """Return the first multiple of the keyframe interval at or after each access point.

    Each multiple comes with the nearest access point at or before it, for decoding. Multiples without a picture, or
    with unreliable times around them, are skipped: they become keyframes inside a segment.
    """
    packets = np.flatnonzero(index.timed)
    packets = packets[np.argsort(index.pts[packets], kind="stable")]
    found: dict[int, Cut] = {}
    for entry in usable:
        place = int(np.searchsorted(index.times, grid.following(int(index.pts[entry.packet]))))
        if place == len(index.times):
            break
        ticks = grid.begins(grid.multiple(int(index.times[place])))
        if not index.is_unreliable(int(packets[place])):
            found[ticks] = Cut(ticks, entry, CutReason.MULTIPLE)
    return list(found.values())


def _at_pictures(
    index: TrackIndex, usable: Sequence[AccessPoint], rate: FrameRate, grid: CountedGrid | None
) -> list[Cut]:
    """Return cuts between the output's pictures, one for each access point.

    Each output picture shows the source picture that is on screen at a certain tick. A cut comes before the first
    output picture whose tick is at or after the access point; with ``grid``, before the first keyframe from there on.
    With ``grid``, a cut is left out where times are unreliable, and if the output pictures on both sides have the very
    tick at which their source picture begins.
    """
    if grid is None:
        cuts = [replace(cut, number=rate.following(cut.ticks)) for cut in _at_access_points(index, usable)]
        return [cut for cut in cuts if cut.number and cut.number < rate.pictures]
    packets = np.flatnonzero(index.timed)
    packets = packets[np.argsort(index.pts[packets], kind="stable")]
    found: dict[int, Cut] = {}
    for entry in usable:
        number = grid.following(rate.following(int(index.pts[entry.packet])))
        ticks = rate.chosen_at(number)
        shown = int(np.searchsorted(index.times, ticks, side="right")) - 1
        is_within = 0 < number < rate.pictures and rate.parts_before(number, int(index.times[shown]))
        if is_within and not index.is_unreliable(int(packets[shown])):
            found[number] = Cut(ticks, entry, CutReason.MULTIPLE, number)
    return list(found.values())


def _distinct(cuts: Sequence[Cut]) -> list[Cut]:
    return [cut for before, cut in pairwise([None, *cuts]) if cut and (before is None or before.number != cut.number)]


def _on_grid(index: TrackIndex, entries: Sequence[AccessPoint]) -> list[bool]:
    """Return for each access point whether a full keyframe interval of the source ends there."""
    if not entries:
        return []
    places = np.searchsorted(index.times, [index.pts[entry.packet] for entry in entries])
    gaps = [int(b) - int(a) for a, b in zip([0, *places[:-1]], places, strict=True)]
    longest, count = max(Counter(gaps).items())
    # The longest gap counts as the keyframe interval only if it occurs more than once.
    regular = longest if count > 1 else None
    return [gap == regular for gap in gaps]


def _walk(candidates: Sequence[Cut], first: int, last: int, whole: _Aim, tail: _Aim) -> list[Cut]:
    """Choose for each cut the best candidate within reach, or else the next candidate, until one segment remains."""
    times = [candidate.ticks for candidate in candidates]
    cuts: list[Cut] = []
    previous, aim = first, whole
    while last - previous > aim.reach and (low := bisect_left(times, previous + aim.shortest)) < len(candidates):
        window = candidates[low : bisect_right(times, previous + aim.reach)]
        scenes = [candidate for candidate in window if candidate.reason is CutReason.SCENE]
        near = scenes or window or [_alone(candidates[low])]
        wanted = previous + aim.segment
        cuts.append(min(near, key=lambda candidate: abs(candidate.ticks - wanted)))
        previous = cuts[-1].ticks
        aim = tail if previous >= tail.begins else whole
    return cuts


def _alone(cut: Cut) -> Cut:
    return cut if cut.reason is CutReason.MULTIPLE else replace(cut, reason=CutReason.ONLY)
