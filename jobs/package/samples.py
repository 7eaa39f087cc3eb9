"""The samples of a track as columns of numbers, and how they are cut into fragments and segments. Pure.

One rule for times: every track keeps the times at which the proven file presents its samples, its edit lists applied. All
proven files of a package count from the same moment, so pictures and sound stay in step, and no time is shifted.

- A picture's decoding time is the presentation time of the picture with the same number in presentation order, so that
  each fragment's ``tfdt`` is the time of its first picture, fragments adjoin, and renditions that reorder differently
  agree. Pictures may then be decoded "later" than shown: composition offsets are signed, without an edit list (CMAF
  7.5.17). A demuxer adds its own delay.
- Sound presented before time 0 (the priming of an encoder) is hidden by a single edit; ``tfdt`` counts from the first
  sample (CMAF 7.5.13 b). Players of Media Source Extensions follow such an edit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ticks: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Samples:
    """A track's samples in decoding order, all arrays of the same length. ``end`` is when the last one ends, in ticks."""

    time_base: Fraction
    pts: Ticks
    sizes_bytes: NDArray[np.int64]
    is_key: NDArray[np.bool_]
    end: int

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
        """How many ticks are presented before time 0."""
        return max(0, -int(self.decode[0]))

    @property
    def starts(self) -> list[int]:
        """The numbers of the samples at which decoding and showing can begin: all before is shown before.

        These are keyframes without leading pictures: SAP type 1 of 14496-12, annex I.
        """
        shown_before = np.maximum.accumulate(self.pts)
        shown_after = np.minimum.accumulate(self.pts[::-1])[::-1]
        is_clean = shown_after == self.pts
        is_clean[1:] &= shown_before[:-1] < self.pts[1:]
        return [int(each) for each in np.flatnonzero(self.is_key & is_clean)]

    def time_s(self, number: int) -> Fraction:
        """Return when a sample is presented, in seconds."""
        return int(self.pts[number]) * self.time_base


@dataclass(frozen=True, slots=True)
class Cut:
    """A segment of a track as numbers of samples: where its fragments begin, and where it ends."""

    fragments: tuple[int, ...]
    end: int

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first sample of each fragment, and the sample after its last."""
        return list(pairwise((*self.fragments, self.end)))


def cut_on_grid(samples: Samples, starts: Sequence[int], segment_s: Fraction) -> list[Cut]:
    """Cut at the first of ``starts`` at or after each multiple of ``segment_s`` from the first sample.

    ``starts`` begins with 0. Each of the other starts in a segment begins a fragment.
    """
    step = segment_s / samples.time_base
    begin = int(samples.pts[starts[0]])
    multiples = [int((int(samples.pts[each]) - begin) // step) for each in starts]
    firsts = [start for n, start in enumerate(starts) if not n or multiples[n] > multiples[n - 1]]
    return [
        Cut(tuple(each for each in starts if first <= each < end), end)
        for first, end in pairwise((*firsts, len(samples.pts)))
    ]


def cut_at(samples: Samples, boundaries_s: Sequence[Fraction]) -> list[Cut]:
    """Cut at the first sample at or after each boundary, one fragment for each segment."""
    ticks = np.array([ceil(each / samples.time_base) for each in boundaries_s], dtype=np.int64)
    found = np.searchsorted(samples.pts, ticks)
    firsts = [0, *sorted({int(each) for each in found} - {0, len(samples.pts)})]
    return [Cut((first,), end) for first, end in pairwise((*firsts, len(samples.pts)))]
