"""Asks the encoder libraries for their versions, and whether a parameter exists.

FFmpeg ignores unknown parameters. Therefore the library that will encode parses the name and the value into a scratch
parameter set.
"""

import ctypes
import re
from contextlib import suppress
from ctypes import c_char_p, c_void_p
from fractions import Fraction
from functools import cache
from typing import Final

import av
import av.error
import av.stream

from ...errors import Unsupported

_BAD_NAME = -1  # the error code for an unknown name, in both x264.h and x265.h
_X264_PARAMETERS_BYTES = 1 << 16  # x264_param_t takes less than 2 KiB; only the library looks inside
_VERSION_FUNCTIONS: Final = {"libsvtav1": "svt_av1_get_version", "libvpx-vp9": "vpx_codec_version_str"}


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(av.stream.__file__)


def check_parameter(implementation: str, name: str, value: str) -> None:
    """Check a parameter of x264 or x265; other encoders are not checked. ``Unsupported`` if the library refuses it."""
    parse = {"libx264": _parse_x264, "libx265": _parse_x265}.get(implementation)
    if parse is None:
        return
    try:
        verdict = parse(name.encode(), value.encode())
    except AttributeError:
        message = f"this build of FFmpeg hides the functions of {implementation} that check its parameters"
        raise Unsupported(message, "Use FFmpeg's own options, or install the PyAV wheel.") from None
    if verdict == _BAD_NAME:
        message = f"{implementation} has no parameter {name!r}"
        raise Unsupported(message, "Check the parameter's spelling in the encoder's documentation.")
    if verdict < 0:
        message = f"{implementation} does not take {value!r} for {name}"
        raise Unsupported(message, "Check the value in the encoder's documentation.")


def _parse_x264(name: bytes, value: bytes) -> int:
    library = _library()
    library.x264_param_default.argtypes = [c_void_p]
    library.x264_param_parse.argtypes = [c_void_p, c_char_p, c_char_p]
    parameters = ctypes.create_string_buffer(_X264_PARAMETERS_BYTES)
    library.x264_param_default(parameters)
    return int(library.x264_param_parse(parameters, name, value))


def _parse_x265(name: bytes, value: bytes) -> int:
    library = _library()
    library.x265_param_alloc.restype = c_void_p
    library.x265_param_default.argtypes = library.x265_param_free.argtypes = [c_void_p]
    library.x265_param_parse.argtypes = [c_void_p, c_char_p, c_char_p]
    parameters = library.x265_param_alloc()
    try:
        library.x265_param_default(parameters)
        return int(library.x265_param_parse(parameters, name, value))
    finally:
        library.x265_param_free(parameters)


@cache
def library_version(implementation: str) -> str:
    """Return one line with the versions of the encoder's library and of libavcodec."""
    found = ""
    with suppress(AttributeError, ValueError, av.error.FFmpegError):
        if implementation == "libx264":
            found = _x264_version()
        elif implementation == "libx265":
            found = (c_char_p.in_dll(_library(), "x265_version_str").value or b"").decode("ascii", "replace")
        elif implementation in _VERSION_FUNCTIONS:
            function = getattr(_library(), _VERSION_FUNCTIONS[implementation])
            function.restype, function.argtypes = c_char_p, []
            found = (function() or b"").decode("ascii", "replace")
    return f"{found} (libavcodec {'.'.join(map(str, av.library_versions['libavcodec']))})".lstrip()


def _x264_version() -> str:
    """Encode a small picture, and read the version that x264 writes into it: x264 has no version function."""
    context = av.CodecContext.create("libx264", "w")
    context.width = context.height = 16
    context.pix_fmt, context.time_base, context.framerate = "yuv420p", Fraction(1, 25), Fraction(25)
    context.options = {"preset": "ultrafast", "threads": "1"}
    frame = av.VideoFrame(16, 16, "yuv420p")
    frame.pts = 0
    signed = b"".join(bytes(packet) for packet in [*context.encode(frame), *context.encode(None)])
    found = re.search(rb"x264 - (core \d+(?: r\d+)?(?: [0-9a-f]{7,})?)", signed)
    return found.group(1).decode() if found else ""
