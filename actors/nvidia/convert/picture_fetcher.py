"""Bringing NVDEC's surfaces to the host as the pictures that a software decoder gives.

Where its kernel can be compiled, the device takes surfaces apart, and then a picture *is* the page-locked memory it was
copied into; else the host does it.

The kernel could write into the host's memory itself, but an H200's gets no more than 12 GB/s across PCIe that way.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame

from ...surfaces.formats import SurfaceFormat
from ...surfaces.host_pictures import apply_colour, planar_picture
from ..cuda.context import Cuda, Stream
from ..cuda.pinned_memory import PinnedBuffer, PinnedMemory
from ..cuda.surface_reader import SurfaceReader
from .unpacking import Unpacker, planar_layout


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
        """Begin to bring a surface to the host; its picture is there when the stream is done.

        Raises:
            DeviceError: the driver refuses, or no more memory may be locked.
        """
        buffer = self._memory.acquire(self._copied_bytes)
        if self._unpacking is not None:
            # One scratch is enough: what a stream is given happens in order.
            self._unpacking.begin(surface, stream)
            surface = self._scratch
        self._cuda.copy_to_host(buffer.address, surface, self._copied_bytes, stream)
        return partial(self._picture, buffer)

    def apply_colour(self, picture: VideoFrame, context: VideoCodecContext) -> None:
        """Give a picture the colour description of a software decoder's, which filters read."""
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
        step = self._format.sample_bytes
        planes = [
            np.ndarray((each.rows, each.columns), self._dtype, samples, each.offset_bytes, (each.pitch_bytes, step))
            for each in self._layout.planes
        ]
        return VideoFrame.from_dlpack(planes, format=self._pix_fmt)
