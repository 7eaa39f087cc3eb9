"""HDR values between FFmpeg's side data and ours, exactly.

FFmpeg keeps the mastering display (SMPTE ST 2086) and the content light level (CTA-861.3) as plain C structures, the
same in streams, packets and frames; their numbers are rationals, so nothing is rounded on the way.
"""

import struct
from fractions import Fraction

from .values import ContentLight, MasteringDisplay

__all__ = [
    "content_light_from_bytes",
    "content_light_to_bytes",
    "mastering_display_from_bytes",
    "mastering_display_to_bytes",
]

# AVMasteringDisplayMetadata: red, green, blue and white as (x, y), minimum and maximum luminance, each a numerator and
# a denominator; then whether the chromaticities and the luminances are set.
_MASTERING = struct.Struct("=22i")
_LIGHT = struct.Struct("=2I")
_LARGEST_TERM = 0x7FFFFFFF

# ST 2086 counts chromaticities in 1/50000 and luminances in 1/10000 cd/m². Matroska stores both as single-precision
# floats: a value that near to a grid point was the grid point, and has to be again in an HEVC or MP4 output.
_CHROMATICITY_GRID, _LUMINANCE_GRID = 50_000, 10_000
_SINGLE_PRECISION = Fraction(1, 1 << 23)
_FIRST_LUMINANCE = 16


def mastering_display_from_bytes(data: bytes) -> MasteringDisplay | None:
    """Read an ``AVMasteringDisplayMetadata``; None where it states nothing.

    A half that is not set reads as zeros, which is how ST 2086 values say "unknown".

    Raises:
        ValueError: ``data`` is too short to be one.
    """
    if len(data) < _MASTERING.size:
        message = f"mastering display metadata of {len(data)} bytes: {_MASTERING.size} expected"
        raise ValueError(message)
    terms = _MASTERING.unpack_from(data)
    has_primaries, has_luminance = terms[20], terms[21]
    values = [
        _ratio(terms[at], terms[at + 1], _CHROMATICITY_GRID if at < _FIRST_LUMINANCE else _LUMINANCE_GRID)
        for at in range(0, 20, 2)
    ]
    if not has_primaries:
        values[:8] = [Fraction(0)] * 8
    if not has_luminance:
        values[8:] = [Fraction(0)] * 2
    if not any(values):
        return None
    red, green, blue, white = ((values[at], values[at + 1]) for at in (0, 2, 4, 6))
    return MasteringDisplay(
        red=red, green=green, blue=blue, white=white, min_luminance=values[8], max_luminance=values[9]
    )


def _ratio(numerator: int, denominator: int, grid: int) -> Fraction:
    if not denominator:
        return Fraction(0)
    value = Fraction(numerator, denominator)
    nearest = Fraction(round(value * grid), grid)
    return nearest if abs(value - nearest) <= value * _SINGLE_PRECISION else value


def mastering_display_to_bytes(display: MasteringDisplay) -> bytes:
    """Write the ``AVMasteringDisplayMetadata`` that reads back as ``display``.

    Both halves count as set, an unknown one as zeros: mp4's muxer leaves out a display of which one half is not set.
    """
    chromaticities = [*display.red, *display.green, *display.blue, *display.white]
    luminances = [display.min_luminance, display.max_luminance]
    terms: list[int] = []
    for value in chromaticities + luminances:
        fitting = value.limit_denominator(_LARGEST_TERM)
        terms += (fitting.numerator, fitting.denominator)
    return _MASTERING.pack(*terms, 1, 1)


def content_light_from_bytes(data: bytes) -> ContentLight | None:
    """Read an ``AVContentLightMetadata``; None where it states nothing.

    Raises:
        ValueError: ``data`` is too short to be one.
    """
    if len(data) < _LIGHT.size:
        message = f"content light metadata of {len(data)} bytes: {_LIGHT.size} expected"
        raise ValueError(message)
    light = ContentLight(*_LIGHT.unpack_from(data))
    return light if light.max_cll or light.max_fall else None


def content_light_to_bytes(light: ContentLight) -> bytes:
    """Write the ``AVContentLightMetadata`` that reads back as ``light``."""
    return _LIGHT.pack(light.max_cll, light.max_fall)
