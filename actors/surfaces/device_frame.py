"""A picture that lies in a device's memory, as its decoder gives it and its encoder takes it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from av.video.frame import VideoFrame

from .formats import SurfaceFormat, SurfaceLayout

__all__ = ["DeviceFrame", "DevicePicture", "DevicePlane", "TimedPicture", "device_planes"]


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
    format: SurfaceFormat
    pix_fmt: str
    pts: int | None = None
    opaque: object = None

    @property
    def address(self) -> int:
        """Where it begins on the device."""
        return self.frame.planes[0].address


@dataclass(frozen=True, slots=True, eq=False)
class TimedPicture:
    """A picture of the host or of the device, and when it is shown: of those on the device none says it by itself."""

    pixels: VideoFrame | DeviceFrame
    pts_ticks: int


def device_planes(format_: SurfaceFormat, address: int, width: int, height: int) -> tuple[DevicePlane, ...]:
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
