"""Defines how a tensor's values are made from a picture's samples, in whole numbers: equal on host and device.

For samples of S bits and values of D bits, where ``rounded`` means to the nearest number, halves to the even one:

1. Down: b = rounded(sum of weights x sample / 2^(14 - 2)), in each column of the source.
2. Across: p = sum of weights x b. Luma and chroma each go straight to the target's size.
3. Colour: value = rounded(sum of weights x (p - offset x 2^(14 + 2)) / 2^(16 + 14 + 2)), clipped to 0 and 2^D - 1.

Colour weights are in units of 2^-16. For 8-bit samples, colour weights are multiples of 32, which changes a value by
less than 0.08. The magnitudes of resizing weights sum to less than 1.6. Therefore b has S + 2 bits and a sign, p fits
in 36 bits, and the last sum in 53 bits.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ...errors import Unsupported
from ..media.values import Colour
from ..surfaces.scaling import LUMA, ChromaLocation, ScaleFilter, Taps, window_taps
from ..surfaces.to_rgb import WEIGHT_BITS, luma_weights, rgb_rule
from .sample_places import SamplePlaces
from .tensor_format import TensorFormat

TAP_BITS: Final = 14
"""The bits of a resizing weight: with these, sums of 8-bit samples are exact in single precision."""
SPARE_BITS: Final = 2
"""The extra low bits that a sample has between the two axes."""
COLOUR_BITS: Final = WEIGHT_BITS
_BYTE_BITS: Final = 8
_BYTE_COLOUR_BITS: Final = 11
"""The bits of a colour weight for 8-bit samples: with these, single precision is exact if nothing is resized."""
_UNKNOWN: Final = {8: "YCgCo", 10: "BT.2020 constant luminance", 11: "YDzDx", 13: "derived", 14: "ICtCp", 15: "IPT-C2"}
"""The matrices of H.273 that are not weighted sums of samples, or are rare."""
_FULL: Final = 2


@dataclass(frozen=True, slots=True)
class ChannelTaps:
    """How one channel is resized to the target's size."""

    down: Taps
    across: Taps


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlan:
    """How pictures of one format, size and colour become values."""

    taps: tuple[ChannelTaps, ...]  # for each channel of the source that is used
    bits: int  # the number S of the formulas
    value_bits: int  # the number D of the formulas
    weights: tuple[tuple[int, ...], ...]  # for each channel of the target, a weight of each source channel
    offsets: tuple[int, ...]  # for each channel of the source, in S bits
    size: tuple[int, int]  # the target's (width, height)

    @property
    def largest(self) -> int:
        """The largest value."""
        return (1 << self.value_bits) - 1


@lru_cache(maxsize=128)
def tensor_plan(places: SamplePlaces, size: tuple[int, int], colour: Colour, format_: TensorFormat) -> TensorPlan:
    """Return the plan for pictures of this (width, height).

    ``UsageError`` if the crop exceeds the picture; ``Unsupported`` if no formula is known for the picture's matrix.
    """
    left, top, wide, high = format_.window(*size)
    target = format_.target(*size)
    value_bits = _BYTE_BITS if format_.dtype == "uint8" else places.bits
    weights, offsets = _colour(places, size[1], colour, grey=format_.colour == "gray", value_bits=value_bits)
    location = ChromaLocation(colour.chroma_location or ChromaLocation.LEFT.value)
    filter_, one = ScaleFilter(format_.filter), 1 << TAP_BITS
    found = []
    for number in range(len(offsets)):
        halved_across, halved_down = (number > 0 and each for each in (places.halved_across, places.halved_down))
        columns = location.across(halved=True) if halved_across else LUMA
        rows = location.down(halved=True) if halved_down else LUMA
        down = window_taps((top, high), target[1], filter_, rows, one=one)
        found.append(ChannelTaps(down, window_taps((left, wide), target[0], filter_, columns, one=one)))
    return TensorPlan(
        taps=tuple(found), bits=places.bits, value_bits=value_bits, weights=weights, offsets=offsets, size=target
    )


def _colour(
    places: SamplePlaces, height: int, colour: Colour, *, grey: bool, value_bits: int
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Return the weights and the offsets of those source channels that are used."""
    if places.is_rgb:
        return _of_rgb(places, height, colour, grey=grey, value_bits=value_bits)
    is_coloured = len(places.channels) > 1
    if is_coloured and not grey and colour.matrix in _UNKNOWN:
        message = f"pictures with the matrix {_UNKNOWN[colour.matrix]} ({colour.matrix}) have no formula to RGB"
        raise Unsupported(message, "Convert them first, or take TensorFormat(colour='gray').")
    stated = Colour(range=_FULL, matrix=colour.matrix) if places.is_full else colour
    weight_bits = _weight_bits(places)
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
