"""The DLAs of this machine as one process sees them: the library, the CUDA context, and every open session.

A process has one host. It settles the environment before CUDA starts, knows every handle (each one is asked when CUDA
says that an engine failed), and ends things in their order: tasks, handles, then the context.
"""

import importlib
import os
import threading
from collections.abc import Callable, MutableMapping
from typing import Any, Final

from ....errors import CodecfleetError, DeviceLost, Unsupported
from .cuda_calls import CudaCalls, CudaFailure, lost
from .library import CudlaBinding
from .session import DlaSession
from .states import LIVE
from .statuses import CudlaFailure, CudlaStatus, error_of
from .watchdog import Timing

EXECUTION_MODE: Final = "CUDA_EXTERNAL_ENGINE_EXECUTION_MODE"
ISOLATED_ERRORS: Final = "2"
"""An accelerator's errors do not spoil the CUDA context. Its other bit, 1, would take tasks out of their stream's
order, on which hybrid sessions rely: it is never set here."""

_ELSEWHERE: Final = "Inference needs a Jetson or DRIVE with DLAs (Xavier, Orin): docs/dla.md."

Importer = Callable[[str], Any]


def isolate_errors(environment: MutableMapping[str, str]) -> None:
    """Have CUDA keep errors of the DLA to the DLA. Works only before CUDA has started in this process."""
    environment[EXECUTION_MODE] = ISOLATED_ERRORS


def require_dlas(import_module: Importer = importlib.import_module) -> tuple[CudlaBinding, int]:
    """Return the library, and how many DLAs this machine has: at least one.

    The library alone proves nothing: NVIDIA ships it for machines without a DLA too.

    Raises:
        Unsupported: there is no binding, no library, or no DLA.
    """
    try:
        library = CudlaBinding(import_module("cuda.bindings.cudla"))
    except ImportError:
        message = "this machine cannot reach a DLA: cuda.bindings is not installed"
        raise Unsupported(message, "Install codecfleet with cuda-python on a Jetson: docs/dla.md.") from None
    try:
        count = int(library.call("cudlaDeviceGetCount"))
    except CudlaFailure as failure:
        if failure.status is CudlaStatus.DRIVER_NOT_FOUND:
            message = "this machine has no DLA: there is no libcudla.so.1"
        else:
            message = (
                f"this machine's DLAs do not answer: {failure.status.meaning} (cuDLA status {failure.status.name})"
            )
        raise Unsupported(message, _ELSEWHERE) from None
    if count == 0:
        raise Unsupported("this machine has no DLA: libcudla counts none", _ELSEWHERE)
    return library, count


def open_host(
    timing: Timing | None = None,
    *,
    environment: MutableMapping[str, str] = os.environ,
    import_module: Importer = importlib.import_module,
) -> "DlaHost":
    """Open this process's host.

    Args:
        timing: time limits of its sessions.
        environment: the process's environment; error isolation is set in it.
        import_module: where ``cuda.bindings.cudla`` and ``cuda.bindings.driver`` come from.

    Raises:
        Unsupported: there is no DLA.
        DeviceLost: CUDA does not start.
    """
    isolate_errors(environment)
    library, count = require_dlas(import_module)
    try:
        cuda = CudaCalls(import_module("cuda.bindings.driver"))
    except CudaFailure as failure:
        raise lost(failure, 0) from None
    except (ImportError, RuntimeError) as error:  # the binding looks for libcuda when it is first called
        message = f"the DLAs need CUDA, which does not load: {error}"
        raise DeviceLost(message, "codecfleet doctor shows what this machine's driver can do.") from None
    return DlaHost(library, cuda, count, timing or Timing())


class DlaHost:
    """Opens sessions, and keeps them together.

    Args:
        library: the way to cuDLA in hybrid mode.
        cuda: the context that handles are coupled with.
        count: how many DLAs there are.
        timing: time limits of the sessions.
    """

    count: int
    """How many DLAs there are."""
    failure: str
    """What failed in this process, "" if nothing; after it only a new process can use the DLAs."""

    def __init__(self, library: CudlaBinding, cuda: CudaCalls, count: int, timing: Timing) -> None:
        self._library, self._cuda, self._timing = library, cuda, timing
        self.count = count
        self.failure = ""
        self._sessions: list[DlaSession] = []
        self._lock = threading.Lock()
        self._closed = False

    def version(self) -> tuple[int, int, int]:
        """Return the version of cuDLA: major, minor, patch."""
        try:
            number = int(self._library.call("cudlaGetVersion"))
        except CudlaFailure as failure:
            raise error_of(failure.call, failure.status, 0) from None
        return number // 1_000_000, number // 1_000 % 1_000, number % 1_000

    def open(self, device: int) -> DlaSession:
        """Open a session on a DLA; several may be open on one.

        Raises:
            Unsupported: there is no such DLA.
            DeviceLost: it does not open, or something failed before in this process.
        """
        if self.failure:
            raise DeviceLost(f"the DLAs of this process are lost: {self.failure}", "Restart the process.")
        if self._closed:
            raise DeviceLost("the DLAs of this process were closed", "Open a new host.")
        if not 0 <= device < self.count:
            message = f"there is no DLA {device}: this machine has {self.count}, counted from 0"
            raise Unsupported(message, "Choose one of them.")
        session = DlaSession(self._library, self._cuda, device, self._timing, self)
        with self._lock:
            self._sessions.append(session)
        return session

    def guilty(self, library: CudlaBinding) -> dict[int, CudlaStatus]:
        """Ask every open handle for its latest error; return what is not success, by the number of the DLA.

        To be called where waiting is safe: in the thread of the session that met ``EXTERNAL_DEVICE``.
        """
        with self._lock:
            handles = [(session.device, session.handle) for session in self._sessions if session.state in LIVE]
        found: dict[int, CudlaStatus] = {}
        for device, handle in handles:
            status = library.last_error(handle)
            if status is not CudlaStatus.SUCCESS:
                found.setdefault(device, status)
        return found

    def condemn(self, error: CodecfleetError) -> None:
        """Fail every session: nothing in this process can be relied upon."""
        with self._lock:
            self.failure = self.failure or error.message
            sessions = list(self._sessions)
        for session in sessions:
            session.condemn(error.message)

    def forget(self, session: DlaSession) -> None:
        """Drop a session whose handle is destroyed."""
        with self._lock:
            self._sessions = [other for other in self._sessions if other is not session]

    def close(self) -> None:
        """Close every session, then give the context back. Idempotent; a host that broke is only given up.

        Raises:
            DeviceError: a session failed while it was closed; all others are given up then.
        """
        with self._lock:
            sessions, closed, self._closed = list(self._sessions), self._closed, True
        errors: list[CodecfleetError] = []
        for session in sessions:
            try:
                session.close()
            except CodecfleetError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        if not closed and not self.failure:
            try:
                self._cuda.release()
            except CudaFailure as failure:
                raise lost(failure, 0) from None
