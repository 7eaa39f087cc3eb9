"""Computes the reference for tone mapping by the formula in docs/filters.md, per sample; segments use a table."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...report.report import ToneReport

_Plane: TypeAlias = NDArray[Any]
_Light: TypeAlias = NDArray[np.float32]

_WHITE_CD = 203
_LEVELS = 4096  # how many levels the tables of the curves have
_TO_709 = np.array(
    [[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]], dtype=np.float32
)
LUMA_2020 = np.array([0.2627, 0.6780, 0.0593], dtype=np.float32)  # weights of linear red, green and blue
_LUMA_709 = np.array([0.2126, 0.7152, 0.0722], dtype=np.float32)


def levels_of(bits: int, *, full_range: bool) -> tuple[int, int, int, int]:
    """Return the code of black, the number of codes from black to white, the middle of chroma, and its range."""
    if full_range:
        return 0, (1 << bits) - 1, 128 << bits - 8, (1 << bits) - 1
    return 16 << bits - 8, 219 << bits - 8, 128 << bits - 8, 224 << bits - 8


def _from_pq(code: NDArray[np.float64]) -> NDArray[np.float64]:
    root = code ** (32 / 2523)
    return np.asarray(10_000 * (np.maximum(root - 0.8359375, 0) / (18.8515625 - 18.6875 * root)) ** (16384 / 2610))


def to_pq(light_cd: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the PQ code values, from 0 to 1, for light in cd/m² (SMPTE ST 2084)."""
    root = (light_cd / 10_000) ** (2610 / 16384)
    return np.asarray(((0.8359375 + 18.8515625 * root) / (1 + 18.6875 * root)) ** (2523 / 32))


def _from_hlg(code: NDArray[np.float64]) -> NDArray[np.float64]:
    bright = (np.exp((code - 0.55991073) / 0.17883277) + 0.28466892) / 12
    return np.where(code <= 1 / 2, code**2 / 3, bright)


@dataclass(frozen=True)
class ToneReference:
    """Converts HDR planes to SDR as a report says."""

    tone: ToneReport

    def planes(self, hdr: list[_Plane], bits: int, *, full_range: bool) -> list[_Plane]:
        """Convert Y', Cb and Cr from BT.2020 to BT.709, with chroma for each sample, in the same range."""
        black, steps, middle, chroma_steps = levels_of(bits, full_range=full_range)
        luma = (hdr[0].astype(np.float32) - black) / steps
        blue, red = ((plane.astype(np.float32) - middle) / chroma_steps for plane in hdr[1:])
        coded = np.stack([luma + 1.4746 * red, luma - 0.164553 * blue - 0.571353 * red, luma + 1.8814 * blue])
        sdr = self._mapped(np.clip(coded, 0, 1))
        luma = np.tensordot(_LUMA_709, sdr, 1)
        values = [(luma, steps, black), ((sdr[2] - luma) / 1.8556, chroma_steps, middle)]
        values.append(((sdr[0] - luma) / 1.5748, chroma_steps, middle))
        return [
            np.clip(np.rint(value * scale + zero), 0, (1 << bits) - 1).astype(hdr[0].dtype)
            for value, scale, zero in values
        ]

    def _mapped(self, coded: _Light) -> _Light:
        places = np.rint(coded * (_LEVELS - 1)).astype(np.int32)
        light = self._light[places]
        if self.tone.transfer == "hlg":
            light *= np.tensordot(LUMA_2020, light, 1) ** np.float32(0.2) * 1000
        brightest = light.max(axis=0)
        ends, values = self._curve
        linear = light * (np.interp(brightest, ends, values).astype(np.float32) / np.maximum(brightest, 1e-6))
        return np.asarray(np.clip(np.tensordot(_TO_709, linear, 1), 0, 1) ** np.float32(1 / 2.4))

    @cached_property
    def _light(self) -> _Light:
        codes = np.linspace(0, 1, _LEVELS)
        return (_from_pq(codes) if self.tone.transfer == "pq" else _from_hlg(codes)).astype(np.float32)

    @cached_property
    def _curve(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Light in cd/m², and the tone-mapped light as a fraction of SDR white."""
        peak = float(Fraction(self.tone.peak_cd))
        light = peak * np.linspace(0, 1, _LEVELS) ** 3
        if self.tone.operator == "hable":
            return light, _hable(light / 100) / _hable(np.array(peak / 100))
        codes, top = to_pq(light), float(to_pq(np.array(peak)))
        most = float(to_pq(np.array(float(_WHITE_CD)))) / top
        return light, _from_pq(_spline(codes / top, most) * top) / _WHITE_CD


def _hable(light: NDArray[np.float64]) -> NDArray[np.float64]:
    return (light * (0.15 * light + 0.05) + 0.004) / (light * (0.15 * light + 0.5) + 0.06) - 0.02 / 0.3


def _spline(codes: NDArray[np.float64], most: float) -> NDArray[np.float64]:
    """Map ``codes`` by the curve of BT.2390 (5.4.1): unchanged up to the knee, then a Hermite spline to ``most``."""
    knee = 1.5 * most - 0.5
    if knee >= 1:
        return codes
    t = (codes - knee) / (1 - knee)
    hermite = (1 + 2 * t) * (1 - t) ** 2 * knee + t * (1 - t) ** 2 * (1 - knee) + t**2 * (3 - 2 * t) * most
    return np.where(codes < knee, codes, hermite)
