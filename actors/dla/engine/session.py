"""A handle of a DLA: a loadable, its memory, and the tasks that run the loadable, in either mode of cuDLA."""

import threading
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ....errors import CodecfleetError, UsageError
from ...closing import Closing
from ..nvsci.syncs import Fence
from .library import DESCRIPTORS, DEVICE_VERSION, UNIFIED_ADDRESSING, Cudla
from .session_calls import SessionCalls
from .states import LIVE, DlaEvent, DlaMode, DlaSessionState
from .statuses import CudlaStatus, FunctionMissing, error_of
from .tasks import (
    Access,
    DeviceAttributes,
    DeviceBuffer,
    DlaModule,
    DlaTask,
    LoadOption,
    Registration,
    SubmitOption,
    TaskMemory,
    task_fault,
)
from .watchdog import Deadlines, TimeLimits, Timing

if TYPE_CHECKING:
    from .host import DlaHost

_TASK_LIMIT_MAX_S = 1000.0


class DlaSession(Closing):
    """One cuDLA device handle: a loadable, its memory, and the tasks that run the loadable.

    Open it with ``DlaHost.open``: a ``HybridSession`` with CUDA, or a ``StandaloneSession`` without CUDA. Tasks run
    in the order of their submission.

    Tasks are asynchronous: ``submit`` returns when they are queued, and their errors come from a later call, at the
    latest from ``synchronize``. Registering memory twice is refused, and changes nothing. Every other error of cuDLA
    is final (CUDA for Tegra, section 5.4): the session is then FAILED, every further call raises ``DeviceLost``, and
    the process has to end.

    Every method may be called from any thread; the calls of one session run one after the other. Besides its own
    errors, every method may raise:

        DeviceLost: cuDLA, CUDA or NvSci failed, now or earlier. Final.
        EngineFailed: the engine aborted a task, possibly of an earlier submission. Final.
        EngineHung: a call or a task did not end within its time limit. Final; the process cannot be saved.
        UsageError: the call is invalid (a closed session, a foreign module, a buffer too small). Changes nothing.
    """

    mode: ClassVar[DlaMode]
    device: int  # the number of the DLA

    def __init__(self, library: Cudla, device: int, timing: Timing, host: "DlaHost") -> None:
        self._library, self._host = library, host
        self.device = device
        self._timing = timing
        self._calls = SessionCalls(library, device, timing, host)
        self._deadlines = Deadlines(timing.limits)
        self._turn = threading.RLock()
        self._has_loaded = False
        self._diagnoses = False
        self._module: DlaModule | None = None
        self._registrations: dict[int, Registration] = {}
        self._buffers: dict[int, DeviceBuffer] = {}
        self._in_flight: list[TaskMemory] = []
        try:
            self._calls.ask("starting", self._begin)
            self._calls.handle = int(self._calls.cudla("cudlaCreateDevice", device, self.mode.value))
            self._limit_tasks(timing.limits)
            self._prepare()
        except CodecfleetError:
            self._calls.close()
            raise

    @property
    def handle(self) -> int:
        """The session's cuDLA device handle, as a number."""
        return self._calls.handle

    @property
    def state(self) -> DlaSessionState:
        """The session's state; another session's failure can change it at any time."""
        return self._calls.state

    def attributes(self) -> DeviceAttributes:
        """Return the device's attributes (``cudlaDeviceGetAttribute``)."""
        with self._turn:
            shared, version = (
                self._calls.ask("cudlaDeviceGetAttribute", partial(self._library.attribute, self.handle, which))
                for which in (UNIFIED_ADDRESSING, DEVICE_VERSION)
            )
        return DeviceAttributes(bool(shared), version)

    def load(self, loadable: bytes, options: LoadOption = LoadOption.NONE) -> DlaModule:
        """Load a loadable (``cudlaModuleLoadFromMemory``); pass ``b""`` with ``FAULT_DIAGNOSTICS``.

        A handle takes only one loadable in its life (cuDLA API reference); ``close`` unloads it.

        Raises:
            Unsupported: the bytes are not a loadable for this DLA and its software. Final.
            UsageError: the session already had a loadable.
        """
        with self._turn:
            self._calls.refuse_unless(not self._has_loaded, "a session loads only one loadable: open another session")
            diagnostics = bool(options & LoadOption.FAULT_DIAGNOSTICS)
            self._calls.refuse_unless(diagnostics is not bool(loadable), "give either a loadable or FAULT_DIAGNOSTICS")
            self._has_loaded = True
            # For empty bytes, a null address is passed.
            arguments = loadable or 0, len(loadable), int(options)
            module = int(self._calls.cudla("cudlaModuleLoadFromMemory", self.handle, *arguments))
            self._diagnoses = diagnostics
            inputs, outputs, statistics = (
                self._calls.ask("cudlaModuleGetAttributes", partial(self._library.descriptors, module, kind))
                for kind in DESCRIPTORS
            )
            self._module = DlaModule(module, inputs, outputs, statistics)
            return self._module

    def register(self, memory: int, size_bytes: int, access: Access = Access.READ_WRITE) -> Registration:
        """Make memory usable by the DLA. The caller keeps the memory, which must outlive the registration.

        Hybrid mode takes a CUDA pointer (``cudlaMemRegister``), standalone mode an NvSciBuf object
        (``cudlaImportExternalMemory``).

        Raises:
            UsageError: the memory is null, too small, not aligned, or already registered (it then stays registered).
        """
        with self._turn:
            self._calls.refuse_unless(
                memory != 0 and size_bytes > 0, f"memory needs an address and a size: {memory:#x}, {size_bytes} bytes"
            )
            dla_address = self._registered(memory, size_bytes, access)
            registration = self._registrations[dla_address] = Registration(memory, size_bytes, dla_address, access)
            return registration

    def unregister(self, registration: Registration) -> None:
        """End a registration; the tasks that use it must be done (``cudlaMemUnregister``)."""
        with self._turn:
            held = self._registrations.get(registration.dla_address) is registration
            self._calls.refuse_unless(held, "the memory is not registered in this session")
            self._calls.refuse_unless(
                self.state is not DlaSessionState.BUSY, "tasks may still use the memory: call synchronize first"
            )
            self._calls.cudla("cudlaMemUnregister", self.handle, registration.dla_address)
            del self._registrations[registration.dla_address]

    def allocate(self, size_bytes: int, access: Access = Access.READ_WRITE) -> DeviceBuffer:
        """Allocate and register memory, which ``close`` frees."""
        with self._turn:
            self._calls.refuse_unless(size_bytes > 0, f"memory needs a size above 0: {size_bytes} bytes")
            memory = self._allocated(size_bytes)
            buffer = DeviceBuffer(memory, size_bytes, self.register(memory, size_bytes, access))
            self._buffers[memory] = buffer
            return buffer

    def free(self, buffer: DeviceBuffer) -> None:
        """Unregister a buffer and free its memory; the tasks that use it must be done."""
        with self._turn:
            self._calls.refuse_unless(
                self._buffers.get(buffer.memory) is buffer, "the buffer belongs to another session"
            )
            self.unregister(buffer.registration)
            self._calls.ask("freeing memory", partial(self._freed, buffer.memory))
            del self._buffers[buffer.memory]

    @abstractmethod
    def view(self, buffer: DeviceBuffer) -> NDArray[np.uint8] | None:
        """Return a buffer's memory as the processor sees it; None if only the device can reach the memory.

        Write and read the memory in place while no task uses it. Keep no view of the memory longer than the session.
        """

    @abstractmethod
    def host_array(self, size_bytes: int) -> NDArray[np.uint8]:
        """Return host memory for copies that need not wait. Keep no view of the memory: ``close`` frees it."""

    def upload(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        """Queue a copy of a contiguous array into a buffer; do not change the array before ``synchronize``."""
        with self._turn:
            self._check_copy(buffer, array)
            self._uploaded(buffer, array)

    def download(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        """Queue a copy of a buffer's beginning into a contiguous array, which is complete after ``synchronize``."""
        with self._turn:
            self._check_copy(buffer, array)
            self._downloaded(buffer, array)

    @abstractmethod
    def clear(self, buffer: DeviceBuffer) -> None:
        """Queue the filling of a buffer with zeros."""

    def submit(
        self,
        tasks: Sequence[DlaTask],
        *,
        stream: int | None = None,
        options: SubmitOption = SubmitOption.NONE,
        waits: Sequence[Fence] = (),
    ) -> None:
        """Queue tasks that run one after the other (``cudlaSubmitTask``). Returns before the tasks run.

        Args:
            tasks: at least one. Their memory must stay registered until all tasks are done.
            stream: for hybrid mode. The tasks wait for earlier work of this CUDA stream and of the session's own
                stream; later work of this CUDA stream waits for the tasks. None is the session's own stream.
            options: how the tasks are submitted.
            waits: for standalone mode. Fences that must be reached before the first task begins; no two at the same
                point.
        """
        with self._turn:
            self._calls.refuse_unless(tasks, "there is no task to submit")
            for task in tasks:
                fault = task_fault(task, self._module, self._registrations)
                self._calls.refuse_unless(not fault, fault)
            diagnostics = bool(options & SubmitOption.DIAGNOSTICS)
            self._calls.refuse_unless(
                diagnostics is self._diagnoses,
                "DIAGNOSTICS needs a module loaded with FAULT_DIAGNOSTICS",
            )
            self._queue(tasks, stream, options, waits)

    def _submitted(self, memory: TaskMemory, stream: int, options: SubmitOption) -> None:
        # cuDLA may wait here for room in its queue, but no longer than the queued tasks may take.
        self._deadlines.submitted(self._timing.clock(), memory.count)
        self._in_flight.append(memory)
        arguments = self.handle, memory.address, memory.count, stream, int(options)
        self._calls.cudla("cudlaSubmitTask", *arguments, limit_s=self._patience_s())
        self._calls.move(DlaEvent.SUBMIT)

    def synchronize(self) -> None:
        """Wait until everything submitted is done, and ask for late errors (``cudlaGetLastError``).

        The firmware counts as hung if the wait exceeds the time limits of all tasks together, plus the grace.
        """
        with self._turn:
            self._calls.refuse_if_over()
            self._settle()
            self._calls.move(DlaEvent.ENDED)

    def last_error(self) -> CudlaStatus:
        """Return the handle's latest asynchronous error, without raising or waiting (``cudlaGetLastError``)."""
        with self._turn:
            return self._calls.ask("cudlaGetLastError", lambda: self._library.last_error(self.handle))

    def set_task_limit(self, seconds: float) -> None:
        """From now on, limit how long a task may run (``cudlaSetTaskTimeoutInMs``).

        If cuDLA lacks that function, the watchdog abandons a task that exceeds the limit.
        """
        limits = replace(self._deadlines.limits, task_s=seconds)
        with self._turn:
            self._calls.refuse_unless(
                seconds <= _TASK_LIMIT_MAX_S, f"a task may take {_TASK_LIMIT_MAX_S:.0f} s at most"
            )
            self._limit_tasks(limits)
            self._deadlines.limits = limits

    def close(self) -> None:
        """Wait for the tasks, unregister and unload everything, and destroy the handle. Idempotent.

        A session that failed or hung is only abandoned, because destroying its handle may crash; the process must end.
        """
        with self._turn:
            if self.state in LIVE:
                self._end()
            elif self.state is not DlaSessionState.CLOSED:
                self._calls.move(DlaEvent.CLOSE)
            self._calls.close()

    def condemn(self, why: str) -> None:
        """Make the session FAILED because another session of the same process failed."""
        self._calls.condemn(why)

    def _limit_tasks(self, limits: TimeLimits) -> None:
        def limit() -> None:
            # Without this function (CUDA for Tegra lacks it) only the watchdog limits tasks.
            with suppress(FunctionMissing):
                self._library.call("cudlaSetTaskTimeoutInMs", self.handle, limits.task_ms)

        self._calls.ask("cudlaSetTaskTimeoutInMs", limit)

    def _check_copy(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        if not array.flags.c_contiguous or array.nbytes > buffer.size_bytes:
            message = f"an array of {array.nbytes} bytes does not fit a buffer of {buffer.size_bytes}, or has gaps"
            raise UsageError(message, "Give a contiguous array that is no larger than the buffer.")

    def _patience_s(self) -> float:
        return self._deadlines.patience_s(self._timing.clock())

    def _settle(self) -> None:
        """Wait for every task, and raise a late error: neither fences nor CUDA with error isolation report one."""
        self._wait_for_tasks()
        status = self.last_error()
        if status is not CudlaStatus.SUCCESS:
            self._calls.give_up(DlaEvent.FAIL, error_of("cudlaSubmitTask", status, self.device))
        self._deadlines.ended()
        self._in_flight.clear()

    def _end(self) -> None:
        if self.state is DlaSessionState.BUSY:
            self._calls.move(DlaEvent.CLOSE)
        try:
            if self.state is DlaSessionState.DRAINING:
                self._settle()
            self._calls.ask("releasing the handle", self._release)
        except CodecfleetError:
            if self.state in LIVE:
                self._calls.move(DlaEvent.FAIL)
            self._calls.move(DlaEvent.CLOSE)
            raise
        self._calls.move(DlaEvent.ENDED if self.state is DlaSessionState.DRAINING else DlaEvent.CLOSE)

    def _release(self) -> None:
        self._release_events()
        for registration in reversed(self._registrations.values()):
            self._library.call("cudlaMemUnregister", self.handle, registration.dla_address)
        self._registrations.clear()
        if self._module is not None:
            self._library.call("cudlaModuleUnload", self._module.handle, 0)
            self._module = None
        self._library.call("cudlaDestroyDevice", self.handle)
        for memory in self._buffers:
            self._freed(memory)
        self._buffers.clear()
        self._end_side()
        self._host.forget(self)

    @abstractmethod
    def _begin(self) -> None:
        """Open everything that the handle requires. Called before the handle is created, in the session's thread."""

    def _prepare(self) -> None:
        """Set up everything that requires the handle."""

    @abstractmethod
    def _registered(self, memory: int, size_bytes: int, access: Access) -> int:
        """Register memory; return the address that the DLA uses for it."""

    @abstractmethod
    def _allocated(self, size_bytes: int) -> int:
        """Return new memory in the form that ``register`` takes."""

    @abstractmethod
    def _freed(self, memory: int) -> None:
        """Free memory that ``_allocated`` returned. Called in the session's thread."""

    @abstractmethod
    def _uploaded(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        """Begin to copy into a buffer."""

    @abstractmethod
    def _downloaded(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        """Begin to copy out of a buffer."""

    @abstractmethod
    def _queue(
        self, tasks: Sequence[DlaTask], stream: int | None, options: SubmitOption, waits: Sequence[Fence]
    ) -> None:
        """Submit tasks that have been checked."""

    @abstractmethod
    def _wait_for_tasks(self) -> None:
        """Wait until every task is done, successfully or not."""

    def _release_events(self) -> None:
        """Unregister sync objects before the handle is destroyed. Called in the session's thread."""

    @abstractmethod
    def _end_side(self) -> None:
        """Close everything that ``_begin`` opened. Called in the session's thread."""
