"""Defines how a tensor's values are made from a picture's samples, in whole numbers, equally on host and device.

For samples of S bits and values of D bits, where ``rounded`` means to the nearest number, halves to the even one:

1. Down: b = rounded(sum of weights x sample / 2^(14 - 2)), in each column of the source.
2. Across: p = sum of weights x b. Luma and chroma each go straight to the target's size.
3. Colour: value = rounded(sum of weights x (p - offset x 2^(14 + 2)) / 2^(16 + 14 + 2)), clipped to 0 and 2^D - 1.

Sample t of the target is made of the source from t x ratio to (t + 1) x ratio, where ratio is the crop's side over
the target's. The filter is centred there, and widened by that ratio when scaling down. Resizing weights have 14 bits
and sum to 2^14; the largest ones absorb the rounding error. Their magnitudes sum to less than 1.6. Therefore b has
S + 2 bits and a sign, p fits in 36 bits, and the last sum in 53 bits. Beyond the crop's edge the last sample is
repeated; chroma samples that cover any part of the crop are inside. Chroma is placed as stated, else on the left.

Colour weights are in units of 2^-16. For 8-bit samples, colour weights are multiples of 32, which changes a value by
less than 0.08. Grey is Y' in full range; R'G'B' is only resized, and its grey is the luma by its matrix. D is 8 for
``uint8``, else S. A floating-point value is value x (1 / ((2^D - 1) x std)) + (0 - mean / std) in double precision,
rounded to single precision, then to the type.

On the host, FFmpeg's swscale makes the most usual tensors: R'G'B' by the bilinear filter, from 8-bit samples with half
the columns of chroma. If these are resized, the crop must consist of whole chroma samples and have sides of at least
16, the target must have sides of 8 to 4096, and no side may become more than 64 times smaller. The formula of all these
tensors is another one, on the device too:

1. Across: a = floor(sum of weights x sample / 2^7), in each row of the source.
2. Down: p = floor(sum of weights x a / 2^10 + 1/2).
3. Colour: value = floor(sum of weights x (p - offset x 2^9) / 2^(16 + 9) + 1/2), clipped to 0 and 255.

Weights across sum to 2^14, and weights down to 2^12. ``swscale_taps`` makes them; without resizing, they are those of
above, and steps 1 and 2 are exact. None is negative, so a fits in 15 bits and p in 17. Colour weights are multiples of
8, which changes a value by less than 0.04.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ...errors import Unsupported
from ..media.values import Colour
from ..surfaces.scaling import LUMA, ChromaLocation, Lattice, ScaleFilter, Taps, window_taps
from ..surfaces.to_rgb import WEIGHT_BITS, luma_weights, rgb_rule
from .sample_places import SamplePlaces
from .swscale_taps import swscale_taps
from .tensor_format import TensorFormat

TAP_BITS: Final = 14
"""The bits of a resizing weight: with these, sums of 8-bit samples are exact in single precision."""
SPARE_BITS: Final = 2
"""The extra low bits of a sample between steps 1 and 2."""
COLOUR_BITS: Final = WEIGHT_BITS
_BYTE_BITS: Final = 8
_BYTE_COLOUR_BITS: Final = 11
"""The bits of a colour weight for 8-bit samples: with these, single precision is exact if nothing is resized."""
_SWSCALE_COLOUR_BITS: Final = 13
"""The bits of a colour weight in swscale."""
_SWSCALE_DOWN_BITS: Final = 12
"""The bits of a weight of swscale for rows."""
_LEAST_SIDE: Final = 16
"""The least side of a crop that swscale resizes: with fewer samples of chroma it would cut filters off."""
_LEAST_TARGET, _MOST_TARGET = 8, 4096
"""The least and the largest side to which swscale resizes; beyond them its places or filters are not exact enough."""
_MOST_RATIO: Final = 64
"""How many times smaller swscale makes a side; with filters of 170 weights or more it scales in two steps."""
_UNKNOWN: Final = {8: "YCgCo", 10: "BT.2020 constant luminance", 11: "YDzDx", 13: "derived", 14: "ICtCp", 15: "IPT-C2"}
"""The matrices of H.273 that are not weighted sums of samples, or are rare."""
_FULL: Final = 2


Window = tuple[int, int, int, int]
"""The (left, top, width, height) of a part of a picture."""


@dataclass(frozen=True, slots=True)
class ChannelTaps:
    """How one channel is resized to the target's size."""

    down: Taps
    across: Taps


@dataclass(frozen=True, slots=True)
class Rounding:
    """How a sum is divided by 2^``bits``: floor((sum + added) / 2^bits)."""

    bits: int
    added: int
    to_even: int = 0  # 1: another 1 is added if floor(sum / 2^bits) is odd, so that halves become even


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlan:
    """How pictures of one format, size and colour become values."""

    taps: tuple[ChannelTaps, ...]  # for each channel of the source that is used
    bits: int  # the number S of the formulas
    value_bits: int  # the number D of the formulas
    weights: tuple[tuple[int, ...], ...]  # for each channel of the target, a weight of each source channel
    offsets: tuple[int, ...]  # one per channel of the source, for samples of S bits
    size: tuple[int, int]  # the target's (width, height)
    by_swscale: bool  # whether swscale makes the tensors on the host: columns are resized before rows

    @property
    def largest(self) -> int:
        """The largest number of ``value_bits`` bits."""
        return (1 << self.value_bits) - 1

    @property
    def roundings(self) -> tuple[Rounding, Rounding, Rounding]:
        """How the sums of the formula's three steps are rounded."""
        return _SWSCALE_ROUNDINGS if self.by_swscale else _ROUNDINGS

    @property
    def sum_bits(self) -> int:
        """How many bits step 2 adds to a sample."""
        return self.roundings[2].bits - COLOUR_BITS


def _to_even(bits: int) -> Rounding:
    return Rounding(bits, (1 << bits >> 1) - 1, 1)


def _half_up(bits: int) -> Rounding:
    return Rounding(bits, 1 << bits >> 1)


_ROUNDINGS: Final = _to_even(TAP_BITS - SPARE_BITS), Rounding(0, 0), _to_even(COLOUR_BITS + TAP_BITS + SPARE_BITS)
_SWSCALE_ROUNDINGS: Final = Rounding(7, 0), _half_up(10), _half_up(COLOUR_BITS + 9)


@lru_cache(maxsize=128)
def tensor_plan(places: SamplePlaces, size: tuple[int, int], colour: Colour, format_: TensorFormat) -> TensorPlan:
    """Return the plan for pictures of this (width, height).

    ``UsageError`` if the crop exceeds the picture; ``Unsupported`` if no formula is known for the picture's matrix.
    """
    window, target, filter_ = format_.window(*size), format_.target(*size), ScaleFilter(format_.filter)
    value_bits = _BYTE_BITS if format_.dtype == "uint8" else places.bits
    grey = format_.colour == "gray"
    by_swscale = not grey and filter_ is ScaleFilter.BILINEAR and _swscale_makes(places, window, target)
    weight_bits = _SWSCALE_COLOUR_BITS if by_swscale else _weight_bits(places)
    weights, offsets = _colour(places, size[1], colour, grey=grey, value_bits=value_bits, weight_bits=weight_bits)
    sites = ((LUMA, LUMA), *[siting(places, colour)] * 2)[: len(offsets)]
    return TensorPlan(
        taps=tuple(_channel(window, target, each, filter_, by_swscale=by_swscale) for each in sites),
        bits=places.bits,
        value_bits=value_bits,
        weights=weights,
        offsets=offsets,
        size=target,
        by_swscale=by_swscale,
    )


def _swscale_makes(places: SamplePlaces, window: Window, target: tuple[int, int]) -> bool:
    """Return whether swscale has a formula for R'G'B' by the bilinear filter."""
    if places.bits != _BYTE_BITS or not places.halved_across:
        return False
    if target == window[2:]:
        return True
    units = 2, 2 if places.halved_down else 1
    return all(
        begin % unit == extent % unit == 0
        and extent >= _LEAST_SIDE
        and _LEAST_TARGET <= count <= _MOST_TARGET
        and extent <= count * _MOST_RATIO
        for begin, extent, count, unit in zip(window[:2], window[2:], target, units, strict=True)
    )


def _channel(
    window: Window,
    target: tuple[int, int],
    sites: tuple[Lattice, Lattice],
    filter_: ScaleFilter,
    *,
    by_swscale: bool,
) -> ChannelTaps:
    takes_swscales = by_swscale and target != window[2:]
    across, down = (
        swscale_taps(part, count, lattice, one=1 << bits)
        if takes_swscales
        else window_taps(part, count, filter_, lattice, one=1 << bits)
        for part, count, lattice, bits in zip(
            (window[::2], window[1::2]),
            target,
            sites,
            (TAP_BITS, _SWSCALE_DOWN_BITS if by_swscale else TAP_BITS),
            strict=True,
        )
    )
    return ChannelTaps(down, across)


def siting(places: SamplePlaces, colour: Colour) -> tuple[Lattice, Lattice]:
    """Return where chroma's columns and rows are."""
    location = ChromaLocation(colour.chroma_location or ChromaLocation.LEFT.value)
    return location.across(halved=places.halved_across), location.down(halved=places.halved_down)


def _colour(
    places: SamplePlaces, height: int, colour: Colour, *, grey: bool, value_bits: int, weight_bits: int
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Return the weights and the offsets of those source channels that are used."""
    if places.is_rgb:
        return _of_rgb(places, height, colour, grey=grey, value_bits=value_bits)
    is_coloured = len(places.channels) > 1
    if is_coloured and not grey and colour.matrix in _UNKNOWN:
        message = f"pictures with the matrix {_UNKNOWN[colour.matrix]} ({colour.matrix}) have no formula to RGB"
        raise Unsupported(message, "Convert them first, or take TensorFormat(colour='gray').")
    stated = Colour(range=_FULL, matrix=colour.matrix) if places.is_full else colour
    rule = rgb_rule(stated, height, bits=places.bits, target_bits=value_bits, weight_bits=weight_bits)
    if grey or not is_coloured:
        return ((rule.luma,),) * (1 if grey else 3), (rule.black,)
    rows = (rule.luma, 0, rule.red_cr), (rule.luma, rule.green_cb, rule.green_cr), (rule.luma, rule.blue_cb, 0)
    return rows, (rule.black, rule.middle, rule.middle)


def _weight_bits(places: SamplePlaces) -> int:
    return _BYTE_COLOUR_BITS if places.bits == _BYTE_BITS else COLOUR_BITS


def _of_rgb(
    places: SamplePlaces, height: int, colour: Colour, *, grey: bool, value_bits: int
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    scale = rgb_rule(Colour(range=_FULL), height, bits=places.bits, target_bits=value_bits).luma
    if not grey:
        return ((scale, 0, 0), (0, scale, 0), (0, 0, scale)), (0, 0, 0)
    step = 1 << (COLOUR_BITS - _weight_bits(places))
    red, _, blue = (round(weight * scale / step) * step for weight in luma_weights(colour, height))
    return ((red, scale - red - blue, blue),), (0, 0, 0)
