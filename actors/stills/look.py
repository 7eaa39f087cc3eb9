"""The look of stills: upright, with square pixels, in RGB, as a file or as samples."""

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING

from ..media.values import Colour
from ..segment.steps import UPRIGHT, Size, Turn, turned_size

if TYPE_CHECKING:
    from ..segment.steps import Region
    from ..segment.tone import ToneMap


class StillFormat(Enum):
    """The kinds of picture files; the value is the file's extension."""

    JPG = "jpg"
    PNG = "png"
    WEBP = "webp"


def nearest_turn(matrix: tuple[int, ...] | None) -> Turn:
    """Return the quarter turn nearest to a display matrix (ISO/IEC 14496-12), mirrored if the matrix mirrors."""
    if matrix is None:
        return UPRIGHT
    a, b, _, c, d, *_ = matrix
    if abs(b) + abs(c) > abs(a) + abs(d):
        return 0, -1 if b < 0 else 1, -1 if c < 0 else 1, 0
    return -1 if a < 0 else 1, 0, 0, -1 if d < 0 else 1


def shown_size(width: int, height: int, sample_aspect_ratio: Fraction, turn: Turn) -> Size:
    """Return the size in square pixels at which a player shows a stored picture; neither side becomes shorter."""
    if sample_aspect_ratio > 1:
        width = round(width * sample_aspect_ratio)
    else:
        height = round(height / sample_aspect_ratio)
    return turned_size((max(1, width), max(1, height)), turn)


@dataclass(frozen=True, slots=True)
class StillLook:
    """How pictures become stills of ``width`` x ``height``, upright."""

    width: int
    height: int
    turn: Turn
    colour: Colour
    """The source's colours, with matrix and range known."""
    format: StillFormat | None
    """The format of the files; None for RGB samples instead."""
    quality: int
    """The quality of JPEG and WebP, from 1 to 100."""
    tone: "ToneMap | None" = None
    """Maps HDR to SDR; None for SDR sources."""
    crop: "tuple[Size, Region] | None" = None
    """The size of pictures, and the part of them that the container says to show; None for the whole picture."""
    by_picture: bool = False
    """Whether pictures are converted by their own colours, in a track whose colours change."""
