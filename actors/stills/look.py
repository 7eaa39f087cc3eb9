"""The look of stills: upright, with square pixels, in RGB, as a file or as samples."""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from ..media.values import Colour

if TYPE_CHECKING:
    from ..segment.steps import Region, Size, Turn
    from ..segment.tone import ToneMap


class StillFormat(Enum):
    """The kinds of picture files; the value is the file's extension."""

    JPG = "jpg"
    PNG = "png"
    WEBP = "webp"


@dataclass(frozen=True, slots=True)
class StillLook:
    """How pictures become stills of ``width`` x ``height``, upright."""

    width: int
    height: int
    turn: "Turn"
    colour: Colour
    """The source's colours, with matrix and range known."""
    format: StillFormat | None
    """The format of the files; None means RGB samples instead of files."""
    quality: int
    """The quality of JPEG and WebP, from 1 to 100."""
    tone: "ToneMap | None" = None
    """Maps HDR to SDR; None for SDR sources."""
    crop: "tuple[Size, Region] | None" = None
    """The size of pictures, and the part of them that the container says to show; None for the whole picture."""
    by_picture: bool = False
    """Whether pictures are converted by their own colours, in a track whose colours change."""
