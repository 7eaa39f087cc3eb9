"""The weights with which swscale resizes by its bilinear filter; they are the same on every processor.

They follow ``initFilter`` (libswscale/utils.c, FFmpeg 8.1), and differ from those of ``window_taps`` in four ways:

1. The distance between targets is rounded to 2^-16 source samples: the last of n targets is at most n / 2^17 off.
2. Small weights at both ends of a filter are dropped, at most 0.2 % at each end.
3. Scaling down, the first target may lack its first weight, at most 4.2 %, which is of a repeated sample.
4. Each weight hands its rounding error on to the next one.
"""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..surfaces.scaling import Lattice, Taps

_STEP_BITS: Final = 16
"""The bits of the distance between targets, in source samples; places have one bit more."""
_NEAR_BITS: Final = 30
"""The bits of a distance from the filter's centre, in units of its reach."""
_FINE_BITS: Final = 54
"""The bits of a weight before it is rounded, without those that a sum of many weights needs."""
_MOST_SUM_BITS: Final = 8
_DROPPED: Final = 0.002
"""The most that the weights dropped at one end may sum to, where the middle of the filter is 1."""

Wholes = NDArray[np.int64]


@lru_cache(maxsize=256)
def swscale_taps(window: tuple[int, int], target_count: int, lattice: Lattice, *, one: int) -> Taps:
    """Return the taps that scale a window of an axis to ``target_count`` samples.

    ``window`` is (begin, extent) in luma samples, and consists of whole samples of the lattice. The result's ``firsts``
    count from the first sample of the whole plane, and its weights sum to ``one``.
    """
    begin, count = (each // lattice.spacing for each in window)
    one_bits = _FINE_BITS - min(max(1, count // target_count).bit_length() - 1, _MOST_SUM_BITS)
    firsts, weights = _reduced(*_triangles(count, target_count, lattice, one_bits), _DROPPED * (1 << one_bits))
    firsts, weights = _inside(firsts, weights, count)
    rounded = _rounded(weights, one)
    return Taps(tuple((begin + firsts).tolist()), tuple(map(tuple, rounded.tolist())))


def site(lattice: Lattice) -> int:
    """Return where the first sample is, in units of 1/256 luma sample after the first luma sample."""
    return int(256 * lattice.first) - 128


def _triangles(count: int, target_count: int, lattice: Lattice, one_bits: int) -> tuple[Wholes, Wholes]:
    """Return each target's first source sample, and its weights: whole numbers of ``one_bits``, not normalised."""
    step = ((count << _STEP_BITS) + target_count // 2) // target_count
    is_reduced = step > 1 << _STEP_BITS
    length = min(1 + (-(-2 * count // target_count) if is_reduced else 2), count - 2)
    first_place = ((site(lattice) + 128) // lattice.spacing) << (_STEP_BITS + 1 - 8)
    centres = step - first_place + 2 * step * np.arange(target_count, dtype=np.int64)
    unit = 1 << (_STEP_BITS + 1)
    begins = centres - (length - 2) * (unit // 2)
    firsts = np.sign(begins) * (np.abs(begins) // unit)
    distances = np.abs((firsts[:, None] + np.arange(length)) * unit - centres[:, None])
    distances <<= _NEAR_BITS - (_STEP_BITS + 1)
    if is_reduced:
        distances = distances * target_count // count
    return firsts, np.maximum((1 << _NEAR_BITS) - distances, 0) << (one_bits - _NEAR_BITS)


def _reduced(firsts: Wholes, weights: Wholes, most: float) -> tuple[Wholes, Wholes]:
    """Drop weights before a target's first and after its last, whose sum is at most ``most``."""
    length = weights.shape[1]
    dropped = (np.cumsum(weights, axis=1) <= most).sum(axis=1)
    # A target begins at no later sample than the next target does.
    begins = np.minimum.accumulate((firsts + dropped)[::-1])[::-1]
    places = (begins - firsts)[:, None] + np.arange(length)
    moved = np.where(places < length, np.take_along_axis(weights, np.minimum(places, length - 1), 1), 0)
    needed = length - (np.cumsum(moved[:, :0:-1], axis=1) <= most).sum(axis=1)
    return begins, moved[:, : needed.max()]


def _inside(firsts: Wholes, weights: Wholes, count: int) -> tuple[Wholes, Wholes]:
    """Add weights beyond the edges to the samples at the edges."""
    length = weights.shape[1]
    begins = np.clip(firsts, 0, count - length)
    places = np.clip(firsts[:, None] + np.arange(length), 0, count - 1) - begins[:, None]
    found = np.zeros_like(weights)
    np.add.at(found, (np.arange(len(firsts))[:, None], places), weights)
    return begins, found


def _rounded(weights: Wholes, one: int) -> Wholes:
    """Return weights that sum to ``one``; each hands its rounding error on to the next one."""
    unit = (weights.sum(axis=1) + one // 2) // one
    error = np.zeros_like(unit)
    found = np.empty_like(weights)
    for place, column in enumerate(weights.T):
        exact = column + error
        found[:, place] = np.sign(exact) * ((np.abs(exact) + unit // 2) // unit)
        error = exact - found[:, place] * unit
    return found
