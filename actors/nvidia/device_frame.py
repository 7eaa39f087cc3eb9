"""A picture that lies in a GPU's memory, as NVDEC gives it and NVENC takes it."""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .nvdec_support import SurfaceFormat

__all__ = ["DeviceFrame", "DevicePicture", "DevicePlane", "SurfaceLayout", "device_planes"]


class SurfaceLayout(Enum):
    """How samples lie in a surface, by the names of the Video Codec SDK; ``value`` is PyNvVideoCodec's format name."""

    NV12 = "NV12"
    """4:2:0, 8 bits: a plane of luma, then one of chroma pairs."""
    P016 = "P016"
    """4:2:0, 10 or 12 bits in the upper bits of 16: laid out like NV12."""
    NV16 = "NV16"
    """4:2:2, 8 bits: a plane of luma, then one of chroma pairs."""
    P216 = "P216"
    """4:2:2, 10 or 12 bits in the upper bits of 16."""
    YUV444 = "YUV444"
    """4:4:4, 8 bits: three planes."""
    YUV444_16 = "YUV444_16Bit"
    """4:4:4, 10 or 12 bits in the upper bits of 16: three planes."""


class DevicePlane(NamedTuple):
    """One plane: where it begins on the device, how far its rows are apart, and how large it is."""

    address: int
    pitch_bytes: int
    row_bytes: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceFrame:
    """One picture on the device.

    ``bits`` are the bits of a sample that count. ``owner`` keeps the memory alive. A frame that a decoder gave is
    overwritten by that decoder's next call: whoever wants to keep it copies it first.
    """

    layout: SurfaceLayout
    bits: int
    width: int
    height: int
    planes: tuple[DevicePlane, ...]
    owner: object = field(repr=False)


@dataclass(slots=True, eq=False)
class DevicePicture:
    """A picture on the device, in memory of its own, tight and in one piece, and when it is shown in its track's ticks.

    ``format`` is how its samples lie, and ``pix_fmt`` FFmpeg's name of the format in which software would give it. Its
    samples are there when somebody is given it; whoever has the device read them holds it until that is done.
    ``opaque`` is what its decoder tells of it beside them, as PyAV's frames have it.
    """

    frame: DeviceFrame
    format: "SurfaceFormat"
    pix_fmt: str
    pts: int | None = None
    opaque: object = None

    @property
    def address(self) -> int:
        """Where it begins on the device."""
        return self.frame.planes[0].address


def device_planes(format_: "SurfaceFormat", address: int, width: int, height: int) -> tuple[DevicePlane, ...]:
    """Return the planes of a surface that begins at ``address``, its rows following each other without padding."""
    row_bytes = width * format_.sample_bytes
    chroma_rows = height >> format_.halved_down
    # Pairs of chroma, where it is halved across, are as wide as luma; else there are two planes of it.
    rows = (height, chroma_rows) if format_.halved_across else (height, height, height)
    planes = []
    for count in rows:
        planes.append(DevicePlane(address, row_bytes, row_bytes, count))
        address += count * row_bytes
    return tuple(planes)
