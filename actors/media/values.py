"""What a picture is: size, sampling, colour and HDR, as frozen values.

Colours are code points of ITU-T H.273, as in FFmpeg, HEVC, AV1 and MP4's ``colr``; 2 means "unspecified".
"""

from dataclasses import dataclass, field
from fractions import Fraction

UNSPECIFIED = 2
BYTE_BITS = 8


@dataclass(frozen=True, slots=True)
class SeiMessage:
    """A message beside a picture: its payload type (H.264 and H.265, annex D; AV1's ``metadata_type``) and payload."""

    kind: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Colour:
    """Colour description of a track, by code points of H.273 and FFmpeg's numbers."""

    range: int = 0  # FFmpeg's: 0 unspecified, 1 limited, 2 full
    primaries: int = UNSPECIFIED
    transfer: int = UNSPECIFIED
    matrix: int = UNSPECIFIED
    chroma_location: int = 0  # FFmpeg's: 0 unspecified, 1 left, 2 centre, 3 top left, ...


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
    """CTA-861.3 content light level, both in cd/m²."""

    max_cll: int
    max_fall: int


@dataclass(frozen=True, slots=True)
class HdrStatic:
    """Static HDR metadata of a track; either half may be missing."""

    mastering: MasteringDisplay | None = None
    light: ContentLight | None = None


@dataclass(frozen=True, slots=True)
class PictureSize:
    """The visible size of a picture in samples, and the shape of a sample; None where nothing states it."""

    width: int
    height: int
    sample_aspect_ratio: Fraction | None = None

    @property
    def display_area(self) -> Fraction:
        """The area that the picture covers, in square samples as high as its own."""
        return self.width * self.height * (self.sample_aspect_ratio or Fraction(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedPicture:
    """What a picture states of itself in its bitstream; what only the container states is missing."""

    width: int
    height: int
    pix_fmt: str
    sample_aspect_ratio: Fraction | None
    """None where it is not stated."""
    colour: Colour
    hdr: HdrStatic
    interlaced: bool
    top_first: bool | None = None
    """Of interlaced pictures, whether the upper field is shown first; None where no header is read for it."""
    frame_rate: Fraction | None = None
    """None where it is not stated."""


@dataclass(frozen=True, slots=True)
class VideoFormat:
    """The format of a track's pictures. ``frame_rate`` is nominal: for rate control and headers, never timestamps."""

    width: int
    height: int
    pix_fmt: str
    frame_rate: Fraction
    sample_aspect_ratio: Fraction = Fraction(1)
    colour: Colour = field(default_factory=Colour)
    hdr: HdrStatic = field(default_factory=HdrStatic)
    interlaced: bool = False
    bottom_first: bool = False
    """Whether the first interlaced picture states that its lower field is shown first."""

    def __post_init__(self) -> None:
        if self.width <= 0 or self.height <= 0:
            msg = f"picture size must be positive: {self.width}x{self.height}"
            raise ValueError(msg)
        if self.frame_rate <= 0:
            msg = f"frame rate must be positive: {self.frame_rate}"
            raise ValueError(msg)
