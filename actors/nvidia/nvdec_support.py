"""Whether NVDEC may decode a track: what it gives must be what software gives, picture by picture.

Pure: facts in, a reason out. What the device itself can is asked elsewhere (``nvdec_caps``).
"""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from av.video.format import VideoFormat as PixelFormat

from ..av_stream import FieldOrder, extradata, video_parameters
from ..parameter_sets import has_whole_frames_only
from .device_frame import SurfaceLayout

if TYPE_CHECKING:
    from av.video.stream import VideoStream

__all__ = ["CODECS", "SurfaceFormat", "TrackFacts", "surface_format", "track_facts", "unsupported_reason"]

CODECS: Final = {"h264": 4, "hevc": 8, "av1": 11, "vp9": 10, "vp8": 9}
"""FFmpeg's codec names, and the numbers of the Video Codec SDK's ``cudaVideoCodec``."""

_SOFT_DEPTHS: Final = (8, 10, 12)
_LAYOUTS: Final = {
    (1, 1, False): SurfaceLayout.NV12,
    (1, 1, True): SurfaceLayout.P016,
    (1, 0, False): SurfaceLayout.NV16,
    (1, 0, True): SurfaceLayout.P216,
    (0, 0, False): SurfaceLayout.YUV444,
    (0, 0, True): SurfaceLayout.YUV444_16,
}
"""By how often chroma is halved across and down, and whether a sample has more than 8 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackFacts:
    """What is known of a track before any of it is decoded. ``codec`` and ``pix_fmt`` are FFmpeg's names."""

    codec: str
    pix_fmt: str | None
    width: int
    height: int
    field_order: FieldOrder
    extradata: bytes


@dataclass(frozen=True, slots=True)
class SurfaceFormat:
    """How a track's pictures lie in a surface, and how many bits of a sample count."""

    layout: SurfaceLayout
    bits: int
    halved_across: bool
    halved_down: bool

    @property
    def sample_bytes(self) -> int:
        """How many bytes a sample takes."""
        return 1 if self.bits == 8 else 2  # noqa: PLR2004 - bits of a byte

    @property
    def chroma(self) -> str:
        """The sampling as people write it."""
        return {(True, True): "4:2:0", (True, False): "4:2:2"}.get((self.halved_across, self.halved_down), "4:4:4")

    def holds(self, width: int, height: int) -> bool:
        """Tell whether a surface holds pictures of that size: where chroma is halved, sides are even."""
        return not ((self.halved_across and width % 2) or (self.halved_down and height % 2))

    def size_bytes(self, width: int, height: int) -> int:
        """Return the size of a picture without padding."""
        luma = width * height * self.sample_bytes
        return luma + 2 * luma // ((1 + self.halved_across) * (1 + self.halved_down))


def track_facts(stream: "VideoStream") -> TrackFacts:
    """Read the facts of an opened track."""
    parameters = video_parameters(stream)
    return TrackFacts(
        codec=stream.codec_context.codec.canonical_name,
        pix_fmt=parameters.pix_fmt,
        width=parameters.width,
        height=parameters.height,
        field_order=parameters.field_order,
        extradata=extradata(stream),
    )


@cache
def surface_format(pix_fmt: str | None) -> SurfaceFormat | None:
    """Return how pictures of FFmpeg's ``pix_fmt`` lie in a surface; None where no surface holds them."""
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
        return None  # 4:1:1 and 4:1:0
    found = _LAYOUTS.get((int(across), int(down), bits > 8))  # noqa: PLR2004 - bits of a byte
    if found is None or bits not in _SOFT_DEPTHS or layout.name.endswith(("be", "msble")):
        return None
    return SurfaceFormat(found, bits, across, down)


def unsupported_reason(track: TrackFacts) -> str:
    """Return why NVDEC may not decode a track exactly as software does; "" where it may."""
    if track.codec == "mpeg2video":
        return "MPEG-2 leaves the rounding of its transform open, and NVDEC's is not software's"
    if track.codec not in CODECS:
        return f"NVDEC decodes no {track.codec}"
    surface = surface_format(track.pix_fmt)
    if surface is None:
        return f"NVDEC has no surface for {track.pix_fmt or 'an unknown pixel format'}"
    if not surface.holds(track.width, track.height):
        return f"NVDEC's surfaces have even sides, and the pictures are {track.width}x{track.height}"
    if _may_have_fields(track):
        return "the pictures may be interlaced, and PyNvVideoCodec deinterlaces whatever is"
    return ""


def _may_have_fields(track: TrackFacts) -> bool:
    if track.codec == "h264":
        return has_whole_frames_only(track.extradata) is not True
    return track.field_order not in (FieldOrder.UNKNOWN, FieldOrder.PROGRESSIVE)
