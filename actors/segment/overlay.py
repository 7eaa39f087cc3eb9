"""A picture laid over the film's: exact integer blending in the film's own format. docs/filters.md has the formula."""

import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from av.video.format import VideoFormat as PixelFormat
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ..media.values import VideoFormat
from .overlay_colours import Levels, coded
from .steps import chroma_step

if TYPE_CHECKING:
    from .steps import Size

_OPAQUE: Final = 255 * 100
"""Alpha in 8 bits times an opacity in percent."""
_DIGITS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """A picture, and where its upper left corner lies in the film's. ``opacity`` is in percent.

    ``pixels`` are its rows of R, G, B and alpha in 8 bits, deflated; ``sha256`` is that of the file it came from.
    """

    width: int
    height: int
    x: int
    y: int
    opacity: int
    sha256: str
    pixels: bytes = field(repr=False)

    @property
    def name(self) -> str:
        """What the encoder kind says of it, as one stable word."""
        return f"overlay={self.sha256[:_DIGITS]}:{self.x}:{self.y}:{self.opacity}"

    @property
    def words(self) -> str:
        """What a person reads of it."""
        opacity = "" if self.opacity == 100 else f", {self.opacity} % opaque"  # noqa: PLR2004 - all of it
        return f"overlaid with a picture of {self.width}x{self.height} at {self.x}:{self.y}{opacity}"

    def samples(self) -> NDArray[np.uint8]:
        """Return its rows: (height, width, 4)."""
        return np.frombuffer(zlib.decompress(self.pixels), np.uint8).reshape(self.height, self.width, 4)

    def lay(self, frame: VideoFrame, output: VideoFormat) -> None:
        """Lay it on a planar picture in ``output``'s format, in place."""
        for blend, plane, component in zip(blends(self, output), frame.planes, frame.format.components, strict=False):
            kind = "u1" if component.bits <= 8 else "<u2"  # noqa: PLR2004 - a byte
            rows: NDArray[Any] = np.frombuffer(memoryview(plane), kind).reshape(plane.height, -1)[:, : plane.width]
            under = rows[blend.rows, blend.columns]
            under[...] = (under * blend.kept + blend.added) // blend.divisor


@dataclass(frozen=True, slots=True, eq=False)
class Blend:
    """What becomes of a part of a plane: (sample * ``kept`` + ``added``) / ``divisor``, rounded down."""

    rows: slice
    columns: slice
    kept: Levels
    added: Levels
    divisor: Levels


@lru_cache(maxsize=4)
def blends(overlay: Overlay, output: VideoFormat) -> tuple[Blend, ...]:
    """Return how each plane of pictures in ``output``'s format changes."""
    pixels, described = overlay.samples(), PixelFormat(output.pix_fmt)
    alpha = pixels[..., 3].astype(np.int64) * overlay.opacity
    planes = coded(pixels[..., :3], output, described.components[0].bits)[: len(described.components)]
    steps = [(1, 1), *(chroma_step(output.pix_fmt),) * 2]
    place, size = (overlay.x, overlay.y), (output.width, output.height)
    return tuple(_blend(levels, alpha, place, step, size) for levels, step in zip(planes, steps, strict=False))


def _blend(levels: Levels, alpha: Levels, place: "Size", step: "Size", size: "Size") -> Blend:
    """Return how a plane changes whose samples stand for ``step`` samples of luma across and down."""
    (x, y), (across, down), (height, width) = place, step, alpha.shape
    left, top = x // across, y // down
    right, bottom = -(-(x + width) // across), -(-(y + height) // down)

    def summed(values: Levels) -> Levels:
        """Return the sums over what each sample of the plane stands for, of values where the overlay lies."""
        whole = np.zeros(((bottom - top) * down, (right - left) * across), np.int64)
        inner = slice(y - top * down, y - top * down + height), slice(x - left * across, x - left * across + width)
        whole[inner] = values
        return _block_sums(whole, step)

    # A sample of chroma at an odd edge stands for fewer.
    inside = np.ones(((bottom - top) * down, (right - left) * across), np.int64)
    inside[size[1] - top * down :] = 0
    inside[:, size[0] - left * across :] = 0
    divisor = _block_sums(inside, step) * _OPAQUE
    added = summed(levels * alpha) + divisor // 2
    return Blend(slice(top, bottom), slice(left, right), divisor - summed(alpha), added, divisor)


def _block_sums(values: Levels, step: "Size") -> Levels:
    across, down = step
    rows, columns = values.shape
    return np.asarray(values.reshape(rows // down, down, columns // across, across).sum(axis=(1, 3)))
