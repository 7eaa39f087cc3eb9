"""The decoder of a simulated device. Pictures are decoded in software, and pass through a surface."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ...actors.decode.decoding import DecodeTally, OpenTrack, PictureDecoder, SoftwareDecoder
from ...actors.decode.nvdec_support import CodedTrack, track_facts, unsupported_reason
from ...actors.nvidia.nvdec import Feeder
from ...actors.surfaces.formats import SurfaceFormat, surface_format
from ...actors.surfaces.host_pictures import apply_colour, packed_surface, planar_picture
from ...errors import DeviceError, EngineUnfit

if TYPE_CHECKING:
    from ...actors.decode.decoding import VideoPacket


class SurfaceDecoder(PictureDecoder[VideoFrame]):
    """Decodes in software, packs every picture into a surface as NVDEC does, and unpacks it again.

    Args:
        error: the error to raise after ``after`` pictures; None for no error.
        after: how many pictures are decoded before ``error`` is raised.
    """

    name = "nvdec"

    def __init__(self, error: DeviceError | None = None, after: int = 0) -> None:
        self._error = error
        self._after = after
        self.pictures = 0

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, VideoFrame]]:
        """Yield the pictures of a range.

        Raises EngineUnfit: NVDEC would not decode such a track; DeviceError: the given ``error``.
        """
        facts = track_facts(track.stream)
        surface = surface_format(facts.pix_fmt)
        if (reason := unsupported_reason(facts)) or surface is None:
            raise EngineUnfit(reason)
        for number, picture in SoftwareDecoder().decode(track, _without_captions(facts, packets), tally):
            if self._error is not None and self.pictures >= self._after:
                raise self._error
            self.pictures += 1
            size = picture.width, picture.height
            copy = planar_picture(surface_of(picture, surface), surface, *size, picture.format.name)
            copy.pts = picture.pts
            apply_colour(copy, track.context)
            yield number, copy


def _without_captions(
    facts: CodedTrack, packets: "Iterator[tuple[int, VideoPacket]]"
) -> "Iterator[tuple[int, VideoPacket]]":
    for number, packet in packets:
        chunk = Feeder(facts.codec, facts.extradata).chunk(number, bytes(packet))
        if chunk is not None and chunk.headers.has_captions:
            raise EngineUnfit(f"packet {number} carries closed captions")
        yield number, packet


def surface_of(picture: VideoFrame, format_: SurfaceFormat) -> NDArray[np.uint8]:
    """Return a picture as the bytes in NVDEC's surface; the inverse of ``planar_picture``."""
    surface = np.empty(format_.size_bytes(picture.width, picture.height), dtype=np.uint8)
    packed_surface(picture, format_, surface)
    return surface
