"""Reads and sets the fields of FFmpeg's streams that PyAV cannot reach, through the checked structures of ``av_abi``.

Values are copied into FFmpeg's buffers and freed with the container. Unknown structures raise ``WorkError``.
"""

import ctypes
import hashlib
from contextlib import suppress
from ctypes import POINTER, byref, c_int
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import av.packet

from .av_abi import Parameters, Rational, SideData, ffmpeg, structures
from .values import Colour

if TYPE_CHECKING:
    from av.stream import Stream


_INPUT_PADDING_BYTES = 64  # AV_INPUT_BUFFER_PADDING_SIZE: FFmpeg's bitstream readers may read this far past the end
_EXTRADATA_LIMIT_BYTES = 1 << 28
_MARK_BYTES = 16
_COLOUR_FIELDS = ("range", "primaries", "transfer", "matrix", "chroma_location")


class FieldOrder(IntEnum):
    """How a track's pictures are stored: whole, or as fields (FFmpeg's ``AVFieldOrder``).

    FFmpeg's comments define the last two values differently. This class follows FFmpeg's encoders and raw decoders, RFC
    9559 section 5.1.4.1.28.2 and Apple's TN2162.
    """

    UNKNOWN = 0
    PROGRESSIVE = 1
    TOP_FIRST = 2
    """Stored field by field, the top field first."""
    BOTTOM_FIRST = 3
    """Stored field by field, the bottom field first."""
    INTERLEAVED_TOP_FIRST = 4
    """Stored line by line; the top field is shown first."""
    INTERLEAVED_BOTTOM_FIRST = 5
    """Stored line by line; the bottom field is shown first."""

    @property
    def shown_first(self) -> Literal["top", "bottom"] | None:
        """The field that is shown first; None if pictures are whole or the order is unknown."""
        if self in (FieldOrder.TOP_FIRST, FieldOrder.INTERLEAVED_TOP_FIRST):
            return "top"
        return "bottom" if self in (FieldOrder.BOTTOM_FIRST, FieldOrder.INTERLEAVED_BOTTOM_FIRST) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoParameters:
    """The properties of a video track that its container states."""

    width: int
    height: int
    pix_fmt: str | None  # None if not stated
    colour: Colour
    sample_aspect_ratio: Fraction | None  # None if the container does not state the value
    frame_rate: Fraction | None  # None if the container does not state the value
    video_delay: int  # the reorder delay in frames
    field_order: FieldOrder
    codec_tag: int
    profile: int
    level: int


def extradata(stream: "Stream") -> bytes:
    """Return the stream's codec configuration (avcC, hvcC, av1C, Annex B parameter sets, ...); b"" if it has none."""
    parameters = structures(stream)[1]
    return ctypes.string_at(parameters.extradata, parameters.extradata_size) if parameters.extradata else b""


def decoder_mark(stream: "Stream") -> bytes:
    """Return a digest of a stream's decoder parameters, except the rates, which FFmpeg guesses."""
    stated = Parameters.from_buffer_copy(structures(stream)[1])
    stated.extradata, stated.side_data = None, None
    stated.bit_rate, stated.frame_rate = 0, Rational(0, 0)
    digest = hashlib.blake2b(bytes(stated), digest_size=_MARK_BYTES)
    for data in (extradata(stream), repr(side_data(stream)).encode()):
        digest.update(len(data).to_bytes(8) + data)
    return digest.digest()


def set_extradata(stream: "Stream", data: bytes) -> None:
    """Replace the stream's codec configuration; ``ValueError`` if ``data`` is larger than FFmpeg accepts."""
    parameters = structures(stream)[1]
    if len(data) >= _EXTRADATA_LIMIT_BYTES:
        raise ValueError(f"extradata of {len(data)} bytes is more than FFmpeg takes")
    library = ffmpeg()
    library.av_freep(byref(parameters, Parameters.extradata.offset))
    parameters.extradata_size = 0
    if data:
        parameters.extradata = library.av_mallocz(len(data) + _INPUT_PADDING_BYTES)
        if not parameters.extradata:
            raise MemoryError(f"FFmpeg could not allocate {len(data)} bytes")
        ctypes.memmove(parameters.extradata, data, len(data))
        parameters.extradata_size = len(data)


def video_parameters(stream: "Stream") -> VideoParameters:
    """Return the properties of a video stream that its container or demuxer states, without decoding."""
    head, parameters = structures(stream)
    name = ffmpeg().av_get_pix_fmt_name(parameters.format)
    return VideoParameters(
        width=parameters.width,
        height=parameters.height,
        pix_fmt=name.decode() if name else None,
        colour=Colour(**{field: getattr(parameters, field) for field in _COLOUR_FIELDS}),
        sample_aspect_ratio=_fraction(head.sample_aspect_ratio) or _fraction(parameters.sample_aspect_ratio),
        frame_rate=_fraction(head.average_frame_rate) or _fraction(parameters.frame_rate),
        video_delay=parameters.video_delay,
        field_order=FieldOrder(parameters.field_order),
        codec_tag=parameters.codec_tag,
        profile=parameters.profile,
        level=parameters.level,
    )


def _fraction(value: Rational) -> Fraction | None:
    return Fraction(value.num, value.den) if value.num > 0 and value.den > 0 else None


def set_video_parameters(
    stream: "Stream",
    *,
    pix_fmt: str,
    colour: Colour,
    sample_aspect_ratio: Fraction,
    video_delay: int,
    frame_rate: Fraction,
    codec_tag: int = 0,
    field_order: FieldOrder = FieldOrder.PROGRESSIVE,
) -> None:
    """Describe the video of a stream made by ``add_mux_stream``, before the container's header is written.

    ``video_delay`` is the reorder delay in frames. ``frame_rate`` is the nominal rate. If ``codec_tag`` is 0, the muxer
    chooses the tag. ``ValueError`` if FFmpeg has no such ``pix_fmt``.
    """
    head, parameters = structures(stream)
    number = ffmpeg().av_get_pix_fmt(pix_fmt.encode())
    if number < 0:
        raise ValueError(f"FFmpeg knows no pixel format {pix_fmt!r}")
    for field in _COLOUR_FIELDS:
        setattr(parameters, field, getattr(colour, field))
    parameters.format, parameters.video_delay = number, video_delay
    parameters.codec_tag, parameters.field_order = codec_tag, int(field_order)
    # Matroska's muxer reads the aspect ratio and rate of the stream, MP4's muxer those of the codec parameters.
    for value, *targets in (
        (sample_aspect_ratio, head.sample_aspect_ratio, parameters.sample_aspect_ratio),
        (frame_rate, head.average_frame_rate, parameters.frame_rate),
    ):
        for target in targets:
            target.num, target.den = value.numerator, value.denominator


def set_audio_parameters(
    stream: "Stream",
    *,
    sample_rate: int,
    channel_layout: str,
    frame_size: int,
    sample_format: str | None = None,
    bit_rate_bps: int = 0,
) -> None:
    """Describe the audio of a stream made by ``add_mux_stream``, before the container's header is written.

    ``channel_layout`` is FFmpeg's name (``stereo``, ``5.1``); ``frame_size`` is in samples per packet, 0 if it varies.
    ``ValueError`` if FFmpeg has no such layout or sample format.
    """
    parameters = structures(stream)[1]
    library = ffmpeg()
    library.av_channel_layout_uninit(byref(parameters.channel_layout))
    if library.av_channel_layout_from_string(byref(parameters.channel_layout), channel_layout.encode()) < 0:
        raise ValueError(f"FFmpeg knows no channel layout {channel_layout!r}")
    if sample_format is not None:
        parameters.format = library.av_get_sample_fmt(sample_format.encode())
        if parameters.format < 0:
            raise ValueError(f"FFmpeg knows no sample format {sample_format!r}")
    parameters.sample_rate, parameters.frame_size, parameters.bit_rate = sample_rate, frame_size, bit_rate_bps


def set_audio_padding(
    stream: "Stream", initial_padding: int, *, trailing_padding: int = 0, seek_preroll: int | None = None
) -> None:
    """State how many samples an audio encoder added before the first real sample and after the last.

    ``seek_preroll`` is the number of samples to decode after a seek until the sound is right (Opus: 80 ms); None leaves
    it unchanged.
    """
    parameters = structures(stream)[1]
    parameters.initial_padding, parameters.trailing_padding = initial_padding, trailing_padding
    if seek_preroll is not None:
        parameters.seek_preroll = seek_preroll


def side_data(stream: "Stream") -> dict[str, bytes]:
    """Return the stream's side data by PyAV's names (``display_matrix`` ...), without kinds that PyAV cannot name."""
    parameters = structures(stream)[1]
    found: dict[str, bytes] = {}
    for entry in parameters.side_data[: parameters.side_data_count] if parameters.side_data_count else ():
        with suppress(ValueError):
            found[str(av.packet.packet_sidedata_type_to_literal(entry.type))] = ctypes.string_at(entry.data, entry.size)
    return found


def add_side_data(stream: "Stream", kind: Any, data: bytes) -> None:  # noqa: ANN401 - PyAV's Literal of forty names
    """Set a stream's side data of a ``kind`` before the header is written; ``ValueError`` if there is no such kind."""
    parameters = structures(stream)[1]
    try:
        number = int(av.packet.packet_sidedata_type_from_literal(kind))
    except ValueError:
        raise ValueError(f"FFmpeg knows no stream side data {kind!r}") from None
    entries = ctypes.cast(byref(parameters, Parameters.side_data.offset), POINTER(POINTER(SideData)))
    count = ctypes.cast(byref(parameters, Parameters.side_data_count.offset), POINTER(c_int))
    entry = ffmpeg().av_packet_side_data_new(entries, count, number, len(data), 0)
    if not entry:
        raise MemoryError(f"FFmpeg could not allocate {len(data)} bytes of {kind}")
    ctypes.memmove(entry.contents.data, data, len(data))


def copy_parameters(target: "Stream", source: "Stream") -> None:
    """Copy the codec parameters of ``source``, side data included; the muxer chooses the codec tag."""
    target_head, target_parameters = structures(target)
    source_head, source_parameters = structures(source)
    if ffmpeg().avcodec_parameters_copy(byref(target_parameters), byref(source_parameters)) < 0:
        raise MemoryError("FFmpeg could not copy the parameters of a stream")
    target_parameters.codec_tag = 0
    for name in ("sample_aspect_ratio", "average_frame_rate"):
        setattr(target_head, name, getattr(source_head, name))
