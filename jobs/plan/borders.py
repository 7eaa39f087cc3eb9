"""``--crop auto``: finds black borders in a sample of the track's pictures.

The same source and part always give the same result, because pictures are decoded in software and the arithmetic is on
integers.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...actors.decode.decoding import SOFTWARE, DecodeTally, decode_range
from ...actors.media.seeking import AccessPoint
from ...actors.media.values import VideoFormat
from ...actors.segment.filtering import FULL_RANGE, FilterChain, FilterSettings
from ...actors.segment.steps import Region, chroma_step
from ...cluster.grouping import counted
from ..source.index import TrackIndex
from .steps import fitted
from .track_ranges import PlannedSegment, TrackRanges

SAMPLES: Final = 32  #: The approximate number of sampled pictures
STRIDE: Final = 8  #: The step between sampled pictures, if several are sampled after one access point
DARK: Final = 8  #: A line is black if its mean exceeds black by at most this, on the 8-bit scale
SPECK: Final = 48  #: A line is not black if any sample exceeds black by more than this, on the 8-bit scale
_LIMITED_BLACK: Final = 16

_Luma = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class FoundPicture:
    """The result of the search for borders."""

    region: Region | None  #: The part of the picture inside the border; None if there is no border
    judged: int | None  #: How many sampled pictures are not black; None if there was no search

    @property
    def words(self) -> str:
        """The result as a line of the plan; "" if there was no search."""
        if self.judged is None:
            return ""
        if not self.judged:
            return "--crop auto: all sampled pictures are black, so nothing is cropped"
        pictures = counted(self.judged, "sampled picture")
        return f"--crop auto: {'found a border' if self.region else 'found no border'} common to {pictures}"


NO_BORDER: Final = FoundPicture(None, None)  #: The result without a search


def find_picture(
    ranges: TrackRanges, source: VideoFormat, shown: Region | None = None, *, row_step: int = 1
) -> FoundPicture:
    """Return the smallest region that holds all sampled pictures without their borders, aligned to chroma samples.

    Only the ``shown`` region is searched; ``row_step`` is 2 for interlaced pictures. Raises InputError.
    """
    black = 0 if source.colour.range == FULL_RANGE or source.pix_fmt.startswith("yuvj") else _LIMITED_BLACK
    within = shown or Region(source.width, source.height, 0, 0)
    rows, columns = slice(within.y, within.y + within.height), slice(within.x, within.x + within.width)
    lit = (lit_region(luma[rows, columns], black) for luma in _sample(ranges, source))
    found = [region for region in lit if region is not None]
    if not found:
        return FoundPicture(None, 0)
    across, down = chroma_step(source.pix_fmt)
    size = within.width, within.height
    region = fitted(enclosing(found), size, (across, down * row_step))
    is_border = (region.width, region.height) != size and region.width > 0 and region.height > 0
    moved = replace(region, x=within.x + region.x, y=within.y + region.y)
    return FoundPicture(moved if is_border else None, len(found))


def lit_region(luma: _Luma, black: int) -> Region | None:
    """Return the region inside the black lines at a picture's edges; None if the whole picture is black."""
    spans = []
    for axis in (0, 1):
        sums, most = luma.sum(axis=axis, dtype=np.int64), luma.max(axis=axis)
        lit = np.flatnonzero((sums > (black + DARK) * luma.shape[axis]) | (most > black + SPECK))
        if not len(lit):
            return None
        spans.append((int(lit[0]), int(lit[-1]) + 1 - int(lit[0])))
    (x, width), (y, height) = spans
    return Region(width, height, x, y)


def enclosing(regions: list[Region]) -> Region:
    """Return the smallest region that contains all of ``regions``."""
    left, top = min(each.x for each in regions), min(each.y for each in regions)
    right, bottom = max(each.x + each.width for each in regions), max(each.y + each.height for each in regions)
    return Region(right - left, bottom - top, left, top)


def _sample(ranges: TrackRanges, source: VideoFormat) -> Iterator[_Luma]:
    """Yield the luma of sampled pictures: one at each of up to 32 access points; several at each if there are few."""
    points = _points(ranges)
    each = SAMPLES // len(points)
    chain = FilterChain(FilterSettings(replace(source, pix_fmt="gray")), ranges.index.time_base)
    with closing(chain):
        for packet, start in points:
            times = ranges.index.times
            place = int(np.searchsorted(times, start))
            wanted = [int(time) for time in times[place : place + STRIDE * each : STRIDE]]
            yield from _decoded(ranges, packet, wanted, chain)


def _points(ranges: TrackRanges) -> list[tuple[int, int]]:
    """Return (packet, time) of access points spread over the part; if it has fewer than two, only the part's start."""
    index, first, last = ranges.index, ranges.segments[0], ranges.segments[-1]
    start = index.first_ticks if first.start_ticks is None else first.start_ticks
    end = index.end_ticks if last.end_ticks is None else last.end_ticks
    points = [
        (point.packet, int(index.pts[point.packet]))
        for point in index.access_points
        if _is_usable(index, point) and start <= int(index.pts[point.packet]) < end
    ]
    if len(points) <= 1:
        return [(first.cut_packet, start)]
    count = min(SAMPLES, len(points))
    return [points[number * len(points) // count] for number in range(count)]


def _is_usable(index: TrackIndex, point: AccessPoint) -> bool:
    return bool(index.timed[point.packet]) and not index.is_unreliable(point.packet)


def _decoded(ranges: TrackRanges, packet: int, wanted: list[int], chain: FilterChain) -> Iterator[_Luma]:
    if not wanted:
        return
    planned = PlannedSegment(0, wanted[0], wanted[-1] + 1, packet, len(wanted), "")
    with closing(decode_range(ranges.decode(planned, 0), DecodeTally(), SOFTWARE)) as pictures:
        for ticks, picture in pictures:
            if ticks > wanted[-1]:
                return
            if ticks in wanted:
                yield from (grey.to_ndarray().astype(np.uint8) for _, grey in chain.push(ticks, picture))
