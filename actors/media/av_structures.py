"""FFmpeg's public structures as ctypes, for the versions of FFmpeg that ``av_abi`` names."""

from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_int,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import ClassVar


class Rational(Structure):
    """``AVRational``."""

    _fields_: ClassVar = [("num", c_int), ("den", c_int)]


class SideData(Structure):
    """``AVPacketSideData``."""

    _fields_: ClassVar = [("data", c_void_p), ("size", c_size_t), ("type", c_int)]


class ChannelLayout(Structure):
    """``AVChannelLayout``."""

    _fields_: ClassVar = [("order", c_int), ("channels", c_int), ("mask", c_uint64), ("opaque", c_void_p)]


class Parameters(Structure):
    """``AVCodecParameters``."""

    _fields_: ClassVar = [
        ("codec_type", c_int),
        ("codec_id", c_int),
        ("codec_tag", c_uint32),
        ("extradata", c_void_p),
        ("extradata_size", c_int),
        ("side_data", POINTER(SideData)),
        ("side_data_count", c_int),
        ("format", c_int),
        ("bit_rate", c_int64),
        ("bits_per_coded_sample", c_int),
        ("bits_per_raw_sample", c_int),
        ("profile", c_int),
        ("level", c_int),
        ("width", c_int),
        ("height", c_int),
        ("sample_aspect_ratio", Rational),
        ("frame_rate", Rational),
        ("field_order", c_int),
        ("range", c_int),
        ("primaries", c_int),
        ("transfer", c_int),
        ("matrix", c_int),
        ("chroma_location", c_int),
        ("video_delay", c_int),
        ("channel_layout", ChannelLayout),
        ("sample_rate", c_int),
        ("block_align", c_int),
        ("frame_size", c_int),
        ("initial_padding", c_int),
        ("trailing_padding", c_int),
        ("seek_preroll", c_int),
    ]


class StreamHead(Structure):
    """The head of ``AVStream``, up to the last field used here."""

    _fields_: ClassVar = [
        ("av_class", c_void_p),
        ("index", c_int),
        ("id", c_int),
        ("parameters", POINTER(Parameters)),
        ("private", c_void_p),
        ("time_base", Rational),
        ("start_time", c_int64),
        ("duration", c_int64),
        ("frame_count", c_int64),
        ("disposition", c_int),
        ("discard", c_int),
        ("sample_aspect_ratio", Rational),
        ("metadata", c_void_p),
        ("average_frame_rate", Rational),
    ]


class BufferReference(Structure):
    """``AVBufferRef``."""

    _fields_: ClassVar = [("buffer", c_void_p), ("data", c_void_p), ("size", c_size_t)]


class FrameHead(Structure):
    """The head of ``AVFrame``, up to the last field used here."""

    _fields_: ClassVar = [
        ("data", c_void_p * 8),
        ("line_size", c_int * 8),
        ("extended_data", c_void_p),
        ("width", c_int),
        ("height", c_int),
        ("samples", c_int),
        ("format", c_int),
        ("picture_type", c_int),
        ("sample_aspect_ratio", Rational),
        ("pts", c_int64),
        ("packet_dts", c_int64),
        ("time_base", Rational),
        ("quality", c_int),
        ("opaque", c_void_p),
        ("repeat_picture", c_int),
        ("sample_rate", c_int),
        ("buffers", POINTER(BufferReference) * 8),
        ("extended_buffers", c_void_p),
        ("extended_count", c_int),
        ("side_data", c_void_p),
        ("side_data_count", c_int),
        ("flags", c_int),
    ]


class SubtitleRectangle(Structure):
    """``AVSubtitleRect``, up to the last field used here."""

    _fields_: ClassVar = [
        ("x", c_int),
        ("y", c_int),
        ("width", c_int),
        ("height", c_int),
        ("colours", c_int),
        ("data", c_void_p * 4),
        ("line_size", c_int * 4),
    ]


GetBuffer = CFUNCTYPE(c_int, c_void_p, POINTER(FrameHead), c_int)
"""``AVCodecContext.get_buffer2``: (context, frame, flags) allocates a decoder's picture."""
FreeBuffer = CFUNCTYPE(None, c_void_p, c_void_p)
"""The function that FFmpeg calls when nobody uses a buffer any more: (opaque, data)."""
