"""The producer's end of a stream: CUDA presents frames, and each frame returns once the consumer has released it.

Source: CUDA for Tegra, section 4.1.2. A frame's memory belongs to the stream from the call that presents the frame
until the frame returns.
"""

import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ....errors import CodecfleetError, DeadlineMissed, DeviceError, Unsupported, UsageError
from ...device.streams import StreamProducer
from ...surfaces.device_frame import DevicePicture
from ...surfaces.formats import surface_format
from ..convert.device_pictures import CudaMover
from .calls import EglCuda, EglPlane, Fill
from .layout import EglLayout, layout_of, surface_name
from .states import LIVE, PRESENTED_MOST, EndEvent, EndState, StreamState, has_room, may_connect_producer
from .streams import EglStream, EndSession

_PAUSE_S: Final = 0.0001
"""The pause between two checks of a full FIFO; the driver itself waits for a returned frame."""
_MAILBOX_FRAMES: Final = 3
"""The frames of a mailbox: one that the consumer holds, one that waits for the consumer, and one that is being filled.
"""
_SIDE_MOST: Final = 1 << 15


class FrameMemory(Enum):
    """The memory of a producer's frames: pitched memory can reach a consumer on another GPU; CUDA arrays cannot."""

    PITCH = "pitch"
    ARRAY = "array"


class ProducerSession(EndSession):
    """CUDA as the producer of a stream; it owns the memory of its frames. Used by one thread at a time.

    The producer waits until the consumer has connected: a producer that connects first spoils the stream. All frames
    have the size stated here: the driver accepts other sizes without an error, but the consumer then sees undefined
    pictures.

    Raises:
        UsageError: the stream has a producer, or the size is impossible.
        Unsupported: arrays cannot have that format.
        DeadlineMissed: no consumer connected within the stream's ``wait_s``.
        DeviceError: the driver refused.
    """

    def __init__(
        self, calls: EglCuda, stream: EglStream, layout: EglLayout, memory: FrameMemory = FrameMemory.PITCH
    ) -> None:
        if max(layout.width, layout.height) > _SIDE_MOST:
            raise UsageError(f"a frame of {layout.width}x{layout.height} is too large", "Scale it first.")
        if memory is FrameMemory.ARRAY and layout.channels not in (1, 2, 4):
            raise Unsupported(f"CUDA has no arrays of {layout.pix_fmt}", 'Use memory="pitch".')
        super().__init__(calls, stream)
        self.layout = layout
        self._memory = memory
        self._fifo_frames = stream.fifo_frames
        self._keeps_last = stream.keeps_last
        self._frames_most = min(PRESENTED_MOST, self._fifo_frames + 1 if self._fifo_frames else _MAILBOX_FRAMES)
        self._frames: dict[int, tuple[EglPlane, ...]] = {}
        self._free: list[int] = []
        self.out = 0
        """How many frames were presented and have not returned yet."""
        self._presented = 0
        self._await(lambda: may_connect_producer(stream.state), "no consumer connected to the stream")
        self._connect("cuEGLStreamProducerConnect", layout.width, layout.height)

    def present(self, fill: Fill) -> bool:
        """Fill a free frame and present it; return False if the consumer is gone.

        Waits until a frame is free and the FIFO has room.

        Raises:
            UsageError: the session is over.
            DeadlineMissed: the consumer took nothing within the stream's ``wait_s``.
            DeviceError: the driver failed.
        """
        if self.state not in (*LIVE, EndState.ENDED):
            raise UsageError(
                f"the producer is {self.state.value}", "Make a new stream, and its consumer before its producer."
            )
        self._await(self._may_present, "the stream's consumer took no frame")
        if self.state is EndState.ENDED:
            return False
        try:
            number = self._free.pop() if self._free else self._allocated()
            places = self._frames[number]
            fill(places, self.cuda_stream)
        except DeviceError:
            self._move(EndEvent.FAIL)
            raise
        frame = self._calls.frame_of(self.layout, places)
        if not self._asked("cuEGLStreamProducerPresentFrame", self._connection, frame, self.cuda_stream.handle):
            return False
        self.out += 1
        self._presented += 1
        self._move(EndEvent.HOLD)
        return True

    def drain(self) -> bool:
        """Wait until the consumer has taken every frame; return whether it has.

        Disconnecting would lose frames that still wait.

        ``DeadlineMissed`` if the consumer took no frame during the stream's ``wait_s``, ``DeviceError`` if the driver
        failed.
        """
        while self.state in LIVE and self.out > self._keeps_last:
            self._await(self._has_returned, f"the stream's consumer did not take {self.out} frames")
        if self.state in LIVE and self.out:
            self._await(self._is_seen, "the stream's consumer did not take the last frame")
        return self.state in LIVE

    def _disconnect(self) -> None:
        self._calls.call("cuEGLStreamProducerDisconnect", self._connection)
        self._calls.finish(self.cuda_stream)
        while self._frames:
            self._calls.free(self._frames.popitem()[1])

    def _may_present(self) -> bool:
        """Return whether a frame is free and the FIFO has room for it, or the consumer is gone."""
        if not self._free and len(self._frames) == self._frames_most:
            self._has_returned()
        if self.state is EndState.ENDED:
            return True
        # EGL is asked only if the FIFO may be full: frames that have not returned may still wait in it.
        is_close = 0 < self._fifo_frames <= self.out
        unseen = self._presented - self._stream.acquired if is_close else 0
        is_free = bool(self._free) or len(self._frames) < self._frames_most
        has_room_now = is_free and has_room(self.out, unseen, self._fifo_frames)
        return has_room_now or self._is_parted()

    def _is_seen(self) -> bool:
        return self._is_parted() or self._stream.state is not StreamState.NEW_FRAME

    def _is_parted(self) -> bool:
        if self.state in LIVE and self._stream.state is StreamState.DISCONNECTED:
            self._move(EndEvent.PART)
        return self.state is EndState.ENDED

    def _has_returned(self) -> bool:
        """Take back a returned frame, if there is one; the driver waits a millisecond for it (measured)."""
        if not self.out:
            return False
        frame = self._calls.driver.CUeglFrame()
        arguments = (self._connection, frame, self.cuda_stream.handle)
        if not self._asked("cuEGLStreamProducerReturnFrame", *arguments, may_time_out=True):
            return self.state is EndState.ENDED
        is_array = self._memory is FrameMemory.ARRAY
        self._free.append(int((frame.frame.pArray if is_array else frame.frame.pPitch)[0]))
        self.out -= 1
        if not self.out:
            self._move(EndEvent.FREE)
        return True

    def _allocated(self) -> int:
        """Allocate a frame, and return its key: the address or array of its first plane."""
        is_array = self._memory is FrameMemory.ARRAY
        places = (self._calls.allocate_arrays if is_array else self._calls.allocate)(self.layout)
        number = int(places[0].address)
        self._frames[number] = places
        return number

    def _await(self, is_so: Callable[[], bool], otherwise: str) -> None:
        """Wait until a condition holds; a failure before the producer has connected closes the session."""
        until_s = time.monotonic() + self._stream.wait_s
        try:
            while not is_so():
                if time.monotonic() >= until_s:
                    message = f"{otherwise} within {self._stream.wait_s:g} s"
                    raise DeadlineMissed(message, "Check the consumer, or give the stream a longer wait_s.")
                time.sleep(_PAUSE_S)
        except CodecfleetError:
            if self.state is EndState.UNCONNECTED:
                self.close()
            raise


class EglProducer(StreamProducer):
    """A stream's producer for jobs: connects with its first picture."""

    def __init__(self, calls: EglCuda, stream: EglStream, memory: str) -> None:
        if memory not in [each.value for each in FrameMemory]:
            raise UsageError(f"there is no kind of memory {memory!r}", 'Use memory="pitch" or memory="array".')
        self._calls = calls
        self._stream = stream
        self._memory = FrameMemory(memory)
        self._mover: CudaMover | None = None
        self._session: ProducerSession | None = None

    def present(self, picture: VideoFrame | DevicePicture, streams: Iterable[int]) -> bool:
        """Copy a picture and present the copy. All pictures must have the layout of the first."""
        self._open_mover().wait_for(streams)
        if isinstance(picture, VideoFrame) and surface_format(picture.format.name) is not None:
            picture = self._open_mover().to_device(picture)
        layout = picture_layout(picture)
        if self._session is None:
            self._session = ProducerSession(self._calls, self._stream, layout, self._memory)
        if layout != self._session.layout:
            message = f"a frame of {layout} follows frames of {self._session.layout}"
            raise UsageError(message, "All frames of a stream have one size and one format: convert them first.")
        return self._session.present(self._calls.filling(layout, picture))

    def fetch(self, address: int, size_bytes: int, streams: Iterable[int]) -> NDArray[np.uint8]:
        """Copy device memory to the host, after the work in ``streams``."""
        mover = self._open_mover()
        mover.wait_for(streams)
        return mover.fetch(address, size_bytes)

    def drain(self) -> bool:
        """Wait until the consumer has taken every picture; return whether it has."""
        return self._session is not None and self._session.drain()

    def described(self) -> tuple[int, int, str]:
        """Return the width, height and format of the producer's pictures; ``UsageError`` before the first picture."""
        if self._session is None:
            raise UsageError("there are no frames to present", "Give at least one.")
        layout = self._session.layout
        return layout.width, layout.height, layout.pix_fmt

    def close(self) -> None:
        """Disconnect from the stream."""
        try:
            if self._session is not None:
                self._session.close()
        finally:
            mover, self._mover = self._mover, None
            if mover is not None:
                mover.close()

    def _open_mover(self) -> CudaMover:
        self._mover = self._mover or self._calls.mover()
        return self._mover


def picture_layout(picture: DevicePicture | VideoFrame) -> EglLayout:
    """Return the layout of a picture; ``Unsupported`` if EGL has no such frames."""
    if isinstance(picture, VideoFrame):
        return layout_of(picture.width, picture.height, picture.format.name)
    frame = picture.frame
    return layout_of(frame.width, frame.height, surface_name(frame.layout, frame.bits))
