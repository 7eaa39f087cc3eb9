"""Converts Y'CbCr to R'G'B' of full range, in whole numbers: the same bits on every processor and every GPU.

Source: ITU-T H.273, 8.3 (MatrixCoefficients, VideoFullRangeFlag).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..media.values import Colour

WEIGHT_BITS: Final = 16
"""The bits of a weight. A weight is below 2.2, so sums of 8-bit samples fit 32 signed bits; deeper samples take 64."""
_FULL: Final = 2
"""FFmpeg's number for full range."""
_BT709, _FCC, _BT601, _SMPTE240, _BT2020 = (
    (Fraction(red, 10_000), Fraction(blue, 10_000))
    for red, blue in ((2126, 722), (3000, 1100), (2990, 1140), (2120, 870), (2627, 593))
)
_WEIGHTS: Final = {1: _BT709, 4: _FCC, 5: _BT601, 6: _BT601, 7: _SMPTE240, 9: _BT2020}
"""The luma weights of red and blue, for each matrix number of H.273."""
_HD_HEIGHT: Final = 720
_BYTE_BITS: Final = 8


@dataclass(frozen=True, slots=True)
class RgbRule:
    """Whole-number weights: R = luma x (Y - black) + red_cr x (Cr - middle), and so on, over 2^``WEIGHT_BITS``."""

    black: int
    middle: int  # the neutral value of Cb and Cr: 128 with 8 bits
    luma: int
    red_cr: int
    green_cb: int
    green_cr: int
    blue_cb: int


def luma_weights(colour: Colour, height: int) -> tuple[Fraction, Fraction, Fraction]:
    """Return the weights of red, green and blue in luma; if unknown, those of BT.709 (720 lines or more) or BT.601."""
    red, blue = _WEIGHTS.get(colour.matrix) or (_BT709 if height >= _HD_HEIGHT else _BT601)
    return red, 1 - red - blue, blue


def rgb_rule(
    colour: Colour, height: int, *, bits: int = 8, target_bits: int = 8, weight_bits: int = WEIGHT_BITS
) -> RgbRule:
    """Return the rule for the picture's matrix and range, from samples of ``bits`` to R'G'B' of ``target_bits``.

    Weights are multiples of 2^-``weight_bits``.
    """
    red, green, blue = luma_weights(colour, height)
    is_full = colour.range == _FULL
    step, white = 1 << (bits - _BYTE_BITS), Fraction((1 << target_bits) - 1)
    spans = ((1 << bits) - 1,) * 2 if is_full else (219 * step, 224 * step)
    luma, chroma = (white / span for span in spans)
    from_cr, from_cb = 2 * (1 - red) * chroma, 2 * (1 - blue) * chroma

    def whole(weight: Fraction) -> int:
        return round(weight * (1 << weight_bits)) << (WEIGHT_BITS - weight_bits)

    return RgbRule(
        black=0 if is_full else 16 * step,
        middle=128 * step,
        luma=whole(luma),
        red_cr=whole(from_cr),
        green_cb=-whole(from_cb * blue / green),
        green_cr=-whole(from_cr * red / green),
        blue_cb=whole(from_cb),
    )


def rgb_of(rule: RgbRule, planes: NDArray[np.uint8], *, grey: bool = False) -> NDArray[np.uint8]:
    """Return 8-bit planes (3, h, w) of Y'CbCr as samples (h, w, 3) of R'G'B', or (h, w, 1) of grey."""
    y, cb, cr = planes.astype(np.int32)
    light, cb, cr = rule.luma * (y - rule.black) + (1 << WEIGHT_BITS >> 1), cb - rule.middle, cr - rule.middle
    parts = (rule.red_cr * cr, rule.green_cb * cb + rule.green_cr * cr, rule.blue_cb * cb)
    sums = [light] if grey else [light + part for part in parts]
    return np.stack([(each >> WEIGHT_BITS).clip(0, 255) for each in sums], axis=2).astype(np.uint8)
