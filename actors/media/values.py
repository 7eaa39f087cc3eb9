"""Frozen values that describe pictures: size, sampling, colour and HDR. HDR values also convert to FFmpeg's side data.

Colours are code points of ITU-T H.273, as in FFmpeg, HEVC, AV1 and MP4's ``colr``; 2 means "unspecified".
"""

import struct
from dataclasses import dataclass, field
from fractions import Fraction

UNSPECIFIED = 2
BYTE_BITS = 8
# AVMasteringDisplayMetadata: red, green, blue and white as (x, y), minimum and maximum luminance, each a numerator and
# a denominator; then whether the chromaticities and the luminances are set.
_MASTERING = struct.Struct("=22i")
_LIGHT = struct.Struct("=2I")
_LARGEST_TERM = 0x7FFFFFFF

# ST 2086 has chromaticities in units of 1/50000 and luminances in units of 1/10000 cd/m². Matroska stores both as
# single-precision floats, so a value within that precision of a whole number of units becomes that number, for HEVC and
# MP4.
_CHROMATICITY_GRID, _LUMINANCE_GRID = 50_000, 10_000
_SINGLE_PRECISION = Fraction(1, 1 << 23)


@dataclass(frozen=True, slots=True)
class SeiMessage:
    """A picture's SEI or AV1 metadata message: payload type (annex D; AV1's ``metadata_type``) and payload."""

    kind: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Colour:
    """Colour description of a track, by code points of H.273 and FFmpeg's numbers."""

    range: int = 0  # FFmpeg's: 0 unspecified, 1 limited, 2 full
    primaries: int = UNSPECIFIED
    transfer: int = UNSPECIFIED
    matrix: int = UNSPECIFIED
    chroma_location: int = 0  # FFmpeg's number: 0 unspecified, 1 left, 2 centre, 3 top left, ...


@dataclass(frozen=True, slots=True)
class MasteringDisplay:
    """SMPTE ST 2086 mastering display: chromaticities (x, y) as fractions of 1, luminance in cd/m²."""

    red: tuple[Fraction, Fraction]
    green: tuple[Fraction, Fraction]
    blue: tuple[Fraction, Fraction]
    white: tuple[Fraction, Fraction]
    max_luminance: Fraction
    min_luminance: Fraction


@dataclass(frozen=True, slots=True)
class ContentLight:
    """CTA-861.3 content light level: the brightest pixel and the brightest frame average, in cd/m²."""

    max_cll: int
    max_fall: int


@dataclass(frozen=True, slots=True)
class HdrStatic:
    """Static HDR metadata of a track; the mastering display, the content light level or both may be missing."""

    mastering: MasteringDisplay | None = None
    light: ContentLight | None = None


@dataclass(frozen=True, slots=True)
class PictureSize:
    """The visible size of a picture in samples, and the shape of a sample; a value that is not stated is None."""

    width: int
    height: int
    sample_aspect_ratio: Fraction | None = None

    @property
    def display_area(self) -> Fraction:
        """The picture's area, counted in square samples of the picture's sample height."""
        return self.width * self.height * (self.sample_aspect_ratio or Fraction(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedPicture:
    """The properties that a picture's bitstream states, without those that only the container states."""

    width: int
    height: int
    pix_fmt: str
    sample_aspect_ratio: Fraction | None
    """The shape of a sample; None if the bitstream does not state it."""
    colour: Colour
    hdr: HdrStatic
    interlaced: bool
    top_first: bool | None = None
    """For interlaced pictures, whether the upper field is shown first; None if no header states it."""
    frame_rate: Fraction | None = None
    """Pictures a second; None if the bitstream does not state the rate."""


@dataclass(frozen=True, slots=True)
class VideoFormat:
    """The format of a track's pictures. ``frame_rate`` is nominal: for rate control and headers, not for times."""

    width: int
    height: int
    pix_fmt: str
    frame_rate: Fraction
    sample_aspect_ratio: Fraction = Fraction(1)
    colour: Colour = field(default_factory=Colour)
    hdr: HdrStatic = field(default_factory=HdrStatic)
    interlaced: bool = False
    bottom_first: bool = False
    """Whether the first interlaced picture shows its lower field first."""

    def __post_init__(self) -> None:
        if self.width <= 0 or self.height <= 0:
            msg = f"picture size must be positive: {self.width}x{self.height}"
            raise ValueError(msg)
        if self.frame_rate <= 0:
            msg = f"frame rate must be positive: {self.frame_rate}"
            raise ValueError(msg)


def mastering_display_from_bytes(data: bytes) -> MasteringDisplay | None:
    """Read an ``AVMasteringDisplayMetadata``; values that are not set become 0.

    None if all values are 0. ``ValueError`` if ``data`` is too short.
    """
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
    """Write bytes that read back as ``display``.

    Chromaticities and luminances are both marked as set, because mp4's muxer omits the metadata otherwise.
    """
    points = (*display.red, *display.green, *display.blue, *display.white)
    terms: list[int] = []
    for value in (*points, display.min_luminance, display.max_luminance):
        terms += value.limit_denominator(_LARGEST_TERM).as_integer_ratio()
    return _MASTERING.pack(*terms, 1, 1)


def content_light_from_bytes(data: bytes) -> ContentLight | None:
    """Read an ``AVContentLightMetadata``; None if it has no value, ``ValueError`` if it is too short."""
    if len(data) < _LIGHT.size:
        raise ValueError(f"content light metadata of {len(data)} bytes: {_LIGHT.size} expected")
    light = ContentLight(*_LIGHT.unpack_from(data))
    return light if light.max_cll or light.max_fall else None


def content_light_to_bytes(light: ContentLight) -> bytes:
    """Write the ``AVContentLightMetadata`` that reads back as ``light``."""
    return _LIGHT.pack(light.max_cll, light.max_fall)
