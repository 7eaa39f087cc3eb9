"""The samples of a track as columns of numbers, and how they are cut into fragments and segments. Pure.

One rule for times: each track keeps the times at which the proven file presents its samples, with its edit lists
applied. All proven files of a package count from the same moment, so pictures and sound stay in step, and no time is
shifted.

- Picture n in decoding order is decoded at the time at which picture n in presentation order is shown. So each
  fragment's ``tfdt`` is the time of its first picture, fragments adjoin, and renditions that reorder differently agree.
- All pictures are then shown after a constant delay, for their reordering, and an edit takes the delay away (ISO/IEC
  23000-19, 7.5.13 a; 14496-12, 8.6.6.1). Signed composition offsets would need no edit (7.5.17), but FFmpeg's demuxer
  adds the delay to them, and pictures would lag behind their sound in players that use it.
- Sound before time 0, the priming of its encoder, is hidden by such an edit, and ``tfdt`` counts from the first sample
  (7.5.13 b). Browsers apply both edits in Media Source Extensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ticks: TypeAlias = NDArray[np.int64]
_TAIL_S: Final = Fraction(1, 4)  #: Where sound outlasts the video, it is not cut this close to the end of the sound


@dataclass(frozen=True, eq=False)
class Samples:
    """A track's samples in decoding order, in columns. ``end`` is when the last one ends, in ticks.

    ``delay_least`` is the smallest ``delay`` allowed, for a header that is written before all samples are known.
    """

    time_base: Fraction
    pts: Ticks
    sizes_bytes: NDArray[np.int64]
    is_key: NDArray[np.bool_]
    end: int
    delay_least: int = 0

    @cached_property
    def decode(self) -> Ticks:
        """The decoding times: the presentation times in ascending order."""
        return np.sort(self.pts)

    @cached_property
    def durations(self) -> Ticks:
        """The time from each decoding time to the next, and from the last one to the end."""
        return np.diff(self.decode, append=self.end)

    @property
    def hidden(self) -> int:
        """How many ticks of the track are before time 0."""
        return max(0, -int(self.decode[0]))

    @cached_property
    def delay(self) -> int:
        """By how many ticks pictures must be delayed so that none is shown before it is decoded."""
        return max(self.delay_least, int((self.decode - self.pts).max()))

    @property
    def is_start(self) -> NDArray[np.bool_]:
        """Whether each sample is shown after all samples decoded earlier and before all decoded later (SAP type 1)."""
        shown_after = np.minimum.accumulate(self.pts[::-1])[::-1]
        is_first: NDArray[np.bool_] = shown_after == self.pts
        is_first[1:] &= np.maximum.accumulate(self.pts)[:-1] < self.pts[1:]
        return is_first

    def time_s(self, number: int) -> Fraction:
        """Return when a sample is presented, in seconds."""
        return int(self.pts[number]) * self.time_base


@dataclass(frozen=True, slots=True)
class SampleCut:
    """A segment of a track: the numbers of its fragments' first samples, and of the sample after its last."""

    fragments: tuple[int, ...]
    end: int

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first sample of each fragment, and the sample after its last."""
        return list(pairwise((*self.fragments, self.end)))


def cut_on_grid(samples: Samples, segment_s: Fraction) -> list[SampleCut]:
    """Cut at the first keyframe at or after each multiple of ``segment_s`` from the first sample, which is a keyframe.

    Each keyframe begins a fragment.
    """
    starts = [int(each) for each in np.flatnonzero(samples.is_key)]
    step = segment_s / samples.time_base
    begin = int(samples.pts[0])
    multiples = [int((int(samples.pts[each]) - begin) // step) for each in starts]
    firsts = [start for n, start in enumerate(starts) if not n or multiples[n] > multiples[n - 1]]
    return [
        SampleCut(tuple(each for each in starts if first <= each < end), end)
        for first, end in pairwise((*firsts, len(samples.pts)))
    ]


def cut_at(samples: Samples, boundaries_s: Sequence[Fraction]) -> list[SampleCut]:
    """Cut at the first sample at or after each boundary. Each segment is one fragment."""
    ticks = np.array([ceil(each / samples.time_base) for each in boundaries_s], dtype=np.int64)
    found = np.searchsorted(samples.pts, ticks)
    firsts = [0, *sorted({int(each) for each in found} - {0, len(samples.pts)})]
    return [SampleCut((first,), end) for first, end in pairwise((*firsts, len(samples.pts)))]


def sound_cuts_s(video_s: Sequence[Fraction], end_s: Fraction, segment_s: Fraction) -> list[Fraction]:
    """Return where sound is cut: where segments of video begin, and every ``segment_s`` after the video.

    Args:
        video_s: the times at which segments of video begin, and the time at which the last one ends.
        end_s: where the sound ends.
        segment_s: as in ``Package``.
    """
    *begins_s, video_end_s = video_s
    found, next_s = begins_s[1:], begins_s[-1] + segment_s
    while next_s < end_s - _TAIL_S:
        found += [next_s] if next_s >= video_end_s else []
        next_s += segment_s
    return found
