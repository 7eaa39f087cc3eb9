"""Pictures that stay on the device: surfaces copied into memory of their own, and their ways to the host and back."""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ....errors import EngineUnfit
from ...device.interface import PictureConversion, PictureMover
from ...surfaces.conversion import Conversion
from ...surfaces.device_frame import DeviceFrame, DevicePicture, device_planes
from ...surfaces.device_tensor import THREADS_STREAM
from ...surfaces.formats import SurfaceFormat, surface_format
from ...surfaces.host_pictures import packed_surface, planar_picture
from ..cuda.buffer_pool import BufferPool
from ..cuda.context import Cuda, Stream
from ..cuda.memory_budget import MemoryBudget
from ..cuda.pinned_memory import PinnedMemory
from ..cuda.surface_reader import SurfaceReader
from ..nvdec.session import SessionKey
from .surface_converter import SurfaceConverter

IDLE_BYTES: Final = 2 << 30
"""How much idle memory is kept: allocating waits for everything that the device is doing."""


class PicturePool:
    """A device's buffers for pictures. Safe from any thread.

    A buffer returns with the last reference to a picture in it, and is reused at once: keep the picture until the
    device has read it.

    Args:
        cuda: the device.
        idle_bytes: how much idle memory is kept.
        budget: the device's memory; None has no bounds.
    """

    def __init__(self, cuda: Cuda, idle_bytes: int = IDLE_BYTES, budget: MemoryBudget | None = None) -> None:
        self._memory = BufferPool(cuda.allocate, cuda.free, idle_bytes, budget or MemoryBudget(None))

    def picture(self, format_: SurfaceFormat, size: tuple[int, int], pix_fmt: str) -> DevicePicture:
        """Return a picture of that format and (width, height); its samples are uninitialised.

        Raises:
            DeviceMemory: the device has no more.
        """
        width, height = size
        size_bytes = format_.size_bytes(width, height)
        buffer = self._memory.acquire(size_bytes)
        planes = device_planes(format_, buffer.address, width, height)
        frame = DeviceFrame(
            layout=format_.layout, bits=format_.bits, width=width, height=height, planes=planes, owner=buffer
        )
        return DevicePicture(frame, format_, pix_fmt)


class SurfaceKeeper(SurfaceReader[DevicePicture]):
    """Copies one session's surfaces into memory of their own: a decoder's are overwritten by its next call.

    Args:
        cuda: the device.
        memory: the device's buffers.
        key: what the session decodes.
    """

    def __init__(self, cuda: Cuda, memory: PicturePool, key: SessionKey) -> None:
        self._cuda = cuda
        self._memory = memory
        self._key = key
        self._size_bytes = key.surface.size_bytes(key.width, key.height)

    def begin(self, surface: int, stream: Stream) -> Callable[[], DevicePicture]:
        """Begin to copy a surface; its picture is there when the stream is done.

        Raises:
            DeviceError: the driver refuses the copy, or there is no memory for it.
        """
        key = self._key
        picture = self._memory.picture(key.surface, (key.width, key.height), key.pix_fmt)
        self._cuda.copy_on_device(picture.address, surface, self._size_bytes, stream)
        return lambda: picture

    def close(self) -> None:
        """Do nothing: pictures own their memory."""


class CudaMover(PictureMover):
    """Takes pictures from the host to the device and back, exactly. Used by one thread at a time.

    Args:
        cuda: the device.
        pinned: its page-locked memory.
        memory: its buffers for pictures.
    """

    def __init__(self, cuda: Cuda, pinned: PinnedMemory, memory: PicturePool) -> None:
        self._cuda = cuda
        self._pinned = pinned
        self._memory = memory
        self._stream = cuda.stream()

    def to_device(self, picture: VideoFrame) -> DevicePicture:
        """Return a software picture as a surface holds it.

        Raises:
            EngineUnfit: no surface holds it exactly.
            DeviceError: the copy failed, or there is no memory for it.
        """
        pix_fmt, size = picture.format.name, (picture.width, picture.height)
        format_ = surface_format(pix_fmt)
        if format_ is None or not format_.holds(*size):
            message = f"no surface holds a picture of {size[0]}x{size[1]} {pix_fmt}"
            raise EngineUnfit(message, "Use --encoder software, or frames on the host.")
        size_bytes = format_.size_bytes(picture.width, picture.height)
        self._cuda.enter()
        buffer = self._pinned.acquire(size_bytes)
        packed_surface(picture, format_, np.asarray(buffer))
        found = self._memory.picture(format_, size, pix_fmt)
        found.pts = picture.pts
        with self._cuda.watch.calling("CUDA", "copying a picture to the device"):
            self._cuda.copy_to_device(found.address, buffer.address, size_bytes, self._stream)
            self._stream.wait()
        return found

    def to_host(self, picture: DevicePicture) -> VideoFrame:
        """Return a picture as software would have decoded it.

        Raises:
            DeviceError: the copy failed.
        """
        frame, format_ = picture.frame, picture.format
        size_bytes = format_.size_bytes(frame.width, frame.height)
        self._cuda.enter()
        buffer = self._pinned.acquire(size_bytes)
        with self._cuda.watch.calling("CUDA", "copying a picture to the host"):
            self._cuda.copy_to_host(buffer.address, picture.address, size_bytes, self._stream)
            self._stream.wait()
        found = planar_picture(np.asarray(buffer), format_, frame.width, frame.height, picture.pix_fmt)
        found.pts = picture.pts
        return found

    def fetch(self, address: int, size_bytes: int) -> NDArray[np.uint8]:
        """Return a copy of what lies on the device.

        Raises:
            DeviceError: the copy failed.
        """
        self._cuda.enter()
        buffer = self._pinned.acquire(size_bytes)
        with self._cuda.watch.calling("CUDA", "copying an array to the host"):
            self._cuda.copy_to_host(buffer.address, address, size_bytes, self._stream)
            self._stream.wait()
        return np.array(buffer)

    def wait_for(self, streams: Iterable[int]) -> None:
        """Wait for all work in other CUDA streams, given by their handles.

        Raises:
            DeviceError: what was put there failed, or there is no such stream.
        """
        self._cuda.enter()
        for stream in streams:
            with self._cuda.watch.calling("CUDA", "waiting for a producer's stream"):
                if stream == THREADS_STREAM:  # of the producer's thread, which need not be this one
                    self._cuda.wait_for_all()
                else:
                    self._cuda.wait_for(stream)

    def close(self) -> None:
        """Close its stream."""
        self._stream.close()


class CudaConversion(PictureConversion):
    """Makes pictures of one format and size into those of another. Used by one thread at a time.

    Args:
        cuda: the device.
        memory: its buffers for pictures.
        conversion: what to do.
        converter: who does it.
        pix_fmt: FFmpeg's name of the format that comes out.
        budget: what the memory that converting takes beside them is counted in.

    Raises:
        DeviceError: the device has no memory for it, or refused.
    """

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
        try:
            # Each result has memory of its own, so there is no default target.
            self._converting = budget.spend(conversion.scratch_bytes, lambda: converter.prepare(conversion, 0))
        except BaseException:
            self._stream.close()
            raise

    def convert(self, picture: DevicePicture) -> DevicePicture:
        """Return what a picture becomes; it is there when this returns.

        Raises:
            DeviceError: the device refused, or has no memory for it.
        """
        self._cuda.enter()
        found = self._memory.picture(self._conversion.target, self._conversion.target_size, self._pix_fmt)
        with self._cuda.watch.calling("CUDA", "converting a picture"):
            try:
                self._converting.begin(picture.address, self._stream, found.address)
            finally:
                self._stream.wait()  # after a failure too: earlier passes write to memory that is returned
        found.pts = picture.pts
        return found

    def close(self) -> None:
        """Give its memory and its stream back."""
        self._cuda.enter()
        try:
            self._converting.close()
        finally:
            self._budget.give_back(self._conversion.scratch_bytes)
            self._stream.close()
