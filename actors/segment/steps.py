"""The steps that change a picture's geometry (crop, turn, scale, pad): plain values, and FFmpeg's filters.

Each step sees one picture at a time, so a segment's pictures equal those of an unsegmented run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from av.video.format import VideoFormat as PixelFormat
from av.video.frame import VideoFrame

from ..media.values import BYTE_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

Turn: TypeAlias = tuple[int, int, int, int]
"""a, b, c, d of a display matrix (ISO/IEC 14496-12): the sample at (x, y) goes to (a x + c y, b x + d y), y downwards.

Each is -1, 0 or 1: quarter turns and mirrors."""
Size: TypeAlias = tuple[int, int]
"""(width, height) in samples."""

UPRIGHT: Final[Turn] = (1, 0, 0, 1)
MIRRORED: Final[Turn] = (-1, 0, 0, 1)
UPSIDE_DOWN: Final[Turn] = (1, 0, 0, -1)
CLOCKWISE: Final[Turn] = (0, 1, -1, 0)
_FILTERS: Final[dict[Turn, tuple[str, ...]]] = {
    UPRIGHT: (),
    MIRRORED: ("hflip",),
    UPSIDE_DOWN: ("vflip", "copy"),
    (-1, 0, 0, -1): ("hflip", "vflip", "copy"),
    CLOCKWISE: ("transpose=clock",),
    (0, -1, 1, 0): ("transpose=cclock",),
    (0, 1, 1, 0): ("transpose=cclock_flip",),
    (0, -1, -1, 0): ("transpose=clock_flip",),
}
"""FFmpeg's filters for each turn. ``cclock_flip`` only exchanges rows and columns. ``vflip`` returns a view with a
negative row step, which some encoders refuse, so ``copy`` follows it.
"""
_WORDS: Final[dict[Turn, str]] = {
    UPRIGHT: "",
    MIRRORED: "mirrored left to right",
    UPSIDE_DOWN: "mirrored top to bottom",
    (-1, 0, 0, -1): "turned by 180 degrees",
    CLOCKWISE: "turned by 90 degrees clockwise",
    (0, -1, 1, 0): "turned by 270 degrees clockwise",
    (0, 1, 1, 0): "mirrored left to right, then turned by 270 degrees clockwise",
    (0, -1, -1, 0): "mirrored left to right, then turned by 90 degrees clockwise",
}
_CHROMA_PROBE: Final = 64
"""A size that is divisible by every subsampling."""


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of samples: its size, and the position of its upper left corner."""

    width: int
    height: int
    x: int
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureSteps:
    """The steps for each picture, in the order of the fields."""

    size: Size  # the size to which pictures of another size are scaled first
    crop: Region  # the part to keep
    turn: Turn
    scaled: Size
    padded: Size  # the size with the black border
    place: tuple[int, int]  # the position of the picture's upper left corner inside the border

    @property
    def is_padded(self) -> bool:
        """Whether there is a border around the scaled picture."""
        return self.padded != self.scaled

    @property
    def is_cropped(self) -> bool:
        """Whether part of the picture is left out."""
        return (self.crop.width, self.crop.height) != self.size

    @property
    def name(self) -> str:
        """The steps' names in the encoder kind, without the output's size."""
        crop, (width, height), (x, y) = self.crop, self.padded, self.place
        steps = [f"crop={crop.width}:{crop.height}:{crop.x}:{crop.y}"] if self.is_cropped else []
        steps += [f"turn={':'.join(map(str, self.turn))}"] if self.turn != UPRIGHT else []
        steps += [f"scale={self.scaled[0]}:{self.scaled[1]} pad={width}:{height}:{x}:{y}"] if self.is_padded else []
        return " ".join(steps)

    @property
    def words(self) -> str:
        """The steps' description for the user; "" if there are no steps."""
        crop, (x, y) = self.crop, self.place
        steps = [f"cropped to {crop.width}x{crop.height} at {crop.x}:{crop.y}"] if self.is_cropped else []
        steps += [turn] if (turn := _WORDS[self.turn]) else []
        if self.scaled != turned_size((crop.width, crop.height), self.turn):
            steps.append(f"scaled to {self.scaled[0]}x{self.scaled[1]}")
        if self.is_padded:
            steps.append(f"padded to {self.padded[0]}x{self.padded[1]}, the picture at {x}:{y}")
        return ", ".join(steps)


def turned_size(size: Size, turn: Turn) -> Size:
    """Return the size of a picture after a turn; quarter turns exchange the sides."""
    return size if turn[0] else (size[1], size[0])


def nearest_turn(matrix: tuple[int, ...] | None) -> Turn:
    """Return the quarter turn nearest to a display matrix (ISO/IEC 14496-12), mirrored if the matrix mirrors."""
    if matrix is None:
        return UPRIGHT
    a, b, _, c, d, *_ = matrix
    if abs(b) + abs(c) > abs(a) + abs(d):
        return 0, -1 if b < 0 else 1, -1 if c < 0 else 1, 0
    return -1 if a < 0 else 1, 0, 0, -1 if d < 0 else 1


def shown_size(width: int, height: int, sample_aspect_ratio: Fraction, turn: Turn) -> Size:
    """Return the size in square pixels at which a player shows a stored picture; no side shrinks."""
    if sample_aspect_ratio > 1:
        width = round(width * sample_aspect_ratio)
    else:
        height = round(height / sample_aspect_ratio)
    return turned_size((max(1, width), max(1, height)), turn)


def turned_box(box: Region, size: Size, turn: Turn) -> Region:
    """Return the place of a rectangle after a picture of ``size`` is turned."""
    a, b, c, d = turn

    def near(x: int, y: int, width: int, height: int) -> Size:
        corners = [(x, y), (x + width, y + height)]
        return min(a * x + c * y for x, y in corners), min(b * x + d * y for x, y in corners)

    (left, top), zero = near(box.x, box.y, box.width, box.height), near(0, 0, *size)
    return Region(*turned_size((box.width, box.height), turn), left - zero[0], top - zero[1])


def combined(first: Turn, second: Turn) -> Turn:
    """Return the one turn that equals ``first`` followed by ``second``."""
    (a, b, c, d), (e, f, g, h) = first, second
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


def chroma_step(pix_fmt: str) -> Size:
    """Return how many luma samples, across and down, share a chroma sample; cuts are at multiples of these numbers."""
    known = PixelFormat(pix_fmt)
    if known.is_rgb or known.has_palette or len(known.components) < 3:  # noqa: PLR2004 - grey, with alpha or without
        return 1, 1
    return _CHROMA_PROBE // known.chroma_width(_CHROMA_PROBE), _CHROMA_PROBE // known.chroma_height(_CHROMA_PROBE)


def workable_format(pix_fmt: str, turn: Turn) -> str:
    """Return the pixel format in which pictures of ``pix_fmt`` are cropped and turned.

    A palette becomes RGB. A quarter turn needs full chroma if chroma is subsampled differently across and down.
    """
    known = PixelFormat(pix_fmt)
    if known.has_palette or known.is_bit_stream:
        return "rgb24"
    across, down = chroma_step(pix_fmt)
    if turn[0] or across == down:
        return pix_fmt
    bits = max(component.bits for component in known.components)
    return "yuv444p" if bits <= BYTE_BITS else f"yuv444p{bits}le"


def turn_filters(turn: Turn) -> Iterator[tuple[str, str]]:
    """Yield the (filter, arguments) that turn a picture."""
    for each in _FILTERS[turn]:
        name, _, arguments = each.partition("=")
        yield name, arguments


def pad_arguments(steps: PictureSteps) -> str:
    """Return the arguments of FFmpeg's ``pad`` for the steps."""
    (width, height), (x, y) = steps.padded, steps.place
    return f"w={width}:h={height}:x={x}:y={y}"


def blacken(frame: VideoFrame, steps: PictureSteps, *, full_range: bool) -> None:
    """Make the border of a padded, planar picture black, in place.

    The border of FFmpeg's ``pad`` is wrong for more than 8 bits (514 of 1023 for neutral chroma), and for grey of
    limited range.
    """
    (x, y), (width, height) = steps.place, steps.scaled
    rgb = frame.format.is_rgb
    for number, (component, plane) in enumerate(zip(frame.format.components, frame.planes, strict=True)):
        level = 128 if number and not rgb else 0 if full_range or rgb else 16
        kind = "u1" if component.bits <= BYTE_BITS else "<u2"
        samples: NDArray[Any] = np.frombuffer(memoryview(plane), kind).reshape(plane.height, -1)[:, : plane.width]
        across, down = ceil(frame.width / plane.width), ceil(frame.height / plane.height)
        top, bottom, left, right = y // down, (y + height) // down, x // across, (x + width) // across
        for border in (samples[:top], samples[bottom:], samples[top:bottom, :left], samples[top:bottom, right:]):
            border[...] = level << component.bits - 8
