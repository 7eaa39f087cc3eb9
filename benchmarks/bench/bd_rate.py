"""Bjontegaard's metrics: the difference of two rate-distortion curves as one number.

G. Bjontegaard, "Calculation of average PSNR differences between RD-curves", VCEG-M33 (2001), with the piecewise cubic
interpolation that the standardisation groups have used since (ITU-T HSTP-VID-WPOM, 2020): monotone between monotone
points, so the curve does not oscillate.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["RatePoint", "bd_psnr_db", "bd_rate_percent", "psnr_at_rate_db"]

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RatePoint:
    """One encoding: its rate and its PSNR."""

    rate_bps: float
    psnr_db: float


def bd_rate_percent(reference: Sequence[RatePoint], tested: Sequence[RatePoint]) -> float:
    """Return how much more rate ``tested`` needs for equal PSNR, on average over the common PSNRs; below 0 means less.

    Raises:
        ValueError: fewer than two points, a curve that does not rise, or no common range.
    """
    psnrs = [_columns(points)[::-1] for points in (reference, tested)]
    return float(10.0 ** _mean_difference(*psnrs) - 1.0) * 100.0


def bd_psnr_db(reference: Sequence[RatePoint], tested: Sequence[RatePoint]) -> float:
    """Return how much higher ``tested``'s PSNR is at equal rate, on average over the common (logarithmic) rates.

    Raises:
        ValueError: fewer than two points, a curve that does not rise, or no common range.
    """
    return _mean_difference(_columns(reference), _columns(tested))


def psnr_at_rate_db(points: Sequence[RatePoint], rate_bps: float) -> float | None:
    """Return a curve's PSNR at a rate; None outside the rates that it covers.

    Raises:
        ValueError: fewer than two points, or a curve that does not rise.
    """
    x, y = _columns(points)
    at = float(np.log10(rate_bps))
    if not x[0] <= at <= x[-1]:
        return None
    place = min(int(np.searchsorted(x, at, side="right")), len(x) - 1) - 1
    return float(np.polyval(_pieces(x, y)[place][::-1], at - x[place]))


def _columns(points: Sequence[RatePoint]) -> tuple[_Floats, _Floats]:
    """Return log10 of the rates and the PSNRs, both rising."""
    if len(points) < 2:  # noqa: PLR2004 - a curve has two ends
        message = f"a curve needs at least two points, not {len(points)}"
        raise ValueError(message)
    ordered = sorted(points, key=lambda point: point.rate_bps)
    x = np.log10([point.rate_bps for point in ordered])
    y = np.array([point.psnr_db for point in ordered], dtype=np.float64)
    if not ((np.diff(x) > 0).all() and (np.diff(y) > 0).all()):
        message = f"PSNR must rise with the rate: {ordered}"
        raise ValueError(message)
    return x, y


def _mean_difference(reference: tuple[_Floats, _Floats], tested: tuple[_Floats, _Floats]) -> float:
    """Return the mean of ``tested`` minus ``reference`` over the range that both curves cover."""
    low = max(reference[0][0], tested[0][0])
    high = min(reference[0][-1], tested[0][-1])
    if not low < high:
        message = f"the curves have no common range: {reference[0]} and {tested[0]}"
        raise ValueError(message)
    return (_integral(*tested, low, high) - _integral(*reference, low, high)) / float(high - low)


def _integral(x: _Floats, y: _Floats, low: float, high: float) -> float:
    total = 0.0
    for start, end, piece in zip(x[:-1], x[1:], _pieces(x, y), strict=True):
        a, b = max(low, start) - start, min(high, end) - start
        if a < b:
            powers = np.arange(1, 5)
            total += float(np.sum(piece / powers * (b**powers - a**powers)))
    return total


def _pieces(x: _Floats, y: _Floats) -> list[_Floats]:
    """Return each interval's cubic as coefficients of 1, t, t^2, t^3, where t runs from the interval's start."""
    widths, slopes = np.diff(x), _slopes(x, y)
    rises = np.diff(y) / widths
    quadratic = (3 * rises - 2 * slopes[:-1] - slopes[1:]) / widths
    cubic = (slopes[:-1] + slopes[1:] - 2 * rises) / widths**2
    return [np.array(piece) for piece in zip(y[:-1], slopes[:-1], quadratic, cubic, strict=True)]


def _slopes(x: _Floats, y: _Floats) -> _Floats:
    """Return the slopes at the points that keep the curve monotone (Fritsch and Butland 1984, as in PCHIP)."""
    widths = np.diff(x)
    rises = np.diff(y) / widths
    if len(rises) == 1:
        return np.array([rises[0], rises[0]])
    before, after = widths[:-1], widths[1:]
    w1, w2 = 2 * after + before, after + 2 * before
    # The points rise, so no product of neighbours is negative and none is zero.
    inner = (w1 + w2) / (w1 / rises[:-1] + w2 / rises[1:])
    first = _end_slope(widths[0], widths[1], rises[0], rises[1])
    last = _end_slope(widths[-1], widths[-2], rises[-1], rises[-2])
    return np.concatenate([[first], inner, [last]])


def _end_slope(width: float, next_width: float, rise: float, next_rise: float) -> float:
    """Return a three-point estimate of an end's slope, limited to 0 to 3 times the end interval's slope."""
    estimate = ((2 * width + next_width) * rise - width * next_rise) / (width + next_width)
    return float(np.clip(estimate, 0.0, 3.0 * rise))
