"""The consumer's end of a stream: CUDA acquires frames, and releases each frame before it acquires the next.

Source: CUDA for Tegra, section 4.1.3. A consumer only reads a frame, and only until it releases the frame.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from av.video.frame import VideoFrame

from ....errors import CodecfleetError, Unsupported, UsageError
from ...device.streams import StreamConsumer, StreamPicture
from ...surfaces.device_frame import DevicePicture
from .calls import EglCuda, MappedFrame
from .states import LIVE, EndEvent, EndState, StreamState, check_consumer
from .streams import EglStream, EndSession

_MICROSECONDS: Final = 1_000_000
_PAUSE_S: Final = 0.001
_SYSTEM_MEMORY: Final = 0


@dataclass(frozen=True, slots=True, eq=False)
class Acquired:
    """A frame that the consumer holds; ``number`` counts the presented frames from 1."""

    frame: MappedFrame
    number: int
    is_new: bool


class ConsumerSession(EndSession):
    """CUDA as the consumer of a stream. Used by one thread at a time.

    The consumer connects first, so make it before the producer. Put work that reads a frame into ``cuda_stream``:
    acquiring makes that stream wait for the producer's work, and releasing makes the producer wait for the stream, on
    the GPU. ``in_system_memory`` asks for frames in system memory (CU_EGL_RESOURCE_LOCATION_SYSMEM) instead of a GPU's
    memory. ``UsageError`` if ``stream`` has a consumer already, or is not an EGL stream; ``DeviceError`` if the driver
    refused.
    """

    def __init__(self, calls: EglCuda, stream: EglStream, *, in_system_memory: bool = False) -> None:
        check_consumer(stream.state)
        super().__init__(calls, stream)
        self._last = 0
        self._is_paired = False
        self._resource: Any = None
        if in_system_memory:
            self._connect("cuEGLStreamConsumerConnectWithFlags", _SYSTEM_MEMORY)
        else:
            self._connect("cuEGLStreamConsumerConnect")

    def acquire(self, timeout_s: float) -> Acquired | None:
        """Return the next frame; if none comes within ``timeout_s``, return the last frame if the stream keeps it.

        Returns None if there is no frame yet, or if the producer is gone (``state`` is then ENDED).

        Raises:
            UsageError: a frame is held.
            Unsupported: the frame's format is not known here; it was released.
            DeviceError: the driver failed.
        """
        if self._resource is not None:
            raise UsageError("a consumer holds one frame at a time", "Release it first.")
        if self.state not in LIVE or not self._has_producer(timeout_s):
            return None
        resource = self._calls.driver.CUgraphicsResource()
        arguments = (self._connection, resource, self.cuda_stream.handle, int(timeout_s * _MICROSECONDS))
        if not self._asked("cuEGLStreamConsumerAcquireFrame", *arguments, may_time_out=True):
            return None
        self._resource = resource
        self._move(EndEvent.HOLD)
        try:
            frame = self._calls.mapped(resource, self._stream.pix_fmt)
            number = self._stream.acquired
        except CodecfleetError:
            self.release()
            raise
        is_new, self._last = number != self._last, number
        return Acquired(frame, number, is_new)

    def release(self) -> None:
        """Give the frame back after the current work in ``cuda_stream``; do not read the frame any more.

        ``UsageError`` if no frame is held, ``DeviceError`` if the driver failed.
        """
        if self._resource is None:
            raise UsageError("no frame is held", "Acquire one first.")
        resource, self._resource = self._resource, None
        self._asked("cuEGLStreamConsumerReleaseFrame", self._connection, resource, self.cuda_stream.handle)
        self._move(EndEvent.FREE)

    def _disconnect(self) -> None:
        if self._resource is not None:
            self.release()
        self._calls.call("cuEGLStreamConsumerDisconnect", self._connection)

    def _has_producer(self, timeout_s: float) -> bool:
        """Wait for a producer to connect; before that, the driver is not asked for frames."""
        if self._is_paired:
            return True
        until_s = time.monotonic() + timeout_s
        while (state := self._stream.state) is StreamState.CONNECTING:
            if time.monotonic() >= until_s:
                return False
            time.sleep(_PAUSE_S)
        if state is StreamState.DISCONNECTED:
            self._move(EndEvent.PART)
        self._is_paired = True
        return self.state is not EndState.ENDED


class EglConsumer(StreamConsumer):
    """A stream's consumer for jobs: copies each wanted frame, and releases it at once."""

    def __init__(self, calls: EglCuda, stream: EglStream, place: str) -> None:
        self._calls = calls
        self._place = place
        to_host = place == "host" and calls.cuda.platform.integrated
        self._session = ConsumerSession(calls, stream, in_system_memory=to_host)

    @property
    def is_over(self) -> bool:
        """Whether the producer is gone."""
        return self._session.state is EndState.ENDED

    def take(self, timeout_s: float, is_wanted: Callable[[int, bool], bool]) -> StreamPicture | None:
        """Acquire, copy and release the next frame."""
        acquired = self._session.acquire(timeout_s)
        if acquired is None:
            return None
        try:
            wanted = is_wanted(acquired.number, acquired.is_new)
            pixels = self._copied(acquired.frame) if wanted else None
        finally:
            self._session.release()
        frame = acquired.frame
        return StreamPicture(
            number=acquired.number,
            is_new=acquired.is_new,
            pixels=pixels,
            pix_fmt=pixels.pix_fmt if isinstance(pixels, DevicePicture) else frame.layout.pix_fmt,
            width=frame.layout.width,
            height=frame.layout.height,
            colour=frame.colour,
            size_bytes=frame.layout.size_bytes,
        )

    def to_host(self, picture: DevicePicture) -> VideoFrame:
        """Copy a picture from the device."""
        return self._calls.to_host(picture)

    def close(self) -> None:
        """Disconnect from the stream."""
        self._session.close()

    def _copied(self, frame: MappedFrame) -> VideoFrame | DevicePicture:
        stream = self._session.cuda_stream
        picture = None if self._place == "host" else self._calls.copied_to_device(frame, stream)
        if picture is None and self._place == "device":
            raise Unsupported(f"frames of {frame.layout} have no device format", 'Use place="host" or place="auto".')
        return picture or self._calls.copied_to_host(frame, stream)
