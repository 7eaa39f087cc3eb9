"""Judges whether NVDEC may decode a track: every picture must equal the software decoder's picture.

This module looks only at the track; ``nvidia.nvdec.decoder`` asks the device.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..bitstream.parameter_sets import has_whole_frames_only
from ..media.av_stream import FieldOrder, extradata, video_parameters
from ..surfaces.formats import surface_format

if TYPE_CHECKING:
    from av.video.stream import VideoStream


CODECS: Final = {"h264": 4, "hevc": 8, "av1": 11, "vp9": 10, "vp8": 9}
"""FFmpeg's codec names, with the Video Codec SDK's numbers (``cudaVideoCodec``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedTrack:
    """The facts about a track that are known without decoding. ``codec`` and ``pix_fmt`` are FFmpeg's names."""

    codec: str
    pix_fmt: str | None
    width: int
    height: int
    field_order: FieldOrder
    extradata: bytes


def track_facts(stream: "VideoStream") -> CodedTrack:
    """Read the facts about a track from its opened stream, without decoding."""
    parameters = video_parameters(stream)
    return CodedTrack(
        codec=stream.codec_context.codec.canonical_name,
        pix_fmt=parameters.pix_fmt,
        width=parameters.width,
        height=parameters.height,
        field_order=parameters.field_order,
        extradata=extradata(stream),
    )


def unsupported_reason(track: CodedTrack) -> str:
    """Return why NVDEC must not decode a track (its pictures might differ from those of software); "" if NVDEC may."""
    if track.codec == "mpeg2video":
        return "MPEG-2 leaves the rounding of its transform open, and NVDEC rounds differently from software"
    if track.codec not in CODECS:
        return f"NVDEC does not decode {track.codec}"
    surface = surface_format(track.pix_fmt)
    if surface is None:
        return f"NVDEC has no surface for {track.pix_fmt or 'an unknown pixel format'}"
    if not surface.holds(track.width, track.height):
        return f"NVDEC's surfaces have even sides, and the pictures are {track.width}x{track.height}"
    if track.codec == "h264":
        may_have_fields = has_whole_frames_only(track.extradata) is not True
    else:
        may_have_fields = track.field_order not in (FieldOrder.UNKNOWN, FieldOrder.PROGRESSIVE)
    return "the pictures may be interlaced, and PyNvVideoCodec deinterlaces such pictures" if may_have_fields else ""
