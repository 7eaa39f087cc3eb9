"""What a DLA session promises: ``DlaSession``, and the values that go in and come out.

``hybrid.HybridSession`` keeps the promise, beside CUDA. Source: CUDA for Tegra, chapter 5 (5.1 the model, 5.4 the
rules), and cudla.h.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag
from types import TracebackType
from typing import Self

from .states import DlaSessionState
from .statuses import CudlaStatus
from .tensors import TensorDescriptor

__all__ = [
    "Access",
    "DeviceAttributes",
    "DlaModule",
    "DlaSession",
    "DlaTask",
    "LoadOption",
    "Registration",
    "SubmitOption",
]


class Access(IntFlag):
    """What memory is registered for (``cudlaAccessPermissionFlags``)."""

    READ_WRITE = 0
    TASK_STATISTICS = 2  #: takes the statistics of a task, never a tensor


class LoadOption(IntFlag):
    """How a loadable is loaded (``cudlaModuleLoadFlags``, ``cudlaScratchMemoryConfig``)."""

    NONE = 0
    FAULT_DIAGNOSTICS = 1  #: the library's own module, which looks for permanent faults; goes with no loadable
    SHARED_SCRATCH_MEMORY = 2


class SubmitOption(IntFlag):
    """How tasks are submitted (``cudlaSubmissionFlags``)."""

    NONE = 0
    NOOP = 1  #: run nothing, but do all that goes with it
    SKIP_LOCK = 2  #: nobody else submits to this handle or stream now: cuDLA need not lock
    DIAGNOSTICS = 4  #: the tasks run the module of the diagnostics


@dataclass(frozen=True, slots=True)
class DeviceAttributes:
    """``cudlaDeviceGetAttribute``: whether CUDA and the DLA share addresses, and the DLA's version (Orin: 2.0)."""

    unified_addressing: bool
    device_version: int


@dataclass(frozen=True, slots=True)
class DlaModule:
    """A loadable in a handle: ``cudlaModule`` with every attribute it has.

    ``statistics`` are the buffers for task statistics, in the order in which a task takes them.
    """

    handle: int
    inputs: tuple[TensorDescriptor, ...]
    outputs: tuple[TensorDescriptor, ...]
    statistics: tuple[TensorDescriptor, ...]


@dataclass(frozen=True, slots=True)
class Registration:
    """Memory that the DLA may use.

    ``memory`` is the CUDA pointer that was registered, ``dla_address`` is where the DLA sees it.
    """

    memory: int
    size_bytes: int
    dla_address: int
    access: Access = Access.READ_WRITE


@dataclass(frozen=True, slots=True, kw_only=True)
class DlaTask:
    """One run of a module: ``cudlaTask``.

    ``statistics`` is empty, or has a buffer for each of the module's. It has no events: the stream orders everything.
    """

    module: DlaModule
    inputs: tuple[Registration, ...]
    outputs: tuple[Registration, ...]
    statistics: tuple[Registration, ...] = ()


class DlaSession(ABC):
    """One cuDLA device handle: a loadable, its memory, and the tasks that run it.

    Tasks are asynchronous: ``submit`` returns when they are queued, and what they meet is told by a later call, at the
    latest by ``synchronize``. cuDLA makes every error final but one (5.4): after it the session is FAILED, every
    further call raises ``DeviceLost``, and the process that holds it is to be ended. The one exception is registering
    memory twice, which raises ``UsageError`` and changes nothing.

    Every method may be called from any thread; calls of one session take their turn. Every method may raise, beside
    what it names:

        DeviceLost: cuDLA or CUDA failed, now or earlier. Final.
        EngineFailed: the engine broke a task off, possibly one of an earlier submission. Final.
        EngineHung: a call or a task did not end within its time limit. Final, and the process cannot be saved.
        UsageError: the call makes no sense (a closed session, a foreign module, a buffer too small). Changes nothing.
    """

    @property
    @abstractmethod
    def device(self) -> int:
        """The number of the DLA, from 0."""

    @property
    @abstractmethod
    def state(self) -> DlaSessionState:
        """Where the session stands."""

    @abstractmethod
    def attributes(self) -> DeviceAttributes:
        """Return what the device says of itself (``cudlaDeviceGetAttribute``)."""

    @abstractmethod
    def load(self, loadable: bytes, options: LoadOption = LoadOption.NONE) -> DlaModule:
        """Load a loadable from memory (``cudlaModuleLoadFromMemory``, ``cudlaModuleGetAttributes``).

        A handle takes one in its life, also where that was unloaded again (cuDLA API reference).

        Args:
            loadable: what TensorRT built; ``b""`` with ``FAULT_DIAGNOSTICS``.
            options: how to load.

        Raises:
            Unsupported: it is no loadable, or none for this DLA and its software. Final for this session.
            UsageError: the session has had a loadable.
        """

    @abstractmethod
    def unload(self, module: DlaModule) -> None:
        """Unload it again; its tasks must be done (``cudlaModuleUnload``)."""

    @abstractmethod
    def register(self, memory: int, size_bytes: int, access: Access = Access.READ_WRITE) -> Registration:
        """Make CUDA memory usable by the DLA (``cudlaMemRegister``). It stays the caller's, and must outlive this.

        Raises:
            UsageError: it is registered already; the earlier registration holds on.
        """

    @abstractmethod
    def unregister(self, registration: Registration) -> None:
        """Take memory from the DLA again; its tasks must be done (``cudlaMemUnregister``)."""

    @abstractmethod
    def submit(
        self, tasks: Sequence[DlaTask], *, stream: int | None = None, options: SubmitOption = SubmitOption.NONE
    ) -> None:
        """Queue tasks, to run one after the other in the order given (``cudlaSubmitTask``). Returns before they run.

        Args:
            tasks: at least one. Their memory must stay registered until they are done.
            stream: the CUDA stream whose earlier work they wait for, and whose later work waits for them; None is the
                session's own.
            options: how to submit.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything submitted is done, and ask for errors of its own (``cudlaGetLastError``).

        Patience: each task's time limit, one after the other, and the grace; then the firmware counts as hung.
        """

    @abstractmethod
    def last_error(self) -> CudlaStatus:
        """Return the latest asynchronous error of the handle, without raising or waiting (``cudlaGetLastError``)."""

    @abstractmethod
    def set_task_limit(self, seconds: float) -> None:
        """Set how long one task may run from now on (``cudlaSetTaskTimeoutInMs``).

        A cuDLA without that function ends no task by itself: the watchdog then gives up what exceeds the limit.
        """

    @abstractmethod
    def close(self) -> None:
        """Wait for the tasks, unregister and unload everything, destroy the handle. Idempotent.

        A session that failed or hung is only given up: cuDLA may crash when a handle is destroyed under a task, so
        nothing is called any more, and the process has to end.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
