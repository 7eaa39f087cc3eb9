"""A picture in device memory by its three channels, each with its own address and steps: pitched, strided, packed."""

from dataclasses import dataclass, field
from typing import NamedTuple

from .conversion import PlanePlace, plane_places
from .formats import SurfaceFormat


class StridedChannel(NamedTuple):
    """A channel's address, and the steps in bytes to the right and down."""

    address: int
    column_bytes: int
    row_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StridedPicture:
    """Y, Cb and Cr of ``format``; with ``matrix``, 8-bit red, green and blue, which become NV12."""

    channels: tuple[StridedChannel, StridedChannel, StridedChannel]
    width: int
    height: int
    pix_fmt: str
    """FFmpeg's planar format of the samples after conversion."""
    format: SurfaceFormat
    """The surface format that holds such samples."""
    shift: int = 0
    """How far samples are shifted up, in bits: significant bits are low here, and high in a surface."""
    matrix: int | None = None
    """ISO/IEC 23091-2's matrix for converting RGB; None for Y, Cb and Cr."""
    owner: object = field(repr=False)
    """Keeps the memory alive."""

    @property
    def places(self) -> tuple[PlanePlace, PlanePlace, PlanePlace]:
        """Where Y, Cb and Cr are in the surface."""
        return plane_places(self.format, self.width, self.height)

    @property
    def is_tight(self) -> bool:
        """Whether its memory already is a tight surface of ``format``."""
        step = self.format.sample_bytes
        begin = self.channels[0].address
        return not (self.shift or self.matrix) and all(
            channel == StridedChannel(begin + place.offset * step, place.step * step, place.pitch * step)
            for channel, place in zip(self.channels, self.places, strict=True)
        )
