"""Lays a picture over the film's by exact integer blending in the film's format; docs/filters.md has the formula."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from av.video.format import VideoFormat as PixelFormat
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ..media.values import BYTE_BITS, VideoFormat
from .overlay_colours import Levels, coded
from .overlay_png import png_samples
from .steps import chroma_step

if TYPE_CHECKING:
    from .steps import Size

_WHOLE_PERCENT: Final = 100
_OPAQUE: Final = 255 * _WHOLE_PERCENT
"""The largest alpha (8 bits) times the largest opacity (percent)."""
_DIGITS: Final = 16
_BAND_ROWS: Final = 64
"""Rows of luma that are blended at once, to save memory; divisible by any subsampling."""
_INT32_END: Final = 1 << 31

Numbers: TypeAlias = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """A picture, and the position of its upper left corner in the film's."""

    width: int
    height: int
    x: int
    y: int
    opacity: int  # in percent
    sha256: str  # of ``png``
    png: bytes = field(repr=False)  # its file

    @property
    def name(self) -> str:
        """Its stable name in the encoder kind."""
        return f"overlay={self.sha256[:_DIGITS]}:{self.x}:{self.y}:{self.opacity}"

    @property
    def words(self) -> str:
        """Its description for the user."""
        opacity = "" if self.opacity == _WHOLE_PERCENT else f", {self.opacity} % opaque"
        return f"overlaid with a picture of {self.width}x{self.height} at {self.x}:{self.y}{opacity}"

    def kept_bytes(self, step: "Size") -> int:
        """Return its memory if ``step`` luma samples, across and down, share a chroma sample."""
        across, down = step
        pixels, chroma = self.width * self.height, (self.width // across + 2) * (self.height // down + 2)
        return 8 * (pixels + 2 * chroma) + 4 * pixels

    def samples(self) -> NDArray[np.uint8]:
        """Return its rows of R, G, B and alpha: (height, width, 4)."""
        return png_samples(self.png, self.sha256[:_DIGITS])


@dataclass(frozen=True, slots=True, eq=False)
class Blend:
    """The blending of a part of a plane: (sample * ``kept`` + ``added``) / ``divisor``, rounded down."""

    rows: slice
    columns: slice
    kept: Numbers
    added: Numbers
    divisor: Numbers


def lay(blends: Sequence[tuple[int, Blend]], frame: VideoFrame) -> None:
    """Lay an overlay on a planar picture, in place; ``blends`` were made for the picture's format."""
    planes: list[NDArray[Any]] = []
    for plane, component in zip(frame.planes, frame.format.components, strict=False):
        kind = "u1" if component.bits <= BYTE_BITS else "<u2"
        planes.append(np.frombuffer(memoryview(plane), kind).reshape(plane.height, -1)[:, : plane.width])
    for number, blend in blends:
        under = planes[number][blend.rows, blend.columns]
        mixed = under * blend.kept
        mixed += blend.added
        mixed //= blend.divisor
        under[...] = mixed


@lru_cache(maxsize=1)  # all segments of a job share it; at most as large as eight of the film's pictures
def blends_of(overlay: Overlay, output: VideoFormat) -> tuple[tuple[int, Blend], ...]:
    """Return the blends of an overlay by plane number; ``InputUnreadable`` if its file is not a readable PNG."""
    return blends_for(overlay.samples(), (overlay.x, overlay.y), overlay.opacity, output)


def blends_for(
    samples: NDArray[np.uint8], place: "Size", opacity: int, output: VideoFormat
) -> tuple[tuple[int, Blend], ...]:
    """Return the blends of rows of R, G, B and alpha at ``place``, by plane number; ``opacity`` is in percent."""
    components = PixelFormat(output.pix_fmt).components
    bits, steps = components[0].bits, [(1, 1)]
    if components[2:]:  # it has chroma
        steps += [chroma_step(output.pix_fmt)] * 2
    size, found = (output.width, output.height), []
    for corner, pixels in _bands(samples, place):
        alpha = pixels[..., 3].astype(np.int64) * opacity
        planes = coded(pixels[..., :3], output, bits)
        for number, (levels, step) in enumerate(zip(planes, steps, strict=False)):
            found.append((number, _compact(_blend(levels, alpha, corner, step, size), bits)))
    return tuple(found)


def _bands(pixels: NDArray[np.uint8], place: "Size") -> "Iterator[tuple[Size, NDArray[np.uint8]]]":
    """Yield the opaque or translucent part in bands of rows, each with the position of its upper left corner."""
    rows, columns = (np.flatnonzero(pixels[..., 3].any(axis=axis)) for axis in (1, 0))
    if not rows.size:
        return
    left, right, row, end = int(columns[0]), int(columns[-1]) + 1, int(rows[0]), int(rows[-1]) + 1
    while row < end:
        top = place[1] + row
        # No band ends within a sample of chroma.
        following = min(end, row + _BAND_ROWS - top % _BAND_ROWS)
        yield (place[0] + left, top), pixels[row:following, left:right]
        row = following


def _compact(blend: Blend, bits: int) -> Blend:
    """Return the blend in less memory: 32 bits hold all sums except those of subsampled chroma with 16 bits."""
    most = int(blend.divisor.max())
    kind: type[np.signedinteger[Any]] = np.int32 if most << bits < _INT32_END else np.int64
    divisor = blend.divisor[:1, :1] if (blend.divisor == most).all() else blend.divisor
    kept, added = (each.astype(kind) for each in (blend.kept, blend.added))
    return Blend(blend.rows, blend.columns, kept, added, divisor.astype(kind))


def _blend(levels: Levels, alpha: Levels, place: "Size", step: "Size", size: "Size") -> Blend:
    """Return the blend of a plane whose samples cover ``step`` luma samples across and down."""
    (x, y), (across, down), (height, width) = place, step, alpha.shape
    left, top = x // across, y // down
    right, bottom = -(-(x + width) // across), -(-(y + height) // down)

    def summed(values: Levels) -> Levels:
        """Return for each sample of the plane the sum of the overlay's values under it."""
        whole = np.zeros(((bottom - top) * down, (right - left) * across), np.int64)
        inner = slice(y - top * down, y - top * down + height), slice(x - left * across, x - left * across + width)
        whole[inner] = values
        return _block_sums(whole, step)

    # A chroma sample at an odd edge covers fewer luma samples.
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
