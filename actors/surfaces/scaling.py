"""How much each source sample contributes to a target sample: the arithmetic of scaling and of moving chroma.

The arithmetic has only whole numbers, so it is the same on every machine. It is for progressive pictures only. Sources:
ITU-T H.273, 8.7; R. Keys, "Cubic Convolution Interpolation for Digital Image Processing" (1981).
"""

import math
from dataclasses import dataclass
from enum import Enum, StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Final

WEIGHT_BITS: Final = 15
"""The bits of a weight: enough for 12-bit samples, but few enough for two passes in 32-bit sums (``conversion.py``)."""
ONE: Final = 1 << WEIGHT_BITS
"""The sum of a target sample's weights."""

_FINE_BITS: Final = 48
_FINE: Final = 1 << _FINE_BITS
"""The number 1, in the unit in which filters are evaluated."""
_PI: Final = 884279719003555
"""Pi in units of 1 / ``_FINE``, rounded."""


class ScaleFilter(StrEnum):
    """How source samples are weighted. All filters pass a picture through unchanged if nothing is scaled."""

    BILINEAR = "bilinear"  # a triangle: soft
    BICUBIC = "bicubic"  # the cubic with a = -0.6, swscale's default
    LANCZOS = "lanczos"  # a sinc under a sinc window of three lobes: the sharpest, with the most ringing

    @property
    def reach(self) -> int:
        """How far the filter reaches to each side, in samples, unless scaling down widens the filter."""
        return {ScaleFilter.BILINEAR: 1, ScaleFilter.BICUBIC: 2, ScaleFilter.LANCZOS: 3}[self]


@dataclass(frozen=True, slots=True)
class Lattice:
    """Where an axis's samples are: sample k at ``first + k * spacing``, in luma samples from the picture's edge."""

    spacing: int
    first: Fraction


LUMA: Final = Lattice(1, Fraction(1, 2))
"""The lattice of luma, and of chroma that is not halved."""
_BETWEEN: Final = Lattice(2, Fraction(1))
_ON_EVEN: Final = Lattice(2, Fraction(1, 2))
_ON_ODD: Final = Lattice(2, Fraction(3, 2))


class ChromaLocation(Enum):
    """Where halved chroma is sited among luma. The value is FFmpeg's number; 0 (unspecified) is read as LEFT."""

    LEFT = 1  # MPEG-2, H.264 and HEVC, unless they state another location
    CENTER = 2  # JPEG, MPEG-1, and swscale by default
    TOP_LEFT = 3  # BT.2020 and BT.2100
    TOP = 4
    BOTTOM_LEFT = 5
    BOTTOM = 6

    def across(self, *, halved: bool) -> Lattice:
        """Return where chroma's columns lie between those of luma."""
        if not halved:
            return LUMA
        return _ON_EVEN if self in _LEFT else _BETWEEN

    def down(self, *, halved: bool) -> Lattice:
        """Return where chroma's rows lie between those of luma."""
        return _DOWN.get(self, _BETWEEN) if halved else LUMA


_LEFT: Final = frozenset({ChromaLocation.LEFT, ChromaLocation.TOP_LEFT, ChromaLocation.BOTTOM_LEFT})
_DOWN: Final = {
    ChromaLocation.TOP_LEFT: _ON_EVEN,
    ChromaLocation.TOP: _ON_EVEN,
    ChromaLocation.BOTTOM_LEFT: _ON_ODD,
    ChromaLocation.BOTTOM: _ON_ODD,
}


@dataclass(frozen=True, slots=True)
class Taps:
    """The source samples, and their weights, of each target sample along an axis.

    Target sample ``t`` is the sum over ``k`` of ``weights[t][k] / ONE`` times source sample ``firsts[t] + k``. All
    targets have the same number of weights. The weights of a target sum to ``ONE`` (or to the ``one`` of
    ``window_taps``), and no index is outside the source.
    """

    firsts: tuple[int, ...]
    weights: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        """How many source samples contribute to a target sample."""
        return len(self.weights[0])

    @property
    def is_identity(self) -> bool:
        """Whether every target sample equals the source sample of the same number."""
        return self.count == 1 and self.firsts == tuple(range(len(self.firsts)))


@lru_cache(maxsize=64)
def taps(
    source_size: int,
    target_size: int,
    filter_: ScaleFilter,
    source_lattice: Lattice = LUMA,
    target_lattice: Lattice = LUMA,
) -> Taps:
    """Return the taps of an axis's target samples.

    Sizes are the extents of the pictures along the axis, in luma samples; lattices say where the plane's samples are.
    Scaling down widens the filter in proportion, so that details finer than the target's samples do not alias. Beyond
    an edge, the sample at the edge is repeated. ``ValueError`` if a size is not a positive multiple of the spacing of
    its lattice.
    """
    source_count = _count(source_size, source_lattice)
    target_count = _count(target_size, target_lattice)
    ratio = Fraction(source_size, target_size)
    step = ratio * target_lattice.spacing / source_lattice.spacing
    begin = (ratio * target_lattice.first - source_lattice.first) / source_lattice.spacing
    return _tapped(begin, step, (source_count, target_count), filter_, ONE)


@lru_cache(maxsize=256)
def window_taps(
    window: tuple[int, int], target_count: int, filter_: ScaleFilter, lattice: Lattice = LUMA, *, one: int = ONE
) -> Taps:
    """Return the taps that scale a window of an axis to ``target_count`` samples.

    ``window`` is (begin, extent) in luma samples. The result's ``firsts`` count from the first sample of the whole
    plane, and its weights sum to ``one``. Only samples whose area is at least partly inside the window are used; beyond
    the window's edges, the outermost of these samples are repeated.
    """
    begin, extent = window
    first_source, last_source = begin // lattice.spacing, -(-(begin + extent) // lattice.spacing)
    ratio = Fraction(extent, target_count)
    start = (begin + ratio / 2 - lattice.first) / lattice.spacing - first_source
    counts = last_source - first_source, target_count
    found = _tapped(start, ratio / lattice.spacing, counts, filter_, one)
    return Taps(tuple(first + first_source for first in found.firsts), found.weights)


def _tapped(begin: Fraction, step: Fraction, counts: tuple[int, int], filter_: ScaleFilter, one: int) -> Taps:
    """Return the taps of targets at ``begin``, ``begin + step`` and so on; ``counts`` are (sources, targets)."""
    source_count, target_count = counts
    widening = max(Fraction(1), step)
    # The weights are computed in whole numbers over one denominator, because ``Fraction`` is much slower.
    over = math.lcm(begin.denominator, step.denominator)
    first_place, apart = (each.numerator * (over // each.denominator) for each in (begin, step))
    phases: dict[int, tuple[int, list[int]]] = {}
    found = []
    for number in range(target_count):
        whole, phase = divmod(first_place + number * apart, over)
        if phase not in phases:
            phases[phase] = _weighed(phase, over, widening, filter_, one)
        first, weights = phases[phase]
        found.append(_folded(whole + first, weights, source_count))
    return _aligned(found, source_count)


def _count(size: int, lattice: Lattice) -> int:
    count, rest = divmod(size, lattice.spacing)
    if count <= 0 or rest:
        msg = f"an axis of {size} has no whole number of samples that are {lattice.spacing} apart"
        raise ValueError(msg)
    return count


def _weighed(phase: int, over: int, widening: Fraction, filter_: ScaleFilter, one: int) -> tuple[int, list[int]]:
    """Return the first index and the weights (whose sum is ``one``) around the position ``phase / over`` in [0, 1)."""
    unit = over * widening.numerator
    place, reach = phase * widening.denominator, filter_.reach * unit
    step = over * widening.denominator
    first, last = (place - reach) // step + 1, -(-(place + reach) // step) - 1
    distances = [abs(index * step - place) for index in range(first, last + 1)]
    # From here on distances and a filter's values are in units of 1 / ``_FINE``.
    fine = [distance * _FINE // unit for distance in distances]
    if filter_ is ScaleFilter.BILINEAR:
        weights = [max(0, _FINE - distance) for distance in fine]
    else:
        shape, most = (_cubic if filter_ is ScaleFilter.BICUBIC else _lanczos), filter_.reach * _FINE
        weights = [0 if distance >= most else shape(distance) for distance in fine]
    total = sum(weights)
    rounded = [(2 * weight * one + total) // (2 * total) for weight in weights]
    # The largest weight absorbs the rounding error; two equal largest weights share the error, which keeps the
    # symmetry.
    largest = max(weights)
    bearers = [place for place, weight in enumerate(weights) if weight == largest]
    share, odd = divmod(one - sum(rounded), len(bearers))
    for place in bearers:
        rounded[place] += share
    rounded[bearers[0]] += odd
    return first, rounded


def _cubic(fine: int) -> int:
    square, cube = fine * fine, fine * fine * fine
    if fine < _FINE:
        return (7 * cube - 12 * square * _FINE + 5 * _FINE**3) // (5 * _FINE**2)
    return -3 * (cube - 5 * square * _FINE + 8 * fine * _FINE**2 - 4 * _FINE**3) // (5 * _FINE**2)


def _lanczos(fine: int) -> int:
    if not fine:
        return _FINE
    angle = fine * _PI >> _FINE_BITS
    return 3 * _sine(fine) * _sine(fine // 3) * _FINE // (angle * angle)


def _sine(half_turns: int) -> int:
    """Return the sine of a number of half turns, which is exactly zero for a whole number."""
    whole, rest = divmod(half_turns, _FINE)
    angle = min(rest, _FINE - rest) * _PI >> _FINE_BITS
    square = angle * angle >> _FINE_BITS
    total, term, number = 0, angle, 1
    while term:
        total += term if number % 4 == 1 else -term
        term = (term * square >> _FINE_BITS) // ((number + 1) * (number + 2))
        number += 2
    return -total if whole % 2 else total


def _folded(first: int, weights: list[int], source_count: int) -> tuple[int, list[int]]:
    """Add the weights of samples beyond the edges to those of the edge samples, and drop zero weights at both ends."""
    if first >= 0 and first + len(weights) <= source_count and weights[0] and weights[-1]:
        return first, weights
    sums: dict[int, int] = {}
    for index, weight in enumerate(weights, first):
        place = min(max(index, 0), source_count - 1)
        sums[place] = sums.get(place, 0) + weight
    used = [place for place, weight in sums.items() if weight]
    return used[0], [sums[place] for place in range(used[0], used[-1] + 1)]


def _aligned(found: list[tuple[int, list[int]]], source_count: int) -> Taps:
    """Give all targets the same number of weights, all of them for samples within the source."""
    count = max(len(weights) for _, weights in found)
    firsts, rows = [], []
    for first, weights in found:
        begin = min(first, source_count - count)
        before = first - begin
        firsts.append(begin)
        rows.append((0,) * before + tuple(weights) + (0,) * (count - before - len(weights)))
    return Taps(tuple(firsts), tuple(rows))
