"""Makes the calls of one DLA session in a thread, maps their errors, and decides which errors end the session."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ....errors import CodecfleetError, DeviceLost, EngineHung, UsageError
from ...watchdog import CallThread
from ..nvsci.library import NvSciFailure
from .cuda_calls import EXTERNAL_DEVICE, CudaFailure, lost
from .library import Cudla
from .states import LIVE, DlaEvent, DlaSessionState, next_state
from .statuses import CudlaFailure, CudlaStatus, error_of, is_final, sci_error
from .watchdog import Timing

if TYPE_CHECKING:
    from .host import DlaHost

ResultT = TypeVar("ResultT")


class SessionCalls:
    """Calls cuDLA, CUDA and NvSci for one session, and holds the session's state, which failed calls change."""

    def __init__(self, library: Cudla, device: int, timing: Timing, host: "DlaHost") -> None:
        self._library, self._host = library, host
        self._device = device
        self._timing = timing
        self._thread = CallThread(f"DLA {device}", timing.patience)
        self._moving = threading.Lock()
        self._failure = ""
        self.state = DlaSessionState.IDLE
        self.handle = 0

    def close(self) -> None:
        """End the session's thread. Idempotent."""
        self._thread.close()

    def condemn(self, why: str) -> None:
        """Make the session FAILED because another session of the same process failed."""
        if self.state in LIVE:
            self._failure = self._failure or why
            self.move(DlaEvent.FAIL)

    def cudla(self, function: str, *arguments: object, limit_s: float | None = None) -> Any:
        """Call a cuDLA function as ``ask`` does."""
        return self.ask(function, lambda: self._library.call(function, *arguments), limit_s)

    def ask(self, what: str, call: Callable[[], ResultT], limit_s: float | None = None) -> ResultT:
        """Make a call in the session's thread, and map the errors of the call."""
        self.refuse_if_over()
        try:
            return self._thread.call(what, lambda: self._blamed(call), limit_s or self._timing.limits.call_s)
        except CudlaFailure as failure:
            device = self._device if failure.device is None else failure.device
            error = error_of(failure.call, failure.status, device)
            if is_final(failure.status):
                self.give_up(DlaEvent.FAIL, error)
            raise error from None
        except CudaFailure as failure:
            self.give_up(DlaEvent.FAIL, lost(failure, self._device))
        except NvSciFailure as failure:
            self.give_up(DlaEvent.FAIL, sci_error(failure, self._device))
        except EngineHung as error:
            self.give_up(DlaEvent.HANG, error)

    def _blamed(self, call: Callable[[], ResultT]) -> ResultT:
        """Turn a failure of CUDA into a failure of cuDLA if CUDA blames an engine."""
        try:
            return call()
        except CudaFailure as failure:
            if failure.code != EXTERNAL_DEVICE:
                raise
            found = self._host.guilty(self._library)
            own = self._library.last_error(self.handle) if self.handle else CudlaStatus.SUCCESS
            if own is not CudlaStatus.SUCCESS:
                found = {self._device: own}
            for device, status in found.items():
                # The failed task may come from an earlier submission.
                raise CudlaFailure("cudlaSubmitTask", status, device) from None
            raise

    def give_up(self, happening: DlaEvent, error: CodecfleetError) -> NoReturn:
        """End every session of this process with ``error``, and raise it."""
        self._failure = error.message
        self.move(happening)
        self._host.condemn(error)
        raise error

    def move(self, happening: DlaEvent) -> None:
        """Go to the state that follows the event."""
        with self._moving:  # another session may make this session fail at any time
            self.state = next_state(self.state, happening)

    def refuse_if_over(self) -> None:
        """Raise ``UsageError`` if the session is closed, ``DeviceLost`` if it has failed."""
        self.refuse_unless(self.state is not DlaSessionState.CLOSED, "the session is closed")
        if self.state not in LIVE:
            message = f"DLA {self._device} failed earlier in this process ({self._failure})"
            raise DeviceLost(message, "Restart the process.")

    def refuse_unless(self, sound: object, message: str) -> None:
        """Raise ``UsageError`` with ``message`` unless ``sound`` is true."""
        if not sound:
            complete = f"DLA {self._device}: {message}"
            raise UsageError(complete, "docs/dla.md shows how to use sessions.")
