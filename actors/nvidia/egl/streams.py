"""An EGLStream, which carries frames from a producer to a consumer, and the common part of its two ends.

Sources: EGL_KHR_stream, EGL_KHR_stream_fifo, EGL_KHR_stream_cross_process_fd, EGL_NV_stream_reset.
"""

import ctypes
import threading
from abc import abstractmethod
from fractions import Fraction
from typing import Any, Final

from ....errors import CodecfleetError, DeviceError, DeviceLost, UsageError
from ...closing import Closing
from ...device.streams import PictureStream, StreamConsumer, StreamProducer
from ..cuda.context import cuda_error
from .calls import EglCuda, egl_cuda
from .library import EglDisplay, attributes, device_display
from .states import LIVE, PRESENTED_MOST, EndEvent, EndState, StreamState, next_state

_STATE, _FIFO_LENGTH, _SUPPORT_REUSE = 0x3214, 0x31FC, 0x3335
_PRODUCER_FRAME, _CONSUMER_FRAME = 0x3212, 0x3213
_RESET: Final = "EGL_NV_stream_reset"
_RULES: Final = "docs/egl.md shows how to make a stream."
TIMED_OUT: Final = 702
"""CUDA_ERROR_LAUNCH_TIMEOUT: when a frame is acquired or taken back, this code means that no frame has come yet."""


class EglStream(PictureStream, Closing):
    """An EGLStream: one producer's frames for one consumer, in this process or another. Opened on first use.

    ``codecfleet.frames(stream)`` is a consumer and ``codecfleet.present(pictures, stream)`` a producer. CUDA, NvMedia,
    Argus or OpenGL may have the other end. One object may serve both ends. Close it when both ends are done.

    Args:
        fifo_frames: how many frames wait for the consumer, in order (EGL_STREAM_FIFO_LENGTH_KHR), 64 at most; 0 is a
            mailbox, in which a new frame replaces a frame that was not taken.
        keeps_last: keep the last frame in the stream, so that a consumer gets it again when none follows (EGL's
            default). False drops it, if EGL_NV_stream_reset is available (EGL_SUPPORT_REUSE_NV).
        descriptor: the file descriptor of a stream of another process, which ``descriptor`` returned there; close it
            yourself.
        handle: an EGLStreamKHR that you made; destroy it yourself. ``display`` is its EGLDisplay, if that is not the
            display of the device.
        fps: the frame with number n is shown at n / ``fps``; None means the time at which the frame was acquired.
        pix_fmt: FFmpeg's name of the frames' format, if the stream states a wrong format.
        wait_s: how long one end waits for the other before ``DeadlineMissed``.
        repeat_s: give the consumer the last frame again after this long without a new frame; None means to keep
            waiting.

    Raises:
        UsageError: the arguments exclude each other, or are out of range.
    """

    def __init__(
        self,
        *,
        fifo_frames: int = 0,
        keeps_last: bool = False,
        descriptor: int | None = None,
        handle: int | None = None,
        display: int | None = None,
        fps: Fraction | int | None = None,
        pix_fmt: str | None = None,
        wait_s: float = 10,
        repeat_s: float | None = None,
    ) -> None:
        if not 0 <= fifo_frames <= PRESENTED_MOST:
            raise UsageError(f"fifo_frames must be 0 to {PRESENTED_MOST}, not {fifo_frames}", _RULES)
        is_made = descriptor is None and handle is None
        if (descriptor is not None and handle is not None) or (not is_made and (fifo_frames or keeps_last)):
            raise UsageError(
                "give at most one of descriptor and handle, and with either leave out fifo_frames and keeps_last",
                _RULES,
            )
        if (fps is not None and fps <= 0) or wait_s <= 0 or (repeat_s is not None and repeat_s <= 0):
            raise UsageError("fps, wait_s and repeat_s must be more than 0", _RULES)
        self.fps = None if fps is None else Fraction(fps)
        self.pix_fmt = pix_fmt
        self.wait_s = wait_s
        self.repeat_s = repeat_s
        self._wanted = (fifo_frames, keeps_last)
        self._descriptor, self._foreign, self._foreign_display = descriptor, handle, display
        self._lock = threading.Lock()
        self._display: EglDisplay | None = None
        self._handle = 0
        self._is_closed = False

    @property
    def handle(self) -> int:
        """The EGLStreamKHR, made on first use.

        Raises:
            UsageError: the stream is closed, or its descriptor or handle does not belong to a stream.
            EngineUnfit: this machine's EGL has no streams.
            DeviceError: EGL failed.
        """
        return self._opened()[1]

    @property
    def state(self) -> StreamState:
        """The stream's state, as EGL reports it now."""
        try:
            return StreamState(self._asked(_STATE))
        except ValueError as error:
            raise DeviceError(f"EGL reports an unknown stream state: {error}", _RULES) from None

    @property
    def fifo_frames(self) -> int:
        """How many frames wait in order; 0 for a mailbox."""
        return self._asked(_FIFO_LENGTH) if "EGL_KHR_stream_fifo" in self._opened()[0].extensions else 0

    @property
    def keeps_last(self) -> bool:
        """Whether the last frame stays in the stream until another replaces it."""
        return _RESET not in self._opened()[0].extensions or bool(self._asked(_SUPPORT_REUSE))

    @property
    def presented(self) -> int:
        """How many frames the producer has presented so far."""
        return self._counted(_PRODUCER_FRAME)

    @property
    def acquired(self) -> int:
        """The number of the frame that the consumer acquired last, counting presented frames from 1."""
        return self._counted(_CONSUMER_FRAME)

    def descriptor(self) -> int:
        """Return a file descriptor for another process's ``EglStream(descriptor=...)``; send and close it yourself.

        Call this before either end connects.

        ``UsageError`` if an end has connected, or the stream is closed; ``EngineUnfit`` if EGL lacks
        EGL_KHR_stream_cross_process_fd.
        """
        display, handle = self._opened()
        display.require(["EGL_KHR_stream_cross_process_fd"])
        return int(display.egl.call("eglGetStreamFileDescriptorKHR", display.handle, handle))

    def open_consumer(self, place: str) -> StreamConsumer:
        """Connect and return the stream's consumer."""
        from .consumer import EglConsumer  # noqa: PLC0415 - that module imports this one

        return EglConsumer(egl_cuda(), self, place)

    def open_producer(self, memory: str) -> StreamProducer:
        """Return the stream's producer, which connects with its first picture."""
        from .producer import EglProducer  # noqa: PLC0415 - that module imports this one

        return EglProducer(egl_cuda(), self, memory)

    def close(self) -> None:
        """Destroy the stream, which disconnects its ends, unless the caller passed a handle. Idempotent."""
        with self._lock:
            handle, self._handle, self._is_closed = self._handle, 0, True
        if handle and self._display is not None and self._foreign is None:
            self._display.egl.call("eglDestroyStreamKHR", self._display.handle, handle)

    def _opened(self) -> tuple[EglDisplay, int]:
        with self._lock:
            if self._is_closed:
                raise UsageError("the stream is closed", "Make a new one.")
            if self._display is None:
                self._display = self._own_display()
            if not self._handle:
                self._handle = self._made(self._display)
            return self._display, self._handle

    def _own_display(self) -> EglDisplay:
        display = device_display()
        if self._foreign_display is not None:
            display = EglDisplay(display.egl, self._foreign_display)
        display.require(["EGL_KHR_stream"])
        return display

    def _made(self, display: EglDisplay) -> int:
        if self._foreign is not None:
            return self._foreign
        if self._descriptor is not None:
            display.require(["EGL_KHR_stream_cross_process_fd"])
            name = "eglCreateStreamFromFileDescriptorKHR"
            return int(display.egl.call(name, display.handle, self._descriptor))
        fifo_frames, keeps_last = self._wanted
        wanted: list[tuple[int, int]] = []
        if fifo_frames:
            display.require(["EGL_KHR_stream_fifo"])
            wanted.append((_FIFO_LENGTH, fifo_frames))
        if not keeps_last and _RESET in display.extensions:
            wanted.append((_SUPPORT_REUSE, 0))
        return int(display.egl.call("eglCreateStreamKHR", display.handle, attributes(*wanted)))

    def _asked(self, attribute: int) -> int:
        display, handle = self._opened()
        found = ctypes.c_int32()
        display.egl.call("eglQueryStreamKHR", display.handle, handle, attribute, ctypes.byref(found))
        return found.value

    def _counted(self, attribute: int) -> int:
        display, handle = self._opened()
        found = ctypes.c_uint64()
        display.egl.call("eglQueryStreamu64KHR", display.handle, handle, attribute, ctypes.byref(found))
        return found.value


def is_gone(stream: EglStream) -> bool:
    """Return whether the stream or one of its ends is gone."""
    try:
        return stream.state is StreamState.DISCONNECTED
    except UsageError:
        return True


class EndSession(Closing):
    """One end of a stream. ``state`` follows the table of ``states.py``; the driver is not called after a failure."""

    def __init__(self, calls: EglCuda, stream: EglStream) -> None:
        self._calls = calls
        self._stream = stream
        self.state = EndState.UNCONNECTED
        self.cuda_stream = calls.cuda.stream()
        self._connection: Any = None
        self._context_id = calls.context_id()

    def close(self) -> None:
        """Disconnect, and free this end's memory. Idempotent."""
        try:
            if self.state in (*LIVE, EndState.ENDED):
                self._check_context()
                self._disconnect()
            if self.state in (*LIVE, EndState.ENDED, EndState.UNCONNECTED):
                self.cuda_stream.close()
        except CodecfleetError:
            self._move(EndEvent.FAIL)
            raise
        finally:
            self._move(EndEvent.CLOSE)

    @abstractmethod
    def _disconnect(self) -> None:
        """Disconnect: a consumer first releases the frame that it holds, a producer then frees its frames."""

    def _connect(self, name: str, *arguments: object) -> None:
        """Connect, or close; a failure leaves nothing open."""
        try:
            self._connection = self._calls.call(name, self._calls.driver.EGLStreamKHR(self._stream.handle), *arguments)
        except CodecfleetError:
            self.close()
            raise
        self._move(EndEvent.CONNECT)

    def _asked(self, name: str, *arguments: object, may_time_out: bool = False) -> bool:
        """Call the driver; return whether the call succeeded: False if no frame came or the other end is gone."""
        try:
            self._check_context()
            code, _ = self._calls.attempt(name, *arguments)
            if code and not (may_time_out and code == TIMED_OUT):
                if not is_gone(self._stream):
                    raise cuda_error(code, f"{name} failed with")
                self._move(EndEvent.PART)
        except CodecfleetError:
            self._move(EndEvent.FAIL)
            raise
        return code == 0

    def _check_context(self) -> None:
        """Raise ``DeviceLost`` if the connection's context is gone: with any call, the driver would end the process."""
        if self._calls.context_id() != self._context_id:
            message = "the CUDA context in which an end of the stream was connected is gone"
            raise DeviceLost(message, "Make a new stream in a new process.")

    def _move(self, happening: EndEvent) -> None:
        self.state = next_state(self.state, happening)
