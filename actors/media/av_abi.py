"""FFmpeg's public structures as ctypes, with safety checks, only for the PyAV and FFmpeg versions named here.

A PyAV object's pointer is followed only if three conditions hold. The versions and the object's size must fit. The
kernel must be able to copy the memory, so that a wrong pointer does not crash. The memory must begin with ``AVClass``
and agree with PyAV's public attributes.

Only the first object of each class is checked in full. A failed check raises ``WorkError``: there is no fallback.
"""

import ctypes
import os
from contextlib import suppress
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_ssize_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import av
import av.stream
import numpy as np
from av.subtitles.subtitle import BitmapSubtitle

from ...errors import WorkError

if TYPE_CHECKING:
    from av.codec.context import CodecContext
    from av.stream import Stream
    from av.video.codeccontext import VideoCodecContext
    from av.video.frame import VideoFrame


_PYAV_MINORS: Final = ("18.1",)
"""The versions in ``pyproject.toml``; each was tested."""
_MAJORS: Final = {"libavformat": 62, "libavcodec": 62, "libavutil": 60, "libswscale": 9}
_FIRST_FIELD_OFFSET_BYTES = 24  # PyObject header (16) and Cython's method table (8) precede the first C field
_GET_BUFFER_OFFSET_BYTES = 408  # AVCodecContext.get_buffer2
_PALETTE_BYTES = 1024  # AVPALETTE_SIZE
_ADVICE = "Install the PyAV version that codecfleet's package metadata requires."
_NO_PTS: Final = -(1 << 63)  # AV_NOPTS_VALUE
_INPUT_PADDING_BYTES: Final = 64  # AV_INPUT_BUFFER_PADDING_SIZE
_KEYFRAME_ENTRY: Final = 1  # AVINDEX_KEYFRAME
_INTERLACED: Final = 1 << 3  # AV_FRAME_FLAG_INTERLACED
_MEDIA_TYPES: Final = ("video", "audio", "data", "subtitle", "attachment")
"""The names of the values of ``AVMediaType``, in the same order."""

StructureT = TypeVar("StructureT", bound=Structure)

_proven: Final[set[object]] = set()
"""The kinds of objects already checked. Each check by the kernel takes the GIL, for which threads compete."""


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


@cache
def ffmpeg() -> ctypes.CDLL:
    """Return a handle to the FFmpeg libraries that PyAV uses."""
    if ".".join(av.__version__.split(".")[:2]) not in _PYAV_MINORS:
        raise _unknown(av.CodecContext)
    for name, major in _MAJORS.items():
        found = av.library_versions[name][0]
        if found != major:
            message = f"PyAV {av.__version__} has {name} {found}, but codecfleet knows the structures of {major}"
            raise WorkError(message, _ADVICE)
    # Symbols are searched in the extension module and its dependencies, which are PyAV's own libraries.
    library = ctypes.CDLL(av.stream.__file__)
    side_data_list = POINTER(POINTER(SideData))
    layout = POINTER(ChannelLayout)
    four = POINTER(c_int)
    for name, result, arguments in (
        ("av_stream_get_class", c_void_p, []),
        ("av_mallocz", c_void_p, [c_size_t]),
        ("av_freep", None, [c_void_p]),
        ("av_buffer_create", POINTER(BufferReference), [c_void_p, c_size_t, FreeBuffer, c_void_p, c_int]),
        ("av_image_fill_linesizes", c_int, [POINTER(c_int), c_int, c_int]),
        ("av_image_fill_plane_sizes", c_int, [POINTER(c_size_t), c_int, c_int, POINTER(c_ssize_t)]),
        ("av_get_pix_fmt", c_int, [c_char_p]),
        ("av_get_pix_fmt_name", c_char_p, [c_int]),
        ("av_get_sample_fmt", c_int, [c_char_p]),
        ("av_channel_layout_from_string", c_int, [layout, c_char_p]),
        ("av_channel_layout_uninit", None, [layout]),
        ("av_dynamic_hdr_plus_alloc", c_void_p, [POINTER(c_size_t)]),
        ("av_dynamic_hdr_plus_from_t35", c_int, [c_void_p, c_char_p, c_size_t]),
        ("av_dynamic_hdr_plus_to_t35", c_int, [c_void_p, POINTER(c_void_p), POINTER(c_size_t)]),
        ("av_opt_set", c_int, [c_void_p, c_char_p, c_char_p, c_int]),
        ("av_packet_side_data_new", POINTER(SideData), [side_data_list, POINTER(c_int), c_int, c_size_t, c_int]),
        ("av_add_index_entry", c_int, [c_void_p, c_int64, c_int64, c_int, c_int, c_int]),
        ("avcodec_get_class", c_void_p, []),
        ("avcodec_align_dimensions2", None, [c_void_p, POINTER(c_int), POINTER(c_int), POINTER(c_int)]),
        ("avcodec_default_get_buffer2", c_int, [c_void_p, POINTER(FrameHead), c_int]),
        ("avcodec_parameters_alloc", POINTER(Parameters), []),
        ("avcodec_parameters_free", None, [POINTER(POINTER(Parameters))]),
        ("avcodec_parameters_from_context", c_int, [POINTER(Parameters), c_void_p]),
        ("avcodec_parameters_copy", c_int, [POINTER(Parameters), POINTER(Parameters)]),
        ("avcodec_parameters_to_context", c_int, [c_void_p, POINTER(Parameters)]),
        ("sws_alloc_context", c_void_p, []),
        ("sws_free_context", None, [POINTER(c_void_p)]),
        ("sws_init_context", c_int, [c_void_p, c_void_p, c_void_p]),
        ("sws_setColorspaceDetails", c_int, [c_void_p, four, c_int, four, c_int, c_int, c_int, c_int]),
        ("sws_scale", c_int, [c_void_p, POINTER(c_void_p), four, c_int, c_int, POINTER(c_void_p), four]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def structures(stream: "Stream") -> tuple[StreamHead, Parameters]:
    """Return the C structures of a PyAV stream; the structures live as long as the stream's container."""
    library = ffmpeg()
    address = _pointer_in(stream, av.stream.Stream)
    look = _structure_at if av.stream.Stream in _proven else _copy_of
    head = look(StreamHead, address)
    if head is None or (head.av_class, head.index, head.id) != (library.av_stream_get_class(), stream.index, stream.id):
        raise _unknown(av.stream.Stream)
    parameters = look(Parameters, ctypes.cast(head.parameters, c_void_p).value)
    kinds = dict(enumerate(_MEDIA_TYPES))
    if parameters is None or kinds.get(parameters.codec_type, "unknown") != stream.type:
        raise _unknown(av.stream.Stream)
    _proven.add(av.stream.Stream)
    found = StreamHead.from_address(address)
    return found, found.parameters.contents


def set_get_buffer(context: "VideoCodecContext", function: Any) -> None:  # noqa: ANN401 - a GetBuffer, made at run time
    """Make an unopened decoder allocate its pictures with ``function``, which must outlive the decoder.

    ``function`` gets pictures that no PyAV object holds, so the structure of pictures is checked here on a picture that
    we made.
    """
    _prove_pictures()
    place = context_address(context) + _GET_BUFFER_OFFSET_BYTES
    new = ctypes.cast(function, c_void_p).value
    if _pointer_at(place, GetBuffer) not in (ctypes.cast(ffmpeg().avcodec_default_get_buffer2, c_void_p).value, new):
        raise _unknown(av.CodecContext)
    _proven.add(GetBuffer)
    c_void_p.from_address(place).value = new


def configure_decoder(context: "CodecContext", stream: "Stream") -> None:
    """Copy everything a container states about a stream to an unopened decoder; ``MemoryError`` if memory is short."""
    if ffmpeg().avcodec_parameters_to_context(context_address(context), structures(stream)[1]) < 0:
        raise MemoryError


def set_parameters(stream: "Stream", context: "CodecContext") -> None:
    """Copy a decoder's parameters to a stream (``configure_decoder`` reversed); ``MemoryError`` if memory is short."""
    if ffmpeg().avcodec_parameters_from_context(structures(stream)[1], context_address(context)) < 0:
        raise MemoryError


def subtitle_canvas(context: "CodecContext") -> tuple[int, int]:
    """Return the (width, height) in which a subtitle decoder places bitmaps, or zeros; may raise ``MemoryError``."""
    library = ffmpeg()
    address = context_address(context)
    if not (parameters := library.avcodec_parameters_alloc()):
        raise MemoryError
    try:
        if library.avcodec_parameters_from_context(parameters, address) < 0:
            raise MemoryError
        return parameters.contents.width, parameters.contents.height
    finally:
        library.avcodec_parameters_free(ctypes.byref(parameters))


def subtitle_palette(bitmap: BitmapSubtitle) -> bytes:
    """Return the colours of a decoded bitmap: 4 bytes each, blue, green, red and alpha; 1024 in all."""
    ffmpeg()
    # PyAV's subtitles have no method table, so their second C field is at the offset of other objects' first field.
    found = _copy_of(SubtitleRectangle, _pointer_in(bitmap, BitmapSubtitle))
    if found is None or not _is_of(found, bitmap):
        raise _unknown(BitmapSubtitle)
    if (palette := _memory(found.data[1] or 0, _PALETTE_BYTES)) is None:
        raise _unknown(BitmapSubtitle)
    return palette


def _is_of(found: SubtitleRectangle, bitmap: BitmapSubtitle) -> bool:
    plane: Any = bitmap.planes[0]
    stated = (bitmap.x, bitmap.y, bitmap.width, bitmap.height, bitmap.nb_colors, bitmap.width)
    has = (found.x, found.y, found.width, found.height, found.colours, found.line_size[0])
    return stated == has and found.data[0] == np.frombuffer(memoryview(plane), np.uint8).ctypes.data


def add_to_index(stream: "Stream", *, ticks: int, pos_bytes: int) -> None:
    """Add a keyframe's time and position to a demuxer's index; ``MemoryError`` if memory is short."""
    head = ctypes.addressof(structures(stream)[0])
    if ffmpeg().av_add_index_entry(head, pos_bytes, ticks, 0, 0, _KEYFRAME_ENTRY) < 0:
        raise MemoryError


def is_hdr10_plus(payload: bytes) -> bool:
    """Return whether FFmpeg can parse the HDR10+ metadata of a T.35 message, given from its application_version on."""
    library = ffmpeg()
    structure = c_void_p(library.av_dynamic_hdr_plus_alloc(None))
    try:
        padded = payload + bytes(_INPUT_PADDING_BYTES)
        return bool(structure) and library.av_dynamic_hdr_plus_from_t35(structure, padded, len(payload)) >= 0
    finally:
        library.av_freep(ctypes.byref(structure))


def hdr10_plus_payload(structure: bytes) -> bytes:
    """Return an ``AVDynamicHDRPlus`` as HDR10+ metadata of a T.35 message, from its application_version on."""
    library = ffmpeg()
    place, size = c_void_p(), c_size_t()
    if library.av_dynamic_hdr_plus_to_t35(structure, ctypes.byref(place), ctypes.byref(size)) < 0:
        raise MemoryError("FFmpeg could not write HDR10+ metadata")
    try:
        return ctypes.string_at(place.value or 0, size.value)
    finally:
        library.av_freep(ctypes.byref(place))


def frame_structure(frame: "VideoFrame") -> FrameHead:
    """Return the C structure of a decoded picture; the structure lives as long as the picture."""
    _prove_pictures()
    address = _pointer_in(frame, av.VideoFrame)
    if not address or not _agrees(FrameHead.from_address(address), frame):
        raise _unknown(av.VideoFrame)
    return FrameHead.from_address(address)


@cache
def _prove_pictures() -> None:
    """Check the structure of PyAV's pictures on a test picture, whose values and buffer are known."""
    ours = av.VideoFrame(64, 48, "yuv420p")
    number = ffmpeg().av_get_pix_fmt(b"yuv420p")
    found = _copy_of(FrameHead, _pointer_in(ours, av.VideoFrame))
    if found is None or not _agrees(found, ours) or (found.format, found.pts) != (number, _NO_PTS):
        raise _unknown(av.VideoFrame)
    buffer = _copy_of(BufferReference, ctypes.cast(found.buffers[0], c_void_p).value)
    if buffer is None or not buffer.data <= found.data[0] < buffer.data + buffer.size or any(found.buffers[1:]):
        raise _unknown(av.VideoFrame)


def _agrees(found: FrameHead, frame: "VideoFrame") -> bool:
    plane = frame.planes[0]
    stated = (plane.buffer_ptr, plane.line_size, frame.width, frame.height, frame.interlaced_frame)
    has_fields = bool(found.flags & _INTERLACED)
    return (found.data[0], found.line_size[0], found.width, found.height, has_fields) == stated


def context_address(context: "CodecContext") -> int:
    """Return the address of the ``AVCodecContext`` of a PyAV object."""
    address = _pointer_in(context, av.CodecContext)
    if _pointer_at(address, av.CodecContext) != ffmpeg().avcodec_get_class():
        raise _unknown(av.CodecContext)
    _proven.add(av.CodecContext)
    return address


def _pointer_in(held_by: object, kind: type) -> int:
    """Return the first C field of a PyAV object; 0 if the object is not of ``kind``, or too small to have a C field."""
    size_bytes: int = kind.__basicsize__
    if not isinstance(held_by, kind) or size_bytes < _FIRST_FIELD_OFFSET_BYTES + ctypes.sizeof(c_void_p):
        return 0
    return c_void_p.from_address(id(held_by) + _FIRST_FIELD_OFFSET_BYTES).value or 0


def _pointer_at(address: int, kind: object) -> int | None:
    """Return the pointer that is stored at ``address``; None if the memory is unreadable or the pointer is null."""
    if address and kind in _proven:
        return c_void_p.from_address(address).value
    found = _memory(address, ctypes.sizeof(c_void_p))
    return None if found is None else c_void_p.from_buffer_copy(found).value


def _structure_at(structure: type[StructureT], address: int | None) -> StructureT | None:
    return structure.from_address(address) if address else None


def _copy_of(structure: type[StructureT], address: int | None) -> StructureT | None:
    found = _memory(address or 0, ctypes.sizeof(structure))
    return None if found is None else structure.from_buffer_copy(found)


def _memory(address: int, size_bytes: int) -> bytes | None:
    with suppress(OSError, OverflowError):
        found = os.pread(_own_memory(os.getpid()), size_bytes, address)
        return found if address and len(found) == size_bytes else None
    return None


@cache
def _own_memory(process: int) -> int:
    """Open this process's memory as a file; an inherited file would show the memory of the process that opened it."""
    del process
    return os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)


def _unknown(kind: type) -> WorkError:
    message = f"PyAV {av.__version__} stores its {kind.__name__} in a way that codecfleet does not know"
    return WorkError(message, _ADVICE)
