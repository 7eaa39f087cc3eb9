"""Reads the PNG file of an overlay picture from memory; other formats are refused."""

import struct
from collections.abc import Iterator
from typing import Any, Final

import av.error
import numpy as np
from av.codec import CodecContext
from av.packet import Packet
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ...errors import InputUnreadable
from .steps import Size

AS_PNG: Final = "Save it as a PNG with 8 bits a channel; transparency is kept."
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_HEADER_CHUNK: Final = slice(12, 16)
_HEADER_BYTES: Final = 24
_ALIGNED_SAMPLES: Final = 64
"""FFmpeg rounds the samples of a row up to a multiple of this."""


def png_size(content: bytes, name: str) -> Size:
    """Return (width, height) from the header; ``InputUnreadable`` if it is not a PNG. ``name`` is for messages."""
    if not content.startswith(_SIGNATURE) or content[_HEADER_CHUNK] != b"IHDR" or len(content) < _HEADER_BYTES:
        raise InputUnreadable(f"the overlay picture {name} is not a PNG file", AS_PNG)
    width, height = struct.unpack(">II", content[_HEADER_CHUNK.stop : _HEADER_BYTES])
    return width, height


def png_samples(content: bytes, name: str) -> NDArray[np.uint8]:
    """Return rows of 8-bit R, G, B and alpha; ``InputUnreadable`` if damaged, wrong in its size, or of more bits."""
    size = png_size(content, name)
    try:
        frame = next(_decoded(content, size))
    except (av.error.FFmpegError, StopIteration, ValueError) as error:
        message = f"the overlay picture {name} cannot be decoded: {getattr(error, 'strerror', None) or error}"
        raise InputUnreadable(message, AS_PNG) from error
    if (frame.width, frame.height) != size:
        message = f"the overlay picture {name} states {size[0]}x{size[1]}, but is {frame.width}x{frame.height}"
        raise InputUnreadable(message, AS_PNG)
    if (samples := _rgba(frame)) is None:
        message = f"the overlay picture {name} has an unsupported format: {frame.format.name}"
        raise InputUnreadable(message, AS_PNG)
    return samples


def _decoded(content: bytes, size: Size) -> Iterator[VideoFrame]:
    """Yield the one picture; one larger than ``size`` is not allocated."""
    decoder = CodecContext.create("png", "r")
    decoder.thread_count = 1
    # Without err_detect a chunk with a wrong checksum would be used.
    decoder.options = {"max_pixels": str((size[0] + _ALIGNED_SAMPLES) * size[1]), "err_detect": "crccheck+explode"}
    yield from decoder.decode(Packet(content))
    yield from decoder.decode(None)


def _rgba(frame: VideoFrame) -> NDArray[np.uint8] | None:
    """Return a picture's R, G, B and alpha, unconverted; None if it has more than 8 bits."""
    kind, plane = frame.format.name, frame.planes[0]
    rows: NDArray[Any] = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)[: frame.height]
    if kind == "pal8":
        palette = np.frombuffer(memoryview(frame.planes[1]), "<u4")[:256]
        colours = np.stack([palette >> shift & 255 for shift in (16, 8, 0, 24)], axis=1).astype(np.uint8)
        return np.asarray(colours[rows[:, : frame.width]])
    channels = {"rgba": (0, 1, 2, 3), "rgb24": (0, 1, 2), "gray": (0, 0, 0), "ya8": (0, 0, 0, 1)}.get(kind)
    if channels is None:
        return None
    samples = rows[:, : frame.width * (max(channels) + 1)].reshape(frame.height, frame.width, -1)[..., channels]
    if kind in ("rgb24", "gray"):  # no alpha: opaque
        opaque = np.full((*samples.shape[:2], 1), 255, np.uint8)
        samples = np.concatenate([samples, opaque], axis=2)
    return np.asarray(samples)
