"""The goal of a job with a bitrate or a size, and the sample of its segments that is encoded first. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Any, Final

import numpy as np

from ...actors.encode.profiles import SoftwareProfile
from ...cluster.grouping import counted
from ..source.index import TrackIndex
from .allocation import RateScale, SizeBudget, first_crf

_SAMPLED_PART: Final = 8  # one in this many segments is sampled
_LEAST_SAMPLED: Final = 8  # at least this many segments are sampled
_BITS: Final = 8
_SPARED_PART: Final = 2000  # one in this many bytes is reserved, because containers state larger sizes in more bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RateGoal:
    """The rate or the size that a film has to reach."""

    scale: RateScale
    bitrate_bps: int | None  # the average of the encoded pictures; None if a size is given
    size_bytes: int | None  # the most bytes of the output file; None if a bitrate is given
    duration_s: Fraction
    first_crf: Fraction  # the CRF with which the sample is encoded
    sample: tuple[int, ...]  # the numbers of the sampled segments
    weights: tuple[int, ...]  # the source's bytes of each segment, to estimate the sample's part of the film

    def budget(self, other_bytes: int) -> SizeBudget:
        """Return the budget of the pictures; ``other_bytes`` is the size of everything else in the file."""
        if self.bitrate_bps is not None:
            return SizeBudget(int(self.bitrate_bps * self.duration_s / _BITS))
        size = self.size_bytes or 0
        return SizeBudget(max(0, size - size // _SPARED_PART - other_bytes))

    def part(self, segments: Mapping[int, int]) -> Fraction:
        """Return the fraction of the film in some runs of segments, given as {first segment: last segment}."""
        taken = sum(sum(self.weights[first : last + 1]) for first, last in segments.items())
        return Fraction(taken, sum(self.weights))

    @property
    def words(self) -> str:
        """The goal, and how it is reached, in words."""
        asked = (
            f"{self.bitrate_bps} bit/s on average"
            if self.size_bytes is None
            else f"at most {self.size_bytes} bytes in the file"
        )
        sampled = f"{len(self.sample)} of {counted(len(self.weights), 'segment')}"
        return f"{asked}; a first pass samples {sampled} with CRF {float(self.first_crf):g}"

    def to_json(self) -> dict[str, Any]:
        """Return the goal as JSON values."""
        return {
            "bitrate_bps": self.bitrate_bps,
            "size_bytes": self.size_bytes,
            "first_crf": float(self.first_crf),
            "sample": list(self.sample),
        }


def rate_goal(
    profile: SoftwareProfile,
    segments: Sequence[tuple[int | None, int | None]],
    index: TrackIndex,
    *,
    bitrate_bps: int | None,
    size_bytes: int | None,
    duration_s: Fraction,
    samples: int,
) -> RateGoal:
    """Return the goal of a film with ``samples`` luma samples; ``segments`` are the times [start, end) in ticks."""
    scale = RateScale.of(profile)
    bits = bitrate_bps * duration_s if bitrate_bps is not None else Fraction((size_bytes or 0) * _BITS)
    return RateGoal(
        scale=scale,
        bitrate_bps=bitrate_bps,
        size_bytes=size_bytes,
        duration_s=duration_s,
        first_crf=first_crf(bits / max(1, samples), scale),
        sample=sampled(len(segments)),
        weights=source_weights(segments, index),
    )


def sampled(segments: int, least: int = _LEAST_SAMPLED) -> tuple[int, ...]:
    """Return which of ``segments`` segments to sample, spread evenly: an eighth of them, but at least ``least``."""
    count = min(segments, max(least, ceil(segments / _SAMPLED_PART)))
    return tuple((2 * number + 1) * segments // (2 * count) for number in range(count))


def source_weights(segments: Sequence[tuple[int | None, int | None]], index: TrackIndex) -> tuple[int, ...]:
    """Return, for each segment, one more than the bytes of the source's packets whose time is in the segment."""
    order = np.argsort(index.pts, kind="stable")
    shown, summed = index.pts[order], np.concatenate([[0], np.cumsum(index.sizes_bytes[order])])
    starts = [0 if start is None else int(np.searchsorted(shown, start)) for start, _ in segments]
    end_ticks = segments[-1][1]
    end = len(shown) if end_ticks is None else int(np.searchsorted(shown, end_ticks))
    # One byte more, so that a segment without packets weighs something.
    return tuple(1 + int(summed[last] - summed[first]) for first, last in pairwise([*starts, end]))
