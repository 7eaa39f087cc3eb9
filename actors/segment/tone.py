"""Maps HDR to SDR by a formula (docs/filters.md), computed once as a table of colours for FFmpeg's ``lut3d``.

The table is computed only with + - * /, because processors round powers differently.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

NODES: Final = 65
"""Points of the table along each axis of R'G'B'."""
TABLE_FORMAT: Final = "gbrp12le"
"""The format of ``lut3d``'s input: with 16 bits or floats the filter's results differ with AVX2."""
WHITE_CD: Final = 203
"""HDR's reference white in cd/m² (BT.2408, 2.1), which becomes SDR's white."""
HLG_PEAK_CD: Final = 1000
"""The brightness of the display for which HLG's gamma is 1.2 (BT.2100, table 5)."""
_PQ_PEAK_CD: Final = 10_000

Values: TypeAlias = NDArray[np.float64]

# SMPTE ST 2084.
_M1, _M2 = 2610 / 16384, 2523 / 4096 * 128
_C1, _C2, _C3 = 3424 / 4096, 2413 / 4096 * 32, 2392 / 4096 * 32
# BT.2100, table 5.
_HLG_A, _HLG_B, _HLG_C = 0.17883277, 0.28466892, 0.55991073
LUMA_2020: Final = (0.2627, 0.6780, 0.0593)
"""The luma weights of linear red, green and blue."""
_TO_709: Final = ((1.6605, -0.5876, -0.0728), (-0.1246, 1.1329, -0.0083), (-0.0182, -0.1006, 1.1187))
"""Converts linear BT.2020 to linear BT.709 (BT.2087, annex 1)."""
_SDR_GAMMA: Final = 2.4
"""The exponent of the SDR display's transfer function (BT.1886)."""
_LN2: Final = 0.6931471805599453
_LOG_TERMS, _EXP_TERMS = 18, 16


class Transfer(StrEnum):
    """HDR's transfer function (BT.2100)."""

    PQ = "pq"
    HLG = "hlg"


TRANSFERS: Final = {16: Transfer.PQ, 18: Transfer.HLG}
"""HDR's transfer functions, keyed by their numbers in H.273."""


class Operator(StrEnum):
    """The function that compresses the highlights."""

    BT2390 = "bt2390"
    HABLE = "hable"


@dataclass(frozen=True, slots=True)
class ToneMap:
    """A mapping of BT.2020 HDR to BT.709 SDR; ``peak_cd`` is the source's brightest light in cd/m²."""

    operator: Operator
    transfer: Transfer
    peak_cd: Fraction

    @property
    def name(self) -> str:
        """The mapping's name in the encoder kind."""
        return f"tonemap={self.operator}:{self.transfer}:{self.peak_cd}"

    @property
    def words(self) -> str:
        """The mapping's description for the user."""
        peak = f"{float(self.peak_cd):g} cd/m²"
        return f"tone mapped from {self.transfer.upper()} of up to {peak} to SDR by {self.operator}"


def _logarithm(base: Values) -> Values:
    """Return the natural logarithm of a positive number, the same on every processor."""
    mantissa, doublings = np.frexp(base)
    slant = (mantissa - 1) / (mantissa + 1)
    square, log = slant * slant, np.zeros_like(base)
    for term in range(2 * _LOG_TERMS + 1, 0, -2):
        log = log * square + 1 / term
    return np.asarray(2 * slant * log + doublings * _LN2)


def power(base: Values, exponent: Values | float) -> Values:
    """Return ``base`` (0 or more) to the power of ``exponent``, the same on every processor."""
    total = _logarithm(base) * exponent
    whole = np.rint(total / _LN2)
    rest, found = total - whole * _LN2, np.ones_like(base)
    for term in range(_EXP_TERMS, 0, -1):
        found = found * rest / term + 1
    return np.where(base > 0, np.ldexp(found, whole.astype(np.int64)), 0.0)


def pq_light(code: Values) -> Values:
    """Return the light of PQ's code values from 0 to 1, in cd/m²."""
    root = power(code, 1 / _M2)
    return _PQ_PEAK_CD * power(np.maximum(root - _C1, 0) / (_C2 - _C3 * root), 1 / _M1)


def pq_code(light_cd: Values) -> Values:
    """Return PQ's code values, from 0 to 1, of light in cd/m²."""
    root = power(light_cd / _PQ_PEAK_CD, _M1)
    return power((_C1 + _C2 * root) / (1 + _C3 * root), _M2)


def hlg_code(scene: Values) -> Values:
    """Return HLG's code values of a scene's light, both from 0 to 1: BT.2100's OETF."""
    bright = _HLG_A * _logarithm(np.maximum(12 * scene - _HLG_B, 1e-6)) + _HLG_C
    return np.where(scene <= 1 / 12, np.sqrt(3 * scene), bright)


def _hlg_light(red: Values, green: Values, blue: Values) -> tuple[Values, ...]:
    """Return the light in cd/m² that HLG's reference display shows for code values."""
    scene = [
        np.where(
            code <= 1 / 2,
            code * code / 3,
            (power(np.full_like(code, np.e), (code - _HLG_C) / _HLG_A) + _HLG_B) / 12,
        )
        for code in (red, green, blue)
    ]
    luma = sum((weight * each for weight, each in zip(LUMA_2020, scene, strict=True)), np.zeros_like(red))
    gain = HLG_PEAK_CD * power(luma, 0.2)
    return tuple(gain * each for each in scene)


def compressed(light_cd: Values, tone: ToneMap) -> Values:
    """Return the compressed brightness of light in cd/m², as a fraction of SDR's white."""
    peak = np.array([float(tone.peak_cd)])
    light_cd = np.minimum(light_cd, peak)
    if tone.operator is Operator.HABLE:
        return _filmic(light_cd / 100) / _filmic(peak / 100)
    # BT.2390, 5.4.1, for black at 0.
    whole = pq_code(peak)
    most = pq_code(np.array([float(WHITE_CD)])) / whole
    knee = 1.5 * most - 0.5
    code = pq_code(light_cd) / whole
    t = (code - knee) / np.where(knee < 1, 1 - knee, 1)
    bent = (2 * t * t * t - 3 * t * t + 1) * knee + (t * t * t - 2 * t * t + t) * (1 - knee)
    bent += (3 * t * t - 2 * t * t * t) * most
    return pq_light(np.where(code < knee, code, bent) * whole) / WHITE_CD


def _filmic(light: Values) -> Values:
    a, b, c, d, e, f = 0.15, 0.50, 0.10, 0.20, 0.02, 0.30
    return (light * (light * a + c * b) + d * e) / (light * (light * a + b) + d * f) - e / f


def mapped(red: Values, green: Values, blue: Values, tone: ToneMap) -> tuple[Values, ...]:
    """Return R'G'B' of SDR for R'G'B' of HDR, all from 0 to 1."""
    if tone.transfer is Transfer.PQ:
        light: tuple[Values, ...] = (pq_light(red), pq_light(green), pq_light(blue))
    else:
        light = _hlg_light(red, green, blue)
    brightest = np.maximum(np.maximum(light[0], light[1]), light[2])
    # One factor for red, green and blue keeps the hue.
    factor = compressed(brightest, tone) / np.maximum(brightest, 1e-6)
    linear = [each * factor for each in light]
    return tuple(
        power(np.clip(row[0] * linear[0] + row[1] * linear[1] + row[2] * linear[2], 0, 1), 1 / _SDR_GAMMA)
        for row in _TO_709
    )


@lru_cache(maxsize=4)
def cube(tone: ToneMap) -> str:
    """Return the table as a .cube file: one line per node, red changing fastest."""
    axis = np.arange(NODES) / (NODES - 1)
    blue, green, red = np.meshgrid(axis, axis, axis, indexing="ij")
    columns = mapped(red.ravel(), green.ravel(), blue.ravel(), tone)
    lines = map("{:.6f} {:.6f} {:.6f}".format, *(column.tolist() for column in columns))
    return "\n".join([f"LUT_3D_SIZE {NODES}", *lines, ""])
