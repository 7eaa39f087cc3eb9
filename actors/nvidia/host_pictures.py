"""From NVDEC's surfaces to the pictures that a software decoder gives: the same samples in the same places.

A surface interleaves chroma (Cb, Cr, Cb, Cr ...) and holds 10 or 12 bits in the upper end of 16; FFmpeg's planar
formats do neither. So chroma is taken apart and samples are shifted down: both are exact. The device does it where its
kernel can be compiled, and then a picture *is* the page-locked memory it was copied into; else the host does it.

The kernel could write into the host's memory itself, but an H200's gets no more than 12 GB/s across PCIe that way.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.plane import VideoPlane
from numpy.typing import NDArray

from .cuda import Cuda, Stream
from .nvdec_support import SurfaceFormat
from .pinned_memory import PinnedBuffer, PinnedMemory
from .surface_reader import SurfaceReader
from .unpacking import PlanarPlane, Unpacker, planar_layout

__all__ = ["PictureFetcher", "apply_colour", "packed_surface", "planar_picture", "plane_rows", "plane_samples"]

Samples = NDArray[np.uint8] | NDArray[np.uint16]


class PictureFetcher(SurfaceReader[VideoFrame]):
    """Brings one session's surfaces to the host. Used by one thread at a time; ``close`` gives its memory back.

    Args:
        cuda: the device.
        memory: page-locked memory, shared by all sessions of the device.
        unpacker: the device's kernel; None lets the host take surfaces apart.
        format_: how samples lie in a surface.
        size: (width, height) of the pictures.
        pix_fmt: FFmpeg's planar format, which ``format_`` was made from.
    """

    def __init__(
        self,
        cuda: Cuda,
        memory: PinnedMemory,
        unpacker: Unpacker | None,
        *,
        format_: SurfaceFormat,
        size: tuple[int, int],
        pix_fmt: str,
    ) -> None:
        self._cuda = cuda
        self._memory = memory
        self._format = format_
        self._size = size
        self._pix_fmt = pix_fmt
        self._layout = planar_layout(format_, *size)
        self._dtype = np.dtype(np.uint8 if format_.sample_bytes == 1 else np.uint16)
        self._copied_bytes = format_.size_bytes(*size) if unpacker is None else self._layout.size_bytes
        self._scratch = 0 if unpacker is None else cuda.allocate(self._copied_bytes)
        self._unpacking = None if unpacker is None else unpacker.prepare(self._scratch, format_, self._layout)

    def begin(self, surface: int, stream: Stream) -> Callable[[], VideoFrame]:
        """Begin to bring a surface to the host; its picture is there when the stream is done, and nobody else's.

        Raises:
            DeviceError: the driver refuses, or no more memory may be locked.
        """
        buffer = self._memory.lend(self._copied_bytes)
        if self._unpacking is not None:
            # One scratch is enough: what a stream is given happens in order.
            self._unpacking.begin(surface, stream)
            surface = self._scratch
        self._cuda.copy_to_host(buffer.address, surface, self._copied_bytes, stream)
        return partial(self._picture, buffer)

    def apply_colour(self, picture: VideoFrame, context: VideoCodecContext) -> None:
        """Give a picture what a software decoder would say of its colours: filters look at it."""
        apply_colour(picture, context)

    def close(self) -> None:
        """Give the device's memory back; pictures that are still in use keep theirs. Idempotent."""
        if self._scratch:
            self._cuda.free(self._scratch)
            self._scratch = 0

    def _picture(self, buffer: PinnedBuffer) -> VideoFrame:
        samples = np.asarray(buffer)
        if self._unpacking is None:
            return planar_picture(samples, self._format, *self._size, self._pix_fmt)
        planes = [
            np.ndarray((plane.rows, plane.columns), self._dtype, samples, plane.offset_bytes, self._strides(plane))
            for plane in self._layout.planes
        ]
        return VideoFrame.from_dlpack(planes, format=self._pix_fmt)

    def _strides(self, plane: PlanarPlane) -> tuple[int, int]:
        return plane.pitch_bytes, self._format.sample_bytes


def apply_colour(picture: VideoFrame, context: VideoCodecContext) -> None:
    """Give a picture what a software decoder would say of its colours: filters look at it."""
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


def packed_surface(picture: VideoFrame, format_: SurfaceFormat, surface: NDArray[np.uint8]) -> None:
    """Write a picture into a surface's bytes as NVDEC would have: the inverse of ``planar_picture``."""
    samples: Samples = surface if format_.sample_bytes == 1 else surface.view(np.uint16)
    shift = 8 * format_.sample_bytes - format_.bits
    parts = _parts(samples, format_, picture.width, picture.height)
    for source, target in zip(plane_samples(picture, format_), parts, strict=True):
        np.left_shift(source, shift, out=target)


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
        yield plane_rows(plane, kind)[:, : plane.width]


def plane_rows(plane: VideoPlane, kind: np.dtype[Any]) -> NDArray[Any]:
    """Return a plane's rows, the uppermost first, with the padding behind them.

    A plane whose ``line_size`` is negative lies upside down in memory, as FFmpeg's ``vflip`` leaves it.
    """
    samples = np.frombuffer(memoryview(plane), dtype=kind)
    rows = samples[: plane.height * abs(plane.line_size) // kind.itemsize].reshape(plane.height, -1)
    return rows if plane.line_size > 0 else rows[::-1]
