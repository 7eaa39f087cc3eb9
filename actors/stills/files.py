"""Encodes RGB samples as picture files with FFmpeg; the same FFmpeg gives the same bytes on every machine."""

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import av.error
import numpy as np
from av.codec.context import CodecContext
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ...errors import EncoderFailed
from ..media.values import Colour, VideoFormat
from ..segment.filtering import FULL_RANGE, FilterChain, FilterSettings
from .look import StillFormat

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext

RGB: Final = "rgb24"
ANY_RATE: Final = Fraction(25)
_BT601: Final = 6
_LIMITED_RANGE: Final = 1
_LAMBDA: Final = 118
"""FFmpeg's FF_QP2LAMBDA: a quantizer scale of 1 in the units of FFmpeg's rate control."""
_COARSEST, _FINEST = 31, 2
"""The quantizer scales of FFmpeg's JPEG encoder for the qualities 1 and 100."""
_QUALITY_MOST: Final = 100


class _Encoder(NamedTuple):
    name: str
    pix_fmt: str
    range: int


_ENCODERS: Final = {
    # JFIF and WebP both imply BT.601: JFIF at full range, WebP at limited range.
    StillFormat.JPG: _Encoder("mjpeg", "yuvj420p", FULL_RANGE),
    StillFormat.PNG: _Encoder("png", RGB, FULL_RANGE),
    StillFormat.WEBP: _Encoder("libwebp", "yuv420p", _LIMITED_RANGE),
}
SIDE_MAX: Final = {StillFormat.JPG: 65_500, StillFormat.PNG: 65_535, StillFormat.WEBP: 16_383}
"""The longest side that each encoder accepts."""


def encode_still(rgb: NDArray[np.uint8], format_: StillFormat, quality: int) -> bytes:
    """Return the picture file of (rows, columns, 3) samples; ``quality`` is 1 to 100, for JPEG and WebP.

    ``EncoderFailed`` if FFmpeg cannot encode the samples.
    """
    encoder = _ENCODERS[format_]
    height, width, _ = rgb.shape
    frame = VideoFrame.from_ndarray(np.ascontiguousarray(rgb), format=RGB)
    output = VideoFormat(width, height, encoder.pix_fmt, ANY_RATE, colour=Colour(encoder.range, matrix=_BT601))
    try:
        context = cast("VideoCodecContext", CodecContext.create(encoder.name, "w"))
        context.width, context.height, context.pix_fmt = width, height, encoder.pix_fmt
        context.time_base, context.thread_count = 1 / ANY_RATE, 1
        context.sample_aspect_ratio = Fraction(1)
        context.options = dict(_options(format_, quality))
        ((_, picture),) = FilterChain(FilterSettings(output), 1 / ANY_RATE).push(0, frame)
        return b"".join(bytes(packet) for packet in (*context.encode(picture), *context.encode(None)))
    except (av.error.FFmpegError, ValueError) as error:
        message = f"{encoder.name} cannot encode a picture of {width}x{height}: {error}"
        raise EncoderFailed(message, "Try another --format or a smaller --width.") from error


def quantizer_scale(quality: int) -> int:
    """Return JPEG's quantizer scale for a quality: 2 for 100, 31 for 1, linear in between."""
    return _COARSEST - round(Fraction((_COARSEST - _FINEST) * (quality - 1), _QUALITY_MOST - 1))


def _options(format_: StillFormat, quality: int) -> Mapping[str, str]:
    if format_ is StillFormat.WEBP:
        return {"quality": str(quality)}
    if format_ is StillFormat.PNG:
        return {}
    # Use the plain transform: the vectorised transforms round differently.
    scale = quantizer_scale(quality) * _LAMBDA
    return {"flags": "+qscale+bitexact", "global_quality": str(scale), "dct": "int"}
