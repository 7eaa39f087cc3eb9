"""A picture in device memory, as decoders output it and encoders take it, and a decoder's notes on the picture."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from av.video.frame import VideoFrame

from ..media.values import Colour, SeiMessage
from .formats import SurfaceFormat, SurfaceLayout


class DevicePlane(NamedTuple):
    """The address of one plane on the device, its pitch, and its size."""

    address: int
    pitch_bytes: int
    row_bytes: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeviceFrame:
    """One picture on the device.

    ``bits`` are the significant bits of a sample. ``owner`` keeps the memory alive. The decoder's next call overwrites
    a frame: copy the frame to keep it.
    """

    layout: SurfaceLayout
    bits: int
    width: int
    height: int
    planes: tuple[DevicePlane, ...]
    owner: object = field(repr=False)


@dataclass(frozen=True, slots=True)
class DecodeStatistics:
    """How a picture was coded, block by block, in the driver's order. No tested driver returned these statistics."""

    luma_qp: tuple[int, ...]  # quantizers; all four fields have the same length, which may be 0
    coding_units: tuple[int, ...]  # the driver's block types
    first_motion: tuple[tuple[int, int], ...]  # (across, down): motion from the first reference list
    second_motion: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PictureNotes:
    """NVDEC's notes on one picture; ``statistics`` is None if ``NvdecOptions`` did not request them."""

    sei_messages: tuple[SeiMessage, ...] = ()
    statistics: DecodeStatistics | None = None


@dataclass(slots=True, eq=False)
class DevicePicture:
    """A finished picture in contiguous device memory without padding; keep this object until the device has read it.

    ``owner`` keeps the memory at ``address`` alive.
    """

    format: SurfaceFormat
    address: int
    width: int
    height: int
    pix_fmt: str  # FFmpeg's name of the format into which software decodes the picture
    owner: object = field(repr=False)
    pts: int | None = None  # the time of the picture, in ticks of its track
    opaque: object = None  # the decoder's notes
    colour: Colour | None = None
    """The colours of this picture, if the track's colours change; None means the track's colours."""

    @property
    def frame(self) -> DeviceFrame:
        """This picture as a ``DeviceFrame``, with an array for each plane."""
        return DeviceFrame(
            layout=self.format.layout,
            bits=self.format.bits,
            width=self.width,
            height=self.height,
            planes=device_planes(self.format, self.address, self.width, self.height),
            owner=self.owner,
        )


@dataclass(frozen=True, slots=True, eq=False)
class TimedPicture:
    """A picture on the host or the device, and its pts, because device frames have no pts."""

    pixels: VideoFrame | DeviceFrame
    pts_ticks: int


def state_colour(picture: object, colour: Colour) -> None:
    """Set the colours of a decoded picture, on the host or the device, in place of those that the decoder gave it."""
    if isinstance(picture, VideoFrame):
        picture.color_range, picture.colorspace = colour.range, colour.matrix
        picture.color_primaries, picture.color_trc = colour.primaries, colour.transfer
    elif isinstance(picture, DevicePicture):
        picture.colour = colour


def stated_colour(picture: VideoFrame | DevicePicture, otherwise: Colour) -> Colour:
    """Return the colours that ``state_colour`` gave to a picture; ``otherwise`` fills in missing values."""
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
    # A plane of chroma pairs that is halved across is as wide as luma; otherwise chroma has two planes.
    rows = (height, chroma_rows) if format_.halved_across else (height, height, height)
    planes = []
    for count in rows:
        planes.append(DevicePlane(address, row_bytes, row_bytes, count))
        address += count * row_bytes
    return tuple(planes)
