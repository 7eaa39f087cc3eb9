"""Measures how much each picture of a segment differs from the previous picture, in grey pictures of ``GRID`` samples.

The result includes the first and last grey pictures, so that seams are measured too.
"""

from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ..device.work import WorkContext
from ..media.values import VideoFormat
from ..segment.decode_path import DecodePath
from ..segment.filtering import FilterChain, FilterSettings
from ..segment.walk import SegmentWalk
from .work import PictureWork, SeenSegment

GREY: Final = "gray"
GRID: Final = (64, 36)
"""Columns and rows of a grey picture: enough to show the content, too few to show the grain."""
DIFFERENCE_MOST: Final = GRID[0] * GRID[1] * 255


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredSegment(SeenSegment):
    """The measured pictures of a segment, in order.

    The segment counts as complete even if pictures that do not decode are left out.
    """

    pts_ticks: NDArray[np.int64]
    differences: NDArray[np.int64]  # the differences between successive pictures, 0 to ``DIFFERENCE_MOST``
    first: NDArray[np.uint8]  # the first picture in grey; empty if the segment has no pictures
    last: NDArray[np.uint8]


def difference(before: NDArray[np.uint8], now: NDArray[np.uint8]) -> int:
    """Return the sum of the absolute differences of two grey pictures."""
    return int(np.abs(now.astype(np.int64) - before).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSegment(PictureWork[MeasuredSegment]):
    """Measure the pictures of a segment; ``format`` is the format of decoded pictures."""

    format: VideoFormat

    def look(self, context: WorkContext, path: DecodePath[VideoFrame], fallback: str) -> MeasuredSegment:
        """Measure how much each picture of a decoding path differs from the one before it."""
        small = replace(self.format, width=GRID[0], height=GRID[1], pix_fmt=GREY)
        first: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        last = first
        times: list[int] = []
        differences: list[int] = []
        with closing(FilterChain(FilterSettings(small), self.decode.time_base)) as chain:
            walk = SegmentWalk(
                self.decode,
                (self.start_ticks, self.end_ticks),
                path,
                fallback,
                make=chain.push,
                seen=partial(context.advance, 0),
                in_thread=False,
            )
            with closing(walk.results()) as pictures:
                for ticks, picture in pictures:
                    grey = np.asarray(picture.to_ndarray(format=GREY), dtype=np.uint8)
                    if times:
                        differences.append(difference(last, grey))
                    else:
                        first = grey
                    last = grey
                    times.append(ticks)
                    context.advance()
        return MeasuredSegment(
            segment=self.segment,
            pts_ticks=np.array(times, dtype=np.int64),
            differences=np.array(differences, dtype=np.int64),
            first=first,
            last=last,
            frames_decoded=walk.met.frames,
            tally=walk.tally(),
        )
