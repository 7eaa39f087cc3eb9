"""From Y'CbCr to 8-bit R'G'B' of full range, in whole numbers: the same bits on every processor and every GPU.

Source: ITU-T H.273, 8.3 (MatrixCoefficients, VideoFullRangeFlag).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..media.values import Colour

WEIGHT_BITS: Final = 16
"""A weight is below 2.2 and a sample below 256, so that sums fit 32 bits with a sign."""
_FULL: Final = 2
"""FFmpeg's number of full range."""
_BT709, _BT601, _BT2020 = (
    (Fraction(red, 10_000), Fraction(blue, 10_000)) for red, blue in ((2126, 722), (2990, 1140), (2627, 593))
)
_WEIGHTS: Final = {1: _BT709, 5: _BT601, 6: _BT601, 9: _BT2020}
"""The luma weights of red and blue, by H.273's matrix coefficients."""
_HD_HEIGHT: Final = 720


@dataclass(frozen=True, slots=True)
class RgbRule:
    """Whole-number weights: R = luma x (Y - black) + red_cr x (Cr - 128), and so on, over 2^``WEIGHT_BITS``."""

    black: int
    luma: int
    red_cr: int
    green_cb: int
    green_cr: int
    blue_cb: int


def rgb_rule(colour: Colour, height: int) -> RgbRule:
    """Return the rule of the picture's matrix and range; without known weights BT.709 from 720 lines, or BT.601."""
    red, blue = _WEIGHTS.get(colour.matrix) or (_BT709 if height >= _HD_HEIGHT else _BT601)
    green = 1 - red - blue
    is_full = colour.range == _FULL
    luma, chroma = (Fraction(255, 255), Fraction(255, 255)) if is_full else (Fraction(255, 219), Fraction(255, 224))
    from_cr, from_cb = 2 * (1 - red) * chroma, 2 * (1 - blue) * chroma

    def whole(weight: Fraction) -> int:
        return round(weight * (1 << WEIGHT_BITS))

    return RgbRule(
        black=0 if is_full else 16,
        luma=whole(luma),
        red_cr=whole(from_cr),
        green_cb=-whole(from_cb * blue / green),
        green_cr=-whole(from_cr * red / green),
        blue_cb=whole(from_cb),
    )


def rgb_of(rule: RgbRule, planes: NDArray[np.uint8], *, grey: bool = False) -> NDArray[np.uint8]:
    """Return 8-bit planes (3, h, w) of Y'CbCr as samples (h, w, 3) of R'G'B', or (h, w, 1) of grey."""
    y, cb, cr = planes.astype(np.int32)
    light, cb, cr = rule.luma * (y - rule.black) + (1 << WEIGHT_BITS >> 1), cb - 128, cr - 128
    parts = (rule.red_cr * cr, rule.green_cb * cb + rule.green_cr * cr, rule.blue_cb * cb)
    sums = [light] if grey else [light + part for part in parts]
    return np.stack([(each >> WEIGHT_BITS).clip(0, 255) for each in sums], axis=2).astype(np.uint8)
