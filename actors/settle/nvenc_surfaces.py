"""The surface formats that NVENC takes through PyNvVideoCodec: their names, layouts, sizes and who encodes them.

Sources: PyNvVideoCodec programming guide, sections 2.3 ("CreateEncoder", parameter ``format``) and 2.4 ("Surface
Format Support"); the names as PyNvVideoCodec 2.2.4 takes them, which are case-sensitive. Those of them that hold what
another holds as well, or RGB, are not used: docs/nvenc.md has the reasons.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from ...errors import Unsupported
from ..encode.settings import Codec

__all__ = ["Chroma", "NvencSurface", "PlaneShape", "surface_for"]


class Chroma(Enum):
    """How the coded picture samples its chroma; the value is how many luma samples share a pair: (across, down)."""

    YUV420 = (2, 2)
    YUV422 = (2, 1)
    YUV444 = (1, 1)


@dataclass(frozen=True, slots=True)
class PlaneShape:
    """One plane as the package wants it: rows, columns, components a column, and bytes a component."""

    rows: int
    columns: int
    components: int
    component_bytes: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row; rows follow each other without padding."""
        return self.columns * self.components * self.component_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the plane."""
        return self.rows * self.row_bytes


class NvencSurface(StrEnum):
    """A surface format by the name that ``CreateEncoder`` takes."""

    NV12 = "NV12"
    """4:2:0, 8 bits: luma, then chroma pairs."""
    P010 = "P010"
    """4:2:0, 10 bits in the upper bits of 16: luma, then chroma pairs."""
    NV16 = "NV16"
    """4:2:2, 8 bits: luma, then chroma pairs."""
    P210 = "P210"
    """4:2:2, 10 bits in the upper bits of 16: luma, then chroma pairs."""
    YUV444 = "YUV444"
    """4:4:4, 8 bits: three planes."""
    YUV444_16BIT = "YUV444_16BIT"
    """4:4:4, 16 bits, of which the upper 10 are coded: three planes."""

    @property
    def bits(self) -> int:
        """Bits that a sample comes with; the encoder must know as many."""
        return 10 if self in _TWO_BYTES else 8

    @property
    def chroma(self) -> Chroma:
        """How the coded picture samples its chroma."""
        return _CHROMA.get(self, Chroma.YUV420)

    def planes(self, width: int, height: int) -> tuple[PlaneShape, ...]:
        """Return the planes of a picture, in the order they lie in memory.

        Raises:
            Unsupported: the size is not positive, or odd where chroma is subsampled: the package takes odd sizes
                without a word and reads past the buffer's end.
        """
        across, down = self.chroma.value
        if width <= 0 or height <= 0 or width % across or height % down:
            message = f"NVENC takes no {self.value} surface of {width}x{height}"
            raise Unsupported(message, f"The width must be a multiple of {across} and the height of {down}.")
        sample_bytes = 2 if self in _TWO_BYTES else 1
        luma = PlaneShape(height, width, 1, sample_bytes)
        if self.chroma is Chroma.YUV444:
            return (luma, luma, luma)
        if self.chroma is Chroma.YUV422:  # the package counts samples here, not pairs
            return (luma, luma)
        return (luma, PlaneShape(height // 2, width // 2, 2, sample_bytes))

    def frame_bytes(self, width: int, height: int) -> int:
        """Return the bytes of one picture, without any padding.

        Raises:
            Unsupported: the size does not fit the format.
        """
        return sum(plane.size_bytes for plane in self.planes(width, height))

    def check_codec(self, codec: Codec) -> None:
        """Check that the codec can hold what this surface holds, on any GPU.

        Raises:
            Unsupported: it cannot.
        """
        if codec is Codec.VP9:
            message = "NVENC has no VP9 encoder"
            raise Unsupported(message, "It encodes h264, hevc and av1.")
        if codec is Codec.AV1 and self.chroma is not Chroma.YUV420:
            message = f"NVENC encodes AV1 in 4:2:0 alone, not {self.value}"
            raise Unsupported(message, "Use NV12 or P010, or encode h264 or hevc.")


_TWO_BYTES: Final = frozenset({NvencSurface.P010, NvencSurface.P210, NvencSurface.YUV444_16BIT})
_CHROMA: Final = {
    NvencSurface.NV16: Chroma.YUV422,
    NvencSurface.P210: Chroma.YUV422,
    NvencSurface.YUV444: Chroma.YUV444,
    NvencSurface.YUV444_16BIT: Chroma.YUV444,
}
_BY_PIX_FMT: Final = {
    "yuv420p": NvencSurface.NV12,
    "yuv422p": NvencSurface.NV16,
    "yuv444p": NvencSurface.YUV444,
    "yuv420p10le": NvencSurface.P010,
    "yuv422p10le": NvencSurface.P210,
    "yuv444p10le": NvencSurface.YUV444_16BIT,
}


def surface_for(pix_fmt: str) -> NvencSurface:
    """Return the surface that holds pictures of FFmpeg's ``pix_fmt`` exactly.

    Raises:
        Unsupported: there is none.
    """
    found = _BY_PIX_FMT.get(pix_fmt)
    if found is None:
        message = f"NVENC has no surface that holds {pix_fmt} exactly"
        raise Unsupported(message, f"Use --pix-fmt {', '.join(_BY_PIX_FMT)}, or a software encoder.")
    return found
