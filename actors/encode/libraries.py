"""What only the encoder libraries themselves know: their versions, and whether a parameter of theirs exists.

FFmpeg passes ``x264-params`` and ``x265-params`` on and ignores what the library does not know, so a misspelt
parameter would silently do nothing. Both libraries have a public parser that says whether it knows a name and takes a
value; it is called here, on a parameter set that is thrown away. A symbol is looked up through the PyAV extension, so
it is the library that will encode.
"""

import ctypes
import re
from ctypes import c_char_p, c_void_p
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import av
import av.error
import av.stream

from ...errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["check_parameter", "library_version"]

_BAD_NAME = -1  # the same in x264.h and x265.h
_X264_PARAMETERS_BYTES = 1 << 16  # x264_param_t takes less than 2 KiB; nothing but the library looks inside


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(av.stream.__file__)


def check_parameter(implementation: str, name: str, value: str) -> None:
    """Refuse a parameter that x264 or x265 does not know, or a value it does not take; others pass unseen.

    Raises:
        Unsupported: the library does not know ``name``, or does not take ``value`` for it.
    """
    parse = {"libx264": _parse_x264, "libx265": _parse_x265}.get(implementation)
    if parse is None:
        return
    try:
        verdict = parse(name.encode(), value.encode())
    except AttributeError:
        message = f"this build of FFmpeg keeps {implementation} out of reach, so its parameters cannot be checked"
        raise Unsupported(message, "Use options that FFmpeg itself knows, or the PyAV wheel.") from None
    if verdict == _BAD_NAME:
        message = f"{implementation} has no parameter {name!r}"
        raise Unsupported(message, "Check its spelling in the encoder's own documentation.")
    if verdict < 0:
        message = f"{implementation} does not take {value!r} for {name}"
        raise Unsupported(message, "Check the value in the encoder's own documentation.")


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
    """Return the encoder library's version and that of the libavcodec around it, on one line.

    Where the library does not tell, libavcodec's version alone stands for both: a wheel fixes the pair.
    """
    around = "libavcodec " + ".".join(map(str, av.library_versions["libavcodec"]))
    own: Callable[[], str] | None = {
        "libx264": _x264_version,
        "libx265": lambda: _text_symbol("x265_version_str"),
        "libsvtav1": lambda: _text_function("svt_av1_get_version"),
        "libvpx-vp9": lambda: _text_function("vpx_codec_version_str"),
    }.get(implementation)
    try:
        found = own() if own is not None else ""
    except (AttributeError, ValueError, av.error.FFmpegError):
        found = ""
    return f"{found} ({around})" if found else f"({around})"


def _text_function(name: str) -> str:
    function = getattr(_library(), name)
    function.restype, function.argtypes = c_char_p, []
    return (function() or b"").decode("ascii", "replace")


def _text_symbol(name: str) -> str:
    return (c_char_p.in_dll(_library(), name).value or b"").decode("ascii", "replace")


def _x264_version() -> str:
    """Encode one small picture and read the version that x264 signs it with: it has no function that tells."""
    context = av.CodecContext.create("libx264", "w")
    context.width = context.height = 16
    context.pix_fmt, context.time_base, context.framerate = "yuv420p", Fraction(1, 25), Fraction(25)
    context.options = {"preset": "ultrafast", "threads": "1"}
    frame = av.VideoFrame(16, 16, "yuv420p")
    frame.pts = 0
    signed = b"".join(bytes(packet) for packet in [*context.encode(frame), *context.encode(None)])
    found = re.search(rb"x264 - (core \d+(?: r\d+)?(?: [0-9a-f]{7,})?)", signed)
    return found.group(1).decode() if found else ""
