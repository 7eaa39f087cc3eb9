"""A picture that lies in a GPU's memory, as NVDEC gives it and NVENC takes it."""

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["DeviceFrame", "DevicePlane", "SurfaceLayout"]


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


@dataclass(frozen=True, slots=True)
class DevicePlane:
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
