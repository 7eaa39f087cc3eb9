"""Pictures that own their device memory, and copies of pictures to and from the host."""

from collections.abc import Callable, Iterable, MutableSequence

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ....errors import EngineUnfit
from ...closing import undone_by
from ...device.interface import PictureConversion, PictureMover
from ...surfaces.conversion import Conversion
from ...surfaces.device_frame import DevicePicture
from ...surfaces.device_tensor import THREADS_STREAM
from ...surfaces.formats import SurfaceFormat, surface_format
from ...surfaces.host_pictures import packed_surface, planar_picture
from ..cuda.context import Cuda, Stream
from ..cuda.device_memory import DevicePool
from ..cuda.memory import MemoryBudget, PinnedMemory
from ..nvdec.session import SessionKey, SurfaceReader
from .converting import SurfaceConverter


class PicturePool(DevicePool):
    """A device's buffers for pictures; a buffer is reused once the work that reads it has finished."""

    def picture(self, format_: SurfaceFormat, size: tuple[int, int], pix_fmt: str, stream: Stream) -> DevicePicture:
        """Return a picture of this (width, height) for ``stream`` to write; ``DeviceMemory`` if none is left.

        The calling thread must have entered the device's context.
        """
        buffer = self.acquire_for(stream, format_.size_bytes(*size))
        return DevicePicture(format_, buffer.address, *size, pix_fmt, buffer)


class SurfaceKeeper(SurfaceReader[DevicePicture]):
    """Copies a session's surfaces into memory of the pictures, since the next decoder call overwrites the surfaces."""

    def __init__(self, cuda: Cuda, memory: PicturePool, key: SessionKey) -> None:
        self._cuda = cuda
        self._memory = memory
        self._key = key
        self._size_bytes = key.surface.size_bytes(key.width, key.height)

    def begin(self, surface: int, stream: Stream) -> Callable[[], DevicePicture]:
        """Begin to copy a surface into a new picture, which is complete when the stream is done."""
        key, buffer = self._key, self._memory.acquire_for(stream, self._size_bytes)
        picture = DevicePicture(key.surface, buffer.address, key.width, key.height, key.pix_fmt, buffer)
        self._cuda.copy_on_device(buffer.address, surface, self._size_bytes, stream)
        return lambda: picture

    def close(self) -> None:
        """Do nothing: pictures own their memory."""


class CudaMover(PictureMover):
    """Moves pictures through page-locked memory in its own stream; ``close`` puts the mover into ``idle`` for reuse."""

    def __init__(
        self, cuda: Cuda, pinned: PinnedMemory, memory: PicturePool, idle: MutableSequence["CudaMover"] | None = None
    ) -> None:
        self._cuda = cuda
        self._pinned = pinned
        self._memory = memory
        self._idle = idle
        self._stream = cuda.stream()

    def to_device(self, picture: VideoFrame) -> DevicePicture:
        """Copy a software picture to the device."""
        pix_fmt, size = picture.format.name, (picture.width, picture.height)
        format_ = surface_format(pix_fmt)
        if format_ is None or not format_.holds(*size):
            message = f"the GPU has no surface format for a picture of {size[0]}x{size[1]} {pix_fmt}"
            raise EngineUnfit(message, "Use --encoder software, or frames on the host.")
        size_bytes = format_.size_bytes(*size)
        buffer = self._pinned.acquire(size_bytes)
        packed_surface(picture, format_, np.asarray(buffer))
        with self._cuda.entered, self._cuda.watch.calling("CUDA", "copying a picture to the device"):
            found = self._memory.picture(format_, size, pix_fmt, self._stream)
            self._cuda.copy_to_device(found.address, buffer.address, size_bytes, self._stream)
            self._stream.wait()
        found.pts = picture.pts
        return found

    def to_host(self, picture: DevicePicture) -> VideoFrame:
        """Return a host copy of a picture, with its timestamp."""
        format_, width, height = picture.format, picture.width, picture.height
        samples = self._fetched(picture.address, format_.size_bytes(width, height), "a picture")
        found = planar_picture(samples, format_, width, height, picture.pix_fmt)
        found.pts = picture.pts
        return found

    def fetch(self, address: int, size_bytes: int) -> NDArray[np.uint8]:
        """Copy device memory to the host."""
        return self._fetched(address, size_bytes, "an array").copy()

    def _fetched(self, address: int, size_bytes: int, what: str) -> NDArray[np.uint8]:
        buffer = self._pinned.acquire(size_bytes)
        with self._cuda.entered, self._cuda.watch.calling("CUDA", f"copying {what} to the host"):
            self._cuda.copy_to_host(buffer.address, address, size_bytes, self._stream)
            self._stream.wait()
        return np.asarray(buffer)

    def wait_for(self, streams: Iterable[int]) -> None:
        """Wait for all work in other CUDA streams."""
        for stream in streams:
            with self._cuda.entered, self._cuda.watch.calling("CUDA", "waiting for a producer's stream"):
                if stream == THREADS_STREAM:  # the default stream of the producer's thread, possibly not this thread
                    self._cuda.wait_for_all()
                else:
                    self._cuda.wait_for(stream)

    def close(self) -> None:
        """Put the mover into ``idle``, or close its stream; no work may be left in the stream."""
        if self._idle is None:
            self._stream.close()
        else:
            self._idle.append(self)


class CudaConversion(PictureConversion):
    """Converts pictures to FFmpeg's ``pix_fmt`` on its own stream; the scratch memory is taken from ``budget``."""

    def __init__(
        self,
        cuda: Cuda,
        memory: PicturePool,
        conversion: Conversion,
        converter: SurfaceConverter,
        pix_fmt: str,
        *,
        budget: MemoryBudget,
    ) -> None:
        self._cuda = cuda
        self._memory = memory
        self._budget = budget
        self._conversion = conversion
        self._pix_fmt = pix_fmt
        self._stream = cuda.stream()
        with undone_by(self._stream.close), cuda.entered:
            # Each result gets its own memory, so no default target is passed.
            self._converting = budget.spend(conversion.scratch_bytes, lambda: converter.prepare(conversion, 0))

    def convert(self, picture: DevicePicture) -> DevicePicture:
        """Return the converted picture with its timestamp; it is complete on return."""
        target, size = self._conversion.target, self._conversion.target_size
        with self._cuda.entered, self._cuda.watch.calling("CUDA", "converting a picture"):
            found = self._memory.picture(target, size, self._pix_fmt, self._stream)
            try:
                self._converting.begin(picture.address, self._stream, found.address)
            finally:
                self._stream.wait()  # even after a failure, because earlier passes may still write to the memory
        found.pts = picture.pts
        return found

    def close(self) -> None:
        """Free the converter's memory and its stream."""
        try:
            with self._cuda.entered:
                self._converting.close()
        finally:
            self._budget.give_back(self._conversion.scratch_bytes)
            self._stream.close()
