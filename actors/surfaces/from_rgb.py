"""Converts RGB to 4:2:0 in limited range, in whole numbers, as FFmpeg does.

The bytes equal those of a bicubic, bit-exact ``frame.reformat``.

Sources: libswscale's input.c (``rgb24ToY``, ``rgb24ToUV_half``), yuv2rgb.c (``fill_rgb2yuv_table``), utils.c
(``initFilter``), output.c (``yuv2planeX_8``).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_ONE: Final = 1 << 16
_SHIFT: Final = 15
_ROW_ONE: Final = 1 << 12
ROW_TAPS: Final = 8
LEAST_HEIGHT: Final = 16
"""The smallest height with ``ROW_TAPS`` taps; smaller heights have other taps."""
_BT601: Final = 6
_COEFFICIENTS: Final = {
    1: (117489, 138438, 13975, 34925),
    6: (104597, 132201, 25675, 53279),
    9: (110013, 140363, 12277, 42626),
}
"""For each matrix, the factors Cr to red, Cb to blue, Cb to green, Cr to green (``ff_yuv2rgb_coeffs``)."""
_OF_601: Final = ((299, 587, 114), (-169, -331, 500), (500, -419, -81))
"""The weights of BT.601 in thousandths, from which FFmpeg rounds this matrix (but no other)."""
_LUMA_SPAN, _CHROMA_SPAN, _SPAN = 219, 224, 255
_CUBIC: Final = 3 * (1 << 24) // 5
"""The coefficient -a of the cubic, 0.6, as a 24-bit fraction."""
_UNIT_BITS: Final = 30


@dataclass(frozen=True, slots=True)
class RgbWeights:
    """The weights of (red, green, blue) in Y, Cb and Cr, in 15 bits."""

    luma: tuple[int, int, int]
    blue: tuple[int, int, int]
    red: tuple[int, int, int]


@lru_cache(maxsize=4)
def rgb_weights(matrix: int) -> RgbWeights:
    """Return the weights of matrix 1, 6 or 9; ``KeyError`` for any other matrix."""
    vr, ub, ug, vg = _COEFFICIENTS[matrix]
    if matrix == _BT601:
        spans = (_LUMA_SPAN, _CHROMA_SPAN, _CHROMA_SPAN)
        rows = (tuple(_decimal(part, span) for part in row) for row, span in zip(_OF_601, spans, strict=True))
        return RgbWeights(*rows)  # type: ignore[arg-type]
    w, v = _rounded(-ug * _ONE * _ONE, ub), _rounded(-vg * _ONE * _ONE, vr)
    z = _ONE * _ONE - w - v
    luma, blue, red = (_rounded(each * z, _ONE) for each in (_ONE * _SPAN // _LUMA_SPAN, ub, vr))
    one = _ONE * _ONE
    return RgbWeights(
        luma=(-_weight(v, luma), _weight(one, luma), -_weight(w, luma)),
        blue=(_weight(v, blue), -_weight(one, blue), _weight(z + w, blue)),
        red=(_weight(v + z, red), -_weight(one, red), _weight(w, red)),
    )


def _weight(part: int, whole: int) -> int:
    return _rounded((1 << _SHIFT) * part, whole)


def _decimal(thousandths: int, span: int) -> int:
    """Return a fraction of a span; the magnitude is rounded like ``(int)(x + 0.5)`` in C."""
    found = (abs(thousandths) * span * (1 << _SHIFT) * 2 // (1000 * _SPAN) + 1) // 2
    return found if thousandths > 0 else -found


def _rounded(number: int, by: int) -> int:
    """Divide as FFmpeg's ``ROUNDED_DIV`` does: halves away from zero, for positive and negative divisors."""
    raised = abs(number) + (abs(by) >> 1)
    found = raised // abs(by)
    return found if (number >= 0) == (by > 0) else -found


@dataclass(frozen=True, slots=True)
class ChromaRows:
    """For each row of chroma, the first of eight source rows, and the weights of these rows in 12 bits."""

    firsts: tuple[int, ...]
    weights: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=8)
def chroma_rows(height: int) -> ChromaRows:
    """Return how chroma rows are made from twice as many rows; ``height`` must be even, at least ``LEAST_HEIGHT``."""
    shape = [_cubic(distance) for distance in (7, 5, 3, 1, 1, 3, 5, 7)]
    firsts, weights = [], []
    for row in range(height // 2):
        first = 2 * row - 3
        begin = min(max(first, 0), height - ROW_TAPS)
        folded = [0] * ROW_TAPS
        for place, weight in enumerate(shape):
            folded[min(max(first + place, 0), height - 1) - begin] += weight
        firsts.append(begin)
        weights.append(_normalized(folded))
    return ChromaRows(tuple(firsts), tuple(weights))


def _cubic(quarters: int) -> int:
    """Return the cubic's value at a distance given in quarters of a target row, with 53 bits as in swscale."""
    distance = quarters << _UNIT_BITS - 2
    squared = distance * distance >> _UNIT_BITS
    cubed = squared * distance >> _UNIT_BITS
    one, unit = 1 << 24, 1 << _UNIT_BITS
    if distance < unit:
        found = (12 * one - 6 * _CUBIC) * cubed + (-18 * one + 6 * _CUBIC) * squared + 6 * one * unit
    else:
        found = -6 * _CUBIC * cubed + 30 * _CUBIC * squared - 48 * _CUBIC * distance + 24 * _CUBIC * unit
    return found // 2 if found >= 0 else -(-found // 2)


def _normalized(weights: list[int]) -> tuple[int, ...]:
    """Scale weights to 12 bits; each rounding error is carried to the next weight."""
    scale = (sum(weights) + _ROW_ONE // 2) // _ROW_ONE
    error, found = 0, []
    for weight in weights:
        value = weight + error
        whole = _rounded(value, scale)
        found.append(whole)
        error = value - whole * scale
    return tuple(found)
