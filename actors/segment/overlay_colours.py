"""Converts an overlay's colours to the film's (docs/filters.md), only with + - * /, so that every processor agrees."""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..encode.pix_fmt import is_rgb
from ..media.values import Colour, VideoFormat
from .tone import HLG_PEAK_CD, LUMA_2020, WHITE_CD, Values, hlg_code, power, pq_code

Levels: TypeAlias = NDArray[np.int64]

FULL_RANGE: Final = 2
_BYTE, _WORD = 255, 65535
_HD_LINES: Final = 720
"""YUV without a stated matrix counts as BT.709 from this height on."""
_BT709, _SMPTE170M, _BT2020, _PQ, _HLG = 1, 6, 9, 16, 18
_LUMA: Final = {_BT709: (2126, 7152, 722), 5: (2990, 5870, 1140), _SMPTE170M: (2990, 5870, 1140)} | {
    _BT2020: (2627, 6780, 593)
}
"""The weights of red, green and blue in luma, in 1/10000, by H.273's matrix numbers."""
_UNSTATED: Final = frozenset({0, 2})
_TO_2020: Final = ((0.6274, 0.3293, 0.0433), (0.0691, 0.9195, 0.0114), (0.0164, 0.0880, 0.8956))
"""Linear BT.709 to linear BT.2020 (BT.2087, annex 2)."""
_SDR_GAMMA: Final = 2.4


def takes_overlay(output: VideoFormat) -> bool:
    """Return whether an overlay can be laid on pictures of that format: YUV with a known matrix, or grey."""
    return not is_rgb(output.pix_fmt) and (_matrix(output.colour, output.height) in _LUMA)


def _matrix(colour: Colour, height: int) -> int:
    if colour.matrix not in _UNSTATED:
        return colour.matrix
    if colour.transfer in (_PQ, _HLG) or colour.primaries == _BT2020:
        return _BT2020
    return _BT709 if height >= _HD_LINES else _SMPTE170M


def coded(rgb: NDArray[np.uint8], output: VideoFormat, bits: int) -> tuple[Levels, Levels, Levels]:
    """Return Y', Cb and Cr of sRGB's R'G'B' (rows, columns, 3), with ``bits`` bits in the film's range."""
    colour = output.colour
    if colour.transfer in (_PQ, _HLG):
        flat, places = np.unique(rgb.reshape(-1, 3), axis=0, return_inverse=True)
        levels = _in_hdr(flat, colour.transfer)[places.reshape(rgb.shape[:2])]
        top = _WORD
    else:
        levels, top = rgb.astype(np.int64), _BYTE
    red, green, blue = levels[..., 0], levels[..., 1], levels[..., 2]
    of_red, of_green, of_blue = _LUMA[_matrix(colour, output.height)]
    luma = of_red * red + of_green * green + of_blue * blue
    whole = of_red + of_green + of_blue
    full = colour.range == FULL_RANGE
    steps, chroma_steps, black = (
        ((1 << bits) - 1,) * 2 + (0,) if full else (219 << bits - 8, 224 << bits - 8, 16 << bits - 8)
    )
    most, middle = (1 << bits) - 1, 128 << bits - 8
    return (
        _scaled(luma, steps, whole * top, black, most),
        _scaled(whole * blue - luma, chroma_steps, 2 * (whole - of_blue) * top, middle, most),
        _scaled(whole * red - luma, chroma_steps, 2 * (whole - of_red) * top, middle, most),
    )


def _scaled(value: Levels, steps: int, unit: int, zero: int, most: int) -> Levels:
    return np.clip(zero + (2 * steps * value + unit) // (2 * unit), 0, most)


def _in_hdr(rgb: NDArray[np.uint8], transfer: int) -> Levels:
    """Return HDR's R'G'B' in 16 bits for SDR's, whose white becomes HDR's reference white."""
    linear = power(np.arange(_BYTE + 1) / _BYTE, _SDR_GAMMA)[rgb] * WHITE_CD
    light = [row[0] * linear[:, 0] + row[1] * linear[:, 1] + row[2] * linear[:, 2] for row in _TO_2020]
    codes = [pq_code(each) for each in light] if transfer == _PQ else _hlg_codes(light)
    return np.floor(np.stack(codes, axis=1) * _WORD + 1 / 2).astype(np.int64)


def _hlg_codes(light_cd: list[Values]) -> list[Values]:
    """Return the codes for which HLG's reference display shows this light: BT.2100's inverse OOTF, then its OETF."""
    shown = [each / HLG_PEAK_CD for each in light_cd]
    luma = LUMA_2020[0] * shown[0] + LUMA_2020[1] * shown[1] + LUMA_2020[2] * shown[2]
    # The inverse of HLG's system gamma, 1.2.
    gain = 1 / np.maximum(power(luma, 1 / 6), 1e-6)
    return [hlg_code(each * gain) for each in shown]
