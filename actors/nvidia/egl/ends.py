"""The common part of a stream's two ends: a state, a CUDA stream, and calls that notice when the other end is gone."""

from abc import abstractmethod
from typing import Any, Final

from ....errors import CodecfleetError, DeviceLost
from ...closing import Closing
from ..cuda.context import cuda_error
from .calls import EglCuda
from .states import LIVE, EndEvent, EndState, next_state
from .streams import EglStream, is_gone

TIMED_OUT: Final = 702
"""CUDA_ERROR_LAUNCH_TIMEOUT: when a frame is acquired or taken back, it means that none came yet."""


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
        """Disconnect, and free its memory. Idempotent."""
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
        """Return what belongs to the other end, and disconnect."""

    def _connect(self, name: str, *arguments: object) -> None:
        """Connect, or close; a failure leaves nothing open."""
        try:
            self._connection = self._calls.call(name, self._calls.driver.EGLStreamKHR(self._stream.handle), *arguments)
        except CodecfleetError:
            self.close()
            raise
        self._move(EndEvent.CONNECT)

    def _asked(self, name: str, *arguments: object, may_time_out: bool = False) -> bool:
        """Call the driver; return whether that succeeded: False if no frame came or the other end is gone."""
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
        """Raise ``DeviceLost`` if the connection's context is gone: the driver would end the process."""
        if self._calls.context_id() != self._context_id:
            message = "the CUDA context in which an end of the stream was connected is gone"
            raise DeviceLost(message, "Make a new stream in a new process.")

    def _move(self, happening: EndEvent) -> None:
        self.state = next_state(self.state, happening)
