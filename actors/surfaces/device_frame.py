"""A picture in a device's memory, as decoders output and encoders take it, with what a decoder reports about it."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from av.video.frame import VideoFrame

from ..media.values import Colour, SeiMessage
from .formats import SurfaceFormat, SurfaceLayout


class DevicePlane(NamedTuple):
    """One plane: its address on the device, its pitch, and its size."""

    address: int
    pitch_bytes: int
    row_bytes: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceFrame:
    """One picture on the device.

    ``bits`` are the significant bits of a sample. ``owner`` keeps the memory alive. A decoder's frame is overwritten by
    its next call: copy it to keep it.
    """

    layout: SurfaceLayout
    bits: int
    width: int
    height: int
    planes: tuple[DevicePlane, ...]
    owner: object = field(repr=False)


@dataclass(frozen=True, slots=True)
class DecodeStatistics:
    """How a picture was coded, block by block in the driver's order. Documented, but no tested driver gave any."""

    luma_qp: tuple[int, ...]  # quantizers; all four fields are equally long, or empty
    coding_units: tuple[int, ...]  # the driver's block types
    first_motion: tuple[tuple[int, int], ...]  # (across, down): motion by the first reference list
    second_motion: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PictureNotes:
    """NVDEC's notes on one picture; ``statistics`` is None if ``NvdecOptions`` did not request them."""

    sei_messages: tuple[SeiMessage, ...] = ()
    statistics: DecodeStatistics | None = None


@dataclass(slots=True, eq=False)
class DevicePicture:
    """A complete picture in contiguous device memory without padding; hold it until the device has read it."""

    frame: DeviceFrame
    format: SurfaceFormat
    pix_fmt: str  # FFmpeg's name of the format in which software decodes it
    pts: int | None = None  # in its track's ticks
    opaque: object = None  # its decoder's notes
    colour: Colour | None = None
    """The picture's colours, in a track whose colours change; None: the track's colours."""

    @property
    def address(self) -> int:
        """Where it begins on the device."""
        return self.frame.planes[0].address


@dataclass(frozen=True, slots=True, eq=False)
class TimedPicture:
    """A picture on the host or the device, and its pts: device frames have none."""

    pixels: VideoFrame | DeviceFrame
    pts_ticks: int


def state_colour(picture: object, colour: Colour) -> None:
    """Give a decoded picture, on the host or the device, its own colours, overriding its decoder's."""
    if isinstance(picture, VideoFrame):
        picture.color_range, picture.colorspace = colour.range, colour.matrix
        picture.color_primaries, picture.color_trc = colour.primaries, colour.transfer
    elif isinstance(picture, DevicePicture):
        picture.colour = colour


def stated_colour(picture: VideoFrame | DevicePicture, otherwise: Colour) -> Colour:
    """Return the colours that ``state_colour`` gave a picture; ``otherwise`` completes them."""
    if isinstance(picture, DevicePicture):
        return picture.colour or otherwise
    return replace(
        otherwise,
        range=int(picture.color_range),
        primaries=int(picture.color_primaries),
        transfer=int(picture.color_trc),
        matrix=int(picture.colorspace),
    )


def device_planes(format_: SurfaceFormat, address: int, width: int, height: int) -> tuple[DevicePlane, ...]:
    """Return the planes of a surface at ``address``, without padding."""
    row_bytes = width * format_.sample_bytes
    chroma_rows = height >> format_.halved_down
    # A plane of chroma pairs, halved across, is as wide as luma; else chroma has two planes.
    rows = (height, chroma_rows) if format_.halved_across else (height, height, height)
    planes = []
    for count in rows:
        planes.append(DevicePlane(address, row_bytes, row_bytes, count))
        address += count * row_bytes
    return tuple(planes)


def tight_picture(
    format_: SurfaceFormat, address: int, size: tuple[int, int], pix_fmt: str, owner: object
) -> DevicePicture:
    """Return the picture of this (width, height) in the memory at ``address``, which ``owner`` keeps alive."""
    width, height = size
    planes = device_planes(format_, address, width, height)
    frame = DeviceFrame(
        layout=format_.layout, bits=format_.bits, width=width, height=height, planes=planes, owner=owner
    )
    return DevicePicture(frame, format_, pix_fmt)
