"""From NVDEC's surfaces to the pictures that a software decoder gives: the same samples in the same places.

A surface interleaves chroma (Cb, Cr, Cb, Cr ...) and holds 10 or 12 bits in the upper end of 16; FFmpeg's planar
formats do neither. So chroma is taken apart and samples are shifted down: both are exact.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from .cuda import Cuda, Stream
from .fitness import SurfaceFormat

__all__ = ["PinnedRing", "dress", "planar_picture", "plane_samples"]

Samples = NDArray[np.uint8] | NDArray[np.uint16]


class PinnedRing:
    """Page-locked host buffers of one size, one for each picture that a single call to the decoder may give.

    Used by one thread at a time. ``close`` gives the memory back.
    """

    def __init__(self, cuda: Cuda, size_bytes: int) -> None:
        self._cuda = cuda
        self._size_bytes = size_bytes
        self._addresses: list[int] = []

    def fetch(self, surfaces: list[int], stream: Stream) -> list[NDArray[np.uint8]]:
        """Copy surfaces that begin at these device addresses, and wait until they are here.

        What is returned is overwritten by the next call.
        """
        while len(self._addresses) < len(surfaces):
            self._addresses.append(self._cuda.pin(self._size_bytes))
        used = self._addresses[: len(surfaces)]
        for address, surface in zip(used, surfaces, strict=True):
            self._cuda.copy_to_host(address, surface, self._size_bytes, stream)
        stream.wait()
        return [self._bytes_at(address) for address in used]

    def close(self) -> None:
        """Give the memory back."""
        while self._addresses:
            self._cuda.unpin(self._addresses.pop())

    def _bytes_at(self, address: int) -> NDArray[np.uint8]:
        buffer = (ctypes.c_uint8 * self._size_bytes).from_address(address)
        return np.frombuffer(memoryview(buffer).cast("B"), dtype=np.uint8)


def dress(picture: VideoFrame, stream: VideoStream) -> None:
    """Give a picture what a software decoder would say of its colours: filters look at it."""
    context = stream.codec_context
    picture.color_range, picture.colorspace = context.color_range, context.colorspace
    picture.color_primaries, picture.color_trc = context.color_primaries, context.color_trc


def planar_picture(
    surface: NDArray[np.uint8], format_: SurfaceFormat, width: int, height: int, pix_fmt: str
) -> VideoFrame:
    """Return a surface's picture as software gives it; the surface may be overwritten afterwards.

    Args:
        surface: the bytes of the surface, its rows following each other without padding.
        format_: how samples lie in it.
        width: of the picture.
        height: of the picture.
        pix_fmt: FFmpeg's planar format, which ``format_`` was made from.
    """
    frame = VideoFrame(width, height, pix_fmt)
    samples: Samples = surface if format_.sample_bytes == 1 else surface.view(np.uint16)
    shift = 8 * format_.sample_bytes - format_.bits
    for target, source in zip(plane_samples(frame, format_), _parts(samples, format_, width, height), strict=True):
        if shift:
            np.right_shift(source, shift, out=target)
        else:
            np.copyto(target, source)
    return frame


def _parts(samples: Samples, format_: SurfaceFormat, width: int, height: int) -> Iterator[Samples]:
    """Yield luma, Cb and Cr as views of a surface."""
    luma = width * height
    yield samples[:luma].reshape(height, width)
    columns, rows = width >> format_.halved_across, height >> format_.halved_down
    if format_.halved_across:
        pairs = samples[luma : luma + 2 * columns * rows].reshape(rows, columns, 2)
        yield pairs[:, :, 0]
        yield pairs[:, :, 1]
    else:
        yield samples[luma : 2 * luma].reshape(height, width)
        yield samples[2 * luma : 3 * luma].reshape(height, width)


def plane_samples(frame: VideoFrame, format_: SurfaceFormat) -> Iterator[NDArray[Any]]:
    """Yield a picture's planes as arrays that can be written, without their padding."""
    kind = np.dtype(np.uint8 if format_.sample_bytes == 1 else np.uint16)
    for plane in frame.planes:
        samples = np.frombuffer(memoryview(plane), dtype=kind)
        yield samples.reshape(plane.height, plane.line_size // format_.sample_bytes)[:, : plane.width]
