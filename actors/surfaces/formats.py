"""The arrangement of samples in a surface: layout, depth and sampling, and the FFmpeg formats that fit a surface."""

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final

from av.video.format import VideoFormat as PixelFormat

from ..media.values import BYTE_BITS


class SurfaceLayout(Enum):
    """The arrangements of samples in a surface, named as in the Video Codec SDK; ``value`` is PyNvVideoCodec's name."""

    NV12 = "NV12"  # 4:2:0, 8 bits: a plane of luma, then a plane of chroma pairs
    P016 = "P016"  # like NV12, but with 10 or 12 bits in the upper bits of 16
    NV16 = "NV16"  # 4:2:2, 8 bits: a plane of luma, then a plane of chroma pairs
    P216 = "P216"  # like NV16, but with 10 or 12 bits in the upper bits of 16
    YUV444 = "YUV444"  # 4:4:4, 8 bits: three planes
    YUV444_16 = "YUV444_16Bit"  # like YUV444, but with 10 or 12 bits in the upper bits of 16


_SOFT_DEPTHS: Final = (8, 10, 12)
_LAYOUTS: Final = {
    (1, 1, False): SurfaceLayout.NV12,
    (1, 1, True): SurfaceLayout.P016,
    (1, 0, False): SurfaceLayout.NV16,
    (1, 0, True): SurfaceLayout.P216,
    (0, 0, False): SurfaceLayout.YUV444,
    (0, 0, True): SurfaceLayout.YUV444_16,
}
"""Layouts by (whether chroma is halved across, whether it is halved down, whether a sample has more than 8 bits)."""


@dataclass(frozen=True, slots=True)
class SurfaceFormat:
    """The arrangement of a track's pictures in a surface, and the number of significant ``bits`` in a sample."""

    layout: SurfaceLayout
    bits: int
    halved_across: bool
    halved_down: bool

    @property
    def sample_bytes(self) -> int:
        """How many bytes a sample takes."""
        return 1 if self.bits == BYTE_BITS else 2

    @property
    def chroma(self) -> str:
        """The sampling in the usual notation, such as 4:2:0."""
        return {(True, True): "4:2:0", (True, False): "4:2:2"}.get((self.halved_across, self.halved_down), "4:4:4")

    def holds(self, width: int, height: int) -> bool:
        """Return whether a surface can hold pictures of this size: a side along which chroma is halved must be even."""
        return not ((self.halved_across and width % 2) or (self.halved_down and height % 2))

    def size_bytes(self, width: int, height: int) -> int:
        """Return the size of a picture without padding."""
        luma = width * height * self.sample_bytes
        return luma + 2 * luma // ((1 + self.halved_across) * (1 + self.halved_down))


@cache
def surface_format(pix_fmt: str | None) -> SurfaceFormat | None:
    """Return the surface format of FFmpeg's ``pix_fmt``; None if no surface holds such pictures."""
    if pix_fmt is None:
        return None
    side = 16
    layout = PixelFormat(pix_fmt, side, side)
    if len(layout.components) != 3 or layout.is_rgb or not layout.name.startswith("yuv"):  # noqa: PLR2004 - Y, U, V
        return None
    bits = layout.components[0].bits
    chroma = layout.components[1]
    across, down = chroma.width == side // 2, chroma.height == side // 2
    if not (across or chroma.width == side) or not (down or chroma.height == side):
        return None  # chroma is quartered, as in 4:1:1 and 4:1:0
    found = _LAYOUTS.get((int(across), int(down), bits > BYTE_BITS))
    if found is None or bits not in _SOFT_DEPTHS or layout.name.endswith(("be", "msble")):
        return None
    return SurfaceFormat(found, bits, across, down)
