"""Statistics of a video track's index: times, order and access points."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ...actors.bitstream.access_points import RandomAccess
from ..source.index import CORRUPT, DISCARD, KEY, MISSING, TrackIndex
from .values import AccessPointFacts, GopFacts, RateFacts, TimelineFacts

_FINE_TICKS = 10  # if a picture lasts at least this many ticks, a difference of one tick comes from rounding
# unreliable packets at most this far apart form one span, because decoders reorder packets
_SPAN_GAP_PACKETS = 16


def describe_timeline(index: TrackIndex) -> TimelineFacts:
    """Return the statistics of an index with at least one visible picture."""
    places = [*(point.packet for point in index.access_points), index.packets]
    points = tuple(_access_point(index, place, end) for place, end in pairwise(places))
    missing = index.dts == MISSING
    dts = index.dts[~missing & index.presented]
    # Matroska stores no decoding times, so the demuxer does not know them for the first few packets.
    known_dts = np.flatnonzero(~missing)
    known = index.pts[index.timed]
    spans = np.split(index.unreliable, np.flatnonzero(np.diff(index.unreliable) > _SPAN_GAP_PACKETS) + 1)
    return TimelineFacts(
        time_base=index.time_base,
        packets=index.packets,
        pictures=int(index.presented.sum()),
        first_s=index.first_ticks * index.time_base,
        last_s=int(index.times[-1]) * index.time_base,
        duration_s=index.duration_s,
        discarded_packets=_flagged(index, DISCARD),
        corrupt_packets=_flagged(index, CORRUPT),
        missing_pts=int((index.presented & (index.pts == MISSING)).sum()),
        missing_dts=int(missing[known_dts[0] :].sum()) if len(known_dts) else index.packets,
        repeated_pts=len(known) - len(np.unique(known)),
        backward_dts=int((np.diff(dts) < 0).sum()),
        clock_resets=len(index.shifts),
        unreliable_spans=tuple((int(span[0]), int(span[-1])) for span in spans if len(span)),
        flagged_packets=_flagged(index, KEY),
        unusable_keyframes=sum(kind is RandomAccess.NONE for kind in index.kinds.values()),
        access_points=points,
        access_point_kinds=dict(sorted(Counter(point.kind for point in points).items())),
        gop=_gop(index, points),
        rate=_rate(index),
    )


def _flagged(index: TrackIndex, flag: int) -> int:
    return int(((index.flags & flag) != 0).sum())


def _access_point(index: TrackIndex, packet: int, end: int) -> AccessPointFacts:
    ticks = int(index.pts[packet])
    following = index.pts[packet + 1 : end][index.timed[packet + 1 : end]]
    known = ticks != MISSING
    return AccessPointFacts(
        packet=packet,
        time_ticks=ticks if known else None,
        time_s=(ticks - index.first_ticks) * index.time_base if known else None,
        kind=index.kinds.get(packet, RandomAccess.FLAGGED).value,
        leading_pictures=int((following < ticks).sum()) if known else 0,
    )


def _gop(index: TrackIndex, points: Sequence[AccessPointFacts]) -> GopFacts:
    if not points[1:]:
        return GopFacts(structure="single" if points else "none")
    # After an IDR, leading pictures do not depend on earlier pictures.
    is_open = any(point.leading_pictures and point.kind != RandomAccess.IDR.value for point in points[1:])
    # The visible packets from each access point to the next, and from the last access point to the end.
    before = np.concatenate(([0], np.cumsum(index.presented)))
    places = [*(point.packet for point in points), index.packets]
    lengths = sorted(int(before[end] - before[start]) for start, end in pairwise(places))
    return GopFacts(
        structure="open" if is_open else "closed",
        shortest_frames=lengths[0],
        median_frames=lengths[len(lengths) // 2],
        longest_frames=lengths[-1],
    )


def _rate(index: TrackIndex) -> RateFacts:
    steps = np.diff(index.times)
    steps = steps[steps > 0]
    if not len(steps):
        return RateFacts(nominal_fps=index.frame_rate)
    shortest, longest = int(steps.min()), int(steps.max())
    typical = int(np.sort(steps)[len(steps) // 2])
    span_s = int(steps.sum()) * index.time_base
    return RateFacts(
        nominal_fps=index.frame_rate,
        measured_fps=Fraction(len(steps)) / span_s,
        shortest_s=shortest * index.time_base,
        typical_s=typical * index.time_base,
        longest_s=longest * index.time_base,
        constant=longest - shortest <= (1 if typical >= _FINE_TICKS else 0),
    )
