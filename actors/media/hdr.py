"""HDR values (SMPTE ST 2086, CTA-861.3) between FFmpeg's side data and ours, exactly: both are rationals."""

import struct
from fractions import Fraction

from .values import ContentLight, MasteringDisplay

# AVMasteringDisplayMetadata: red, green, blue and white as (x, y), minimum and maximum luminance, each a numerator and
# a denominator; then whether the chromaticities and the luminances are set.
_MASTERING = struct.Struct("=22i")
_LIGHT = struct.Struct("=2I")
_LARGEST_TERM = 0x7FFFFFFF

# ST 2086 counts chromaticities in 1/50000 and luminances in 1/10000 cd/m². Matroska stores both as single-precision
# floats: a value within their precision of a grid point was that grid point, and is restored for HEVC and MP4.
_CHROMATICITY_GRID, _LUMINANCE_GRID = 50_000, 10_000
_SINGLE_PRECISION = Fraction(1, 1 << 23)


def mastering_display_from_bytes(data: bytes) -> MasteringDisplay | None:
    """Read one; an unset half is zeros (unknown). None if it states nothing, ``ValueError`` if it is too short."""
    if len(data) < _MASTERING.size:
        raise ValueError(f"mastering display metadata of {len(data)} bytes: {_MASTERING.size} expected")
    *terms, has_primaries, has_luminance = _MASTERING.unpack_from(data)
    pairs = list(zip(terms[::2], terms[1::2], strict=True))
    values = [_ratio(*pair, _CHROMATICITY_GRID, is_set=has_primaries) for pair in pairs[:8]]
    values += [_ratio(*pair, _LUMINANCE_GRID, is_set=has_luminance) for pair in pairs[8:]]
    if not any(values):
        return None
    red, green, blue, white = zip(values[:8:2], values[1:8:2], strict=True)
    return MasteringDisplay(red, green, blue, white, max_luminance=values[9], min_luminance=values[8])


def _ratio(numerator: int, denominator: int, grid: int, *, is_set: int) -> Fraction:
    if not denominator or not is_set:
        return Fraction(0)
    value = Fraction(numerator, denominator)
    nearest = Fraction(round(value * grid), grid)
    return nearest if abs(value - nearest) <= value * _SINGLE_PRECISION else value


def mastering_display_to_bytes(display: MasteringDisplay) -> bytes:
    """Write what reads back as ``display``. Both halves count as set: mp4's muxer leaves out half a display."""
    points = (*display.red, *display.green, *display.blue, *display.white)
    terms: list[int] = []
    for value in (*points, display.min_luminance, display.max_luminance):
        terms += value.limit_denominator(_LARGEST_TERM).as_integer_ratio()
    return _MASTERING.pack(*terms, 1, 1)


def content_light_from_bytes(data: bytes) -> ContentLight | None:
    """Read an ``AVContentLightMetadata``; None where it states nothing, ``ValueError`` where it is too short."""
    if len(data) < _LIGHT.size:
        raise ValueError(f"content light metadata of {len(data)} bytes: {_LIGHT.size} expected")
    light = ContentLight(*_LIGHT.unpack_from(data))
    return light if light.max_cll or light.max_fall else None


def content_light_to_bytes(light: ContentLight) -> bytes:
    """Write the ``AVContentLightMetadata`` that reads back as ``light``."""
    return _LIGHT.pack(light.max_cll, light.max_fall)
