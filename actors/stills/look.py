"""What a still looks like: upright, with square pixels, in RGB, as a file of some kind."""

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Self

from ..media.values import Colour

if TYPE_CHECKING:
    from ..segment.steps import Region, Size
    from ..segment.tone import ToneMap


class StillFormat(Enum):
    """The kinds of picture files; the value is the file's extension."""

    JPG = "jpg"
    PNG = "png"
    WEBP = "webp"


@dataclass(frozen=True, slots=True)
class Turn:
    """How a stored picture is turned for display: rows and columns are exchanged first, then each may be reversed."""

    swaps_axes: bool = False
    reverses_across: bool = False
    reverses_down: bool = False

    @classmethod
    def of(cls, matrix: tuple[int, ...] | None) -> Self:
        """Return the nearest quarter turn to a display matrix (ISO/IEC 14496-12), mirrored if the matrix mirrors.

        A stored point (x, y) is shown at (a x + c y, b x + d y), y downwards.
        """
        if matrix is None:
            return cls()
        a, b, _, c, d, *_ = matrix
        if abs(b) + abs(c) > abs(a) + abs(d):
            return cls(swaps_axes=True, reverses_across=c < 0, reverses_down=b < 0)
        return cls(reverses_across=a < 0, reverses_down=d < 0)

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Return the size after the turn of a picture of this size, or before it: a turn back is of the same kind."""
        return (height, width) if self.swaps_axes else (width, height)


def shown_size(width: int, height: int, sample_aspect_ratio: Fraction, turn: Turn) -> tuple[int, int]:
    """Return the size in square pixels at which a player shows a stored picture: no side shrinks."""
    if sample_aspect_ratio > 1:
        width = round(width * sample_aspect_ratio)
    else:
        height = round(height / sample_aspect_ratio)
    return turn.size(max(1, width), max(1, height))


@dataclass(frozen=True, slots=True)
class StillLook:
    """How pictures become stills of ``width`` x ``height``, upright."""

    width: int
    height: int
    turn: Turn
    colour: Colour
    """The source's colours, with matrix and range known."""
    format: StillFormat | None
    """None gives RGB samples rather than files."""
    quality: int
    """1 to 100, for JPEG and WebP."""
    tone: "ToneMap | None" = None
    """Maps HDR to SDR; None if there is nothing to map."""
    crop: "tuple[Size, Region] | None" = None
    """The size of pictures, and the part that the source's container says to show; None for all."""
    by_picture: bool = False
    """Whether each picture's own colours count, in a track whose colours change."""
