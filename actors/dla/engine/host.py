"""The DLAs of this machine as one process sees them: the library, the CUDA context, and every open session.

A process has one host for each mode and each way of waiting. On closing, a host first ends the tasks, then closes the
handles, and last the context.
"""

import ctypes
import importlib
import os
import threading
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any, Final

from ....errors import CodecfleetError, DeviceLost, Unsupported
from ..nvsci.library import Loader
from ..nvsci.syncs import NvSci
from .cuda_calls import CudaCalls, CudaFailure, lost
from .hybrid import HybridSession
from .library import Cudla, CudlaBinding, CudlaLibrary
from .session import DlaSession
from .standalone import StandaloneSession
from .states import LIVE, DlaMode
from .statuses import CudlaFailure, CudlaStatus, error_of
from .watchdog import Timing

EXECUTION_MODE: Final = "CUDA_EXTERNAL_ENGINE_EXECUTION_MODE"
ISOLATED_ERRORS: Final = "2"
"""The execution mode in which a DLA's errors do not affect the CUDA context.

Bit 1 is never set: it would let tasks run out of the order of their stream, and hybrid sessions rely on that order.
"""

_ELSEWHERE: Final = "Inference needs a Jetson or DRIVE with DLAs (Xavier, Orin): docs/dla.md."

_STANDALONE_NEEDS: Final = (
    "Install libcudla, libnvscibuf and libnvscisync (DRIVE OS, Jetson Linux), or use --dla-mode hybrid."
)
Importer = Callable[[str], Any]
Standalone = tuple[Cudla, Callable[[], NvSci]]
"""The libraries of standalone mode: cuDLA, and a function that opens NvSci for one session."""
AnySession = HybridSession | StandaloneSession
MakeSession = Callable[[int, Timing, "DlaHost"], AnySession]


def open_standalone(load: Loader = ctypes.CDLL) -> Standalone:
    """Open the libraries of standalone mode; ``Unsupported`` if one of them is missing on this machine."""
    try:
        library = CudlaLibrary(load)
        NvSci(load)  # each session opens NvSci again
        return library, partial(NvSci, load)
    except OSError as error:
        message = f"this machine cannot reach a DLA in standalone mode: {error}"
        raise Unsupported(message, _STANDALONE_NEEDS) from None


def isolate_errors(environment: MutableMapping[str, str]) -> None:
    """Make CUDA confine the DLA's errors to the DLA. Works only before CUDA has started in this process."""
    environment[EXECUTION_MODE] = ISOLATED_ERRORS


def require_dlas(mode: DlaMode = DlaMode.HYBRID, *, import_module: Importer = importlib.import_module) -> int:
    """Return how many DLAs this machine has (at least one).

    A library that loads proves nothing, because NVIDIA also ships it for machines without a DLA.

    ``Unsupported`` if there is no DLA, or a library that ``mode`` needs is missing.
    """
    return _counted(open_standalone()[0] if mode is DlaMode.STANDALONE else _binding(import_module))


def _binding(import_module: Importer) -> CudlaBinding:
    try:
        return CudlaBinding(import_module("cuda.bindings.cudla"))
    except ImportError:
        message = "this machine cannot use a DLA: cuda.bindings is not installed"
        raise Unsupported(message, "Run `pip install cuda-python`; docs/dla.md lists what a Jetson needs.") from None


def _counted(library: Cudla) -> int:
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
    return count


def open_host(
    timing: Timing | None = None,
    mode: DlaMode = DlaMode.HYBRID,
    *,
    environment: MutableMapping[str, str] = os.environ,
    import_module: Importer = importlib.import_module,
) -> "DlaHost":
    """Open this process's host; in hybrid mode, first set error isolation in ``environment``.

    ``Unsupported`` if there is no DLA, or a library that ``mode`` needs is missing; ``DeviceLost`` if CUDA does not
    start.
    """
    timing = timing or Timing()
    if mode is DlaMode.STANDALONE:
        found, make_sci = open_standalone()
        make = partial(StandaloneSession, found, make_sci)
        return DlaHost(found, make, lambda: None, _counted(found), timing)
    isolate_errors(environment)
    library = _binding(import_module)
    count = _counted(library)
    try:
        cuda = CudaCalls(import_module("cuda.bindings.driver"), timing.waiting)
    except CudaFailure as failure:
        raise lost(failure, 0) from None
    except (ImportError, RuntimeError) as error:  # the binding looks for libcuda when it is first called
        message = f"the DLAs need CUDA, which does not load: {error}"
        raise DeviceLost(message, "codecfleet doctor shows what this machine's driver can do.") from None
    return DlaHost(library, partial(HybridSession, library, cuda), cuda.release, count, timing)


class DlaHost:
    """Opens sessions and tracks them; ``close`` closes all sessions, and then releases their shared context."""

    count: int  # how many DLAs the machine has
    failure: str  # the failure, after which only a new process can use the DLAs; "" if none occurred

    def __init__(
        self, library: Cudla, make: MakeSession, release: Callable[[], None], count: int, timing: Timing
    ) -> None:
        self._library, self._make, self._release, self._timing = library, make, release, timing
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

    def open(self, device: int) -> AnySession:
        """Open a session on a DLA, which may have several open sessions.

        ``Unsupported`` if there is no such DLA; ``DeviceLost`` if the DLA does not open, or a DLA failed before in this
        process.
        """
        if self.failure:
            raise DeviceLost(f"the DLAs of this process are lost: {self.failure}", "Restart the process.")
        if self._closed:
            raise DeviceLost("the DLAs of this process were closed", "Open a new host.")
        if not 0 <= device < self.count:
            message = f"there is no DLA {device}: this machine has {self.count}, counted from 0"
            raise Unsupported(message, "Choose one of them.")
        session = self._make(device, self._timing, self)
        with self._lock:
            self._sessions.append(session)
        return session

    def guilty(self, library: Cudla) -> dict[int, CudlaStatus]:
        """Ask every open handle for the latest error; return the failures, keyed by the number of the DLA.

        Call this where waiting is safe: in the thread of the session that received ``EXTERNAL_DEVICE``.
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
        """Make every session fail: after ``error``, this process cannot use any DLA."""
        with self._lock:
            self.failure = self.failure or error.message
            sessions = list(self._sessions)
        for session in sessions:
            session.condemn(error.message)

    def forget(self, session: DlaSession) -> None:
        """Remove a session whose handle is destroyed."""
        with self._lock:
            self._sessions = [other for other in self._sessions if other is not session]

    def close(self) -> None:
        """Close every session, then release the context. Idempotent; after a failure nothing is released.

        Raises:
            DeviceError: a session failed while closing; all other sessions are then abandoned.
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
                self._release()
            except CudaFailure as failure:
                raise lost(failure, 0) from None
