"""A picture in device memory whose three channels each have an address and steps: pitched, strided or packed."""

from dataclasses import dataclass, field
from typing import NamedTuple

from .conversion import PlanePlace, plane_places
from .formats import SurfaceFormat


class StridedChannel(NamedTuple):
    """The address of a channel, and the steps in bytes to the next sample on the right and below."""

    address: int
    column_bytes: int
    row_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StridedPicture:
    """Y, Cb and Cr in ``format``; if ``matrix`` is set, 8-bit red, green and blue, which become NV12."""

    channels: tuple[StridedChannel, StridedChannel, StridedChannel]
    width: int
    height: int
    pix_fmt: str
    """FFmpeg's planar format of the samples after conversion."""
    format: SurfaceFormat
    """The surface format that holds such samples."""
    matrix: int | None = None
    """The matrix of ISO/IEC 23091-2 with which RGB is converted; None for Y, Cb and Cr."""
    owner: object = field(repr=False)
    """The object that keeps the memory alive."""

    @property
    def places(self) -> tuple[PlanePlace, PlanePlace, PlanePlace]:
        """Where Y, Cb and Cr are in the surface."""
        return plane_places(self.format, self.width, self.height)

    @property
    def is_tight(self) -> bool:
        """Whether the memory already is a surface of ``format`` without padding."""
        step = self.format.sample_bytes
        begin = self.channels[0].address
        return not self.matrix and all(
            channel == StridedChannel(begin + place.offset * step, place.step * step, place.pitch * step)
            for channel, place in zip(self.channels, self.places, strict=True)
        )
