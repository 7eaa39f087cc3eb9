"""A DLA beside CUDA: a loadable, its memory, and the tasks that run it."""

import ctypes
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ....errors import CodecfleetError, UsageError
from .cuda_calls import CudaCalls
from .library import DESCRIPTORS, CudlaBinding
from .session_calls import SessionCalls
from .states import LIVE, DlaEvent, DlaSessionState
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
_HYBRID = 0
_NON_BLOCKING = 1
_PER_THREAD_STREAM = 2
"""CU_STREAM_PER_THREAD, which cuDLA does not support (CUDA for Tegra 5.4)."""
_UNIFIED_ADDRESSING, _DEVICE_VERSION = 0, 1


class DlaSession:
    """One cuDLA device handle in hybrid mode (``CUDLA_CUDA_DLA``): a loadable, its memory, and the tasks that run it.

    Open it with ``DlaHost.open``. Tasks and copies keep the order of the session's CUDA stream; put kernels of your own
    between them through ``stream``. Not for memory of CUDA's virtual memory management (5.4).

    Tasks are asynchronous: ``submit`` returns when they are queued; a later call, at the latest ``synchronize``,
    reports their errors. cuDLA makes every error but one final (CUDA for Tegra 5.4): the session is then FAILED, every
    further call raises ``DeviceLost``, and its process has to end. The exception is registering memory twice.

    Every method may be called from any thread; one session's calls are serialised. Every method may raise, beside what
    it names:

        DeviceLost: cuDLA or CUDA failed, now or earlier. Final.
        EngineFailed: the engine aborted a task, possibly of an earlier submission. Final.
        EngineHung: a call or a task did not end within its time limit. Final; the process cannot be saved.
        UsageError: the call is invalid (a closed session, a foreign module, a buffer too small). Changes nothing.
    """

    device: int
    """The number of the DLA."""
    stream: int
    """The session's own CUDA stream (a CUstream); work put into it keeps its order with the tasks."""

    def __init__(self, library: CudlaBinding, cuda: CudaCalls, device: int, timing: Timing, host: "DlaHost") -> None:
        self._library, self._cuda, self._host = library, cuda, host
        self.device = device
        self._timing = timing
        self._calls = SessionCalls(library, cuda, device, timing, host)
        self._deadlines = Deadlines(timing.limits)
        self._turn = threading.RLock()
        self.stream = 0
        self._has_loaded = False
        self._diagnoses = False
        self._module: DlaModule | None = None
        self._registrations: dict[int, Registration] = {}
        self._buffers: dict[int, DeviceBuffer] = {}
        self._locked: list[int] = []
        self._in_flight: list[TaskMemory] = []
        self._copied_arrays: list[NDArray[Any]] = []
        self._streams: set[int] = set()
        try:
            self.stream = self._calls.ask("starting CUDA", self._enter)
            self._calls.handle = int(self._calls.cudla("cudlaCreateDevice", device, _HYBRID))
            self._limit_tasks(timing.limits)
        except CodecfleetError:
            self._calls.close()
            raise

    @property
    def handle(self) -> int:
        """The cuDLA handle."""
        return self._calls.handle

    @property
    def state(self) -> DlaSessionState:
        """Where the session stands."""
        return self._calls.state

    def attributes(self) -> DeviceAttributes:
        """Return the device's attributes (``cudlaDeviceGetAttribute``)."""
        with self._turn:
            shared, version = (
                self._calls.cudla("cudlaDeviceGetAttribute", self.handle, which)
                for which in (_UNIFIED_ADDRESSING, _DEVICE_VERSION)
            )
        return DeviceAttributes(bool(shared.unified_addressing_supported), int(version.device_version))

    def load(self, loadable: bytes, options: LoadOption = LoadOption.NONE) -> DlaModule:
        """Load a loadable (``cudlaModuleLoadFromMemory``, ``cudlaModuleGetAttributes``).

        A handle takes one in its life (cuDLA API reference); ``close`` unloads it.

        Args:
            loadable: what TensorRT built; ``b""`` with ``FAULT_DIAGNOSTICS``.
            options: how to load.

        Raises:
            Unsupported: not a loadable, or not for this DLA and its software. Final for this session.
            UsageError: the session has had a loadable.
        """
        with self._turn:
            self._calls.refuse_unless(
                not self._has_loaded, "a handle takes one loadable in its life: open another session"
            )
            diagnostics = bool(options & LoadOption.FAULT_DIAGNOSTICS)
            self._calls.refuse_unless(
                diagnostics is not bool(loadable), "there is no loadable, or it is the library's own"
            )
            self._has_loaded = True
            # No bytes are passed on as no address.
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
        """Make CUDA memory usable by the DLA (``cudlaMemRegister``). It stays the caller's, and must outlive this.

        Raises:
            UsageError: it is registered already, and the earlier registration remains; or it is managed memory (5.4).
        """
        with self._turn:
            self._calls.refuse_unless(memory != 0 and size_bytes > 0, f"no memory: {memory:#x}, {size_bytes} bytes")
            is_managed = self._calls.ask("cuPointerGetAttribute", partial(self._cuda.is_managed, memory))
            self._calls.refuse_unless(not is_managed, "cuDLA takes no managed memory: use cuMemAlloc's, or allocate")
            dla_address = int(self._calls.cudla("cudlaMemRegister", self.handle, memory, size_bytes, int(access)))
            registration = self._registrations[dla_address] = Registration(memory, size_bytes, dla_address, access)
            return registration

    def unregister(self, registration: Registration) -> None:
        """Take memory from the DLA; its tasks must be done (``cudlaMemUnregister``)."""
        with self._turn:
            held = self._registrations.get(registration.dla_address) is registration
            self._calls.refuse_unless(held, "the memory is not registered in this session")
            self._calls.refuse_unless(
                self.state is not DlaSessionState.BUSY, "tasks may still use the memory: synchronize"
            )
            self._calls.cudla("cudlaMemUnregister", self.handle, registration.dla_address)
            del self._registrations[registration.dla_address]

    def allocate(self, size_bytes: int, access: Access = Access.READ_WRITE) -> DeviceBuffer:
        """Allocate device memory and register it; ``close`` frees it."""
        with self._turn:
            self._calls.refuse_unless(size_bytes > 0, f"no memory: {size_bytes} bytes")
            memory = int(self._calls.cu("cuMemAlloc", size_bytes))
            buffer = DeviceBuffer(memory, size_bytes, self.register(memory, size_bytes, access))
            self._buffers[memory] = buffer
            return buffer

    def free(self, buffer: DeviceBuffer) -> None:
        """Unregister a buffer and free its memory; its tasks must be done."""
        with self._turn:
            self._calls.refuse_unless(self._buffers.get(buffer.memory) is buffer, "the buffer is not this session's")
            self.unregister(buffer.registration)
            self._calls.cu("cuMemFree", buffer.memory)
            del self._buffers[buffer.memory]

    def host_array(self, size_bytes: int) -> NDArray[np.uint8]:
        """Return page-locked memory for ``upload`` and ``download``, which do not hold up the caller with it.

        ``close`` frees it: keep no view of it longer than the session.
        """
        with self._turn:
            self._calls.refuse_unless(size_bytes > 0, f"no memory: {size_bytes} bytes")
            address = int(self._calls.cu("cuMemHostAlloc", size_bytes, 0))
            self._locked.append(address)
            return np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(address))

    def upload(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        """Queue a copy of a contiguous array into a buffer; do not change the array before ``synchronize``."""
        self._copy(buffer, array, "cuMemcpyHtoDAsync", buffer.memory, int(array.ctypes.data))

    def download(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        """Queue a copy of a buffer's beginning into a contiguous array; it is there after ``synchronize``."""
        self._copy(buffer, array, "cuMemcpyDtoHAsync", int(array.ctypes.data), buffer.memory)

    def clear(self, buffer: DeviceBuffer) -> None:
        """Queue the filling of a buffer with zeros."""
        with self._turn:
            self._put("cuMemsetD8Async", buffer.memory, 0, buffer.size_bytes)

    def submit(
        self, tasks: Sequence[DlaTask], *, stream: int | None = None, options: SubmitOption = SubmitOption.NONE
    ) -> None:
        """Queue tasks, to run one after the other (``cudlaSubmitTask``). Returns before they run.

        Args:
            tasks: at least one. Their memory must stay registered until they are done.
            stream: the CUDA stream whose earlier work they wait for, and whose later work waits for them; None is the
                session's own.
            options: how to submit.
        """
        with self._turn:
            self._calls.refuse_unless(tasks, "there is no task to submit")
            for task in tasks:
                fault = task_fault(task, self._module, self._registrations)
                self._calls.refuse_unless(not fault, fault)
            diagnostics = bool(options & SubmitOption.DIAGNOSTICS)
            self._calls.refuse_unless(
                diagnostics is self._diagnoses, "diagnostics run their own module, and nothing else does"
            )
            self._calls.refuse_unless(
                stream != _PER_THREAD_STREAM, "cuDLA does not support the per-thread default stream"
            )
            where = self.stream if stream is None else stream
            is_capturing = int(self._calls.cu("cuStreamIsCapturing", where)) != 0
            self._calls.refuse_unless(not is_capturing, "cuDLA has no CUDA graphs: submit after the stream's capture")
            memory = TaskMemory(tasks)
            # cuDLA may wait in here for room in its queue: as long as what is queued may take.
            self._deadlines.submitted(self._timing.clock(), len(tasks))
            self._in_flight.append(memory)
            arguments = self.handle, memory.address, memory.count, where, int(options)
            self._calls.cudla("cudlaSubmitTask", *arguments, limit_s=self._patience_s())
            self._calls.move(DlaEvent.SUBMIT)
            self._streams.add(where)

    def synchronize(self) -> None:
        """Wait until everything submitted is done, and ask for late errors (``cudlaGetLastError``).

        It waits for each task's time limit, one after the other, plus the grace; then the firmware counts as hung.
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
        """Limit how long one task may run from now on (``cudlaSetTaskTimeoutInMs``).

        Where cuDLA lacks that function, the watchdog gives up a task that exceeds the limit.
        """
        limits = replace(self._deadlines.limits, task_s=seconds)
        with self._turn:
            self._calls.refuse_unless(
                seconds <= _TASK_LIMIT_MAX_S, f"a task may take {_TASK_LIMIT_MAX_S:.0f} s at most"
            )
            self._limit_tasks(limits)
            self._deadlines.limits = limits

    def close(self) -> None:
        """Wait for the tasks, unregister and unload everything, destroy the handle. Idempotent.

        A session that failed or hung is abandoned: destroying a handle under a task may crash, so the process must end.
        """
        with self._turn:
            if self.state in LIVE:
                self._end()
            elif self.state is not DlaSessionState.CLOSED:
                self._calls.move(DlaEvent.CLOSE)
            self._calls.close()

    def condemn(self, why: str) -> None:
        """Make the session FAILED because another one of the same process failed."""
        self._calls.condemn(why)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _enter(self) -> int:
        self._cuda.enter()
        return int(self._cuda.call("cuStreamCreate", _NON_BLOCKING))

    def _limit_tasks(self, limits: TimeLimits) -> None:
        def limit() -> None:
            # A cuDLA without this function (CUDA for Tegra lacks it) leaves the limit to the watchdog.
            with suppress(FunctionMissing):
                self._library.call("cudlaSetTaskTimeoutInMs", self.handle, limits.task_ms)

        self._calls.ask("cudlaSetTaskTimeoutInMs", limit)

    def _copy(self, buffer: DeviceBuffer, array: NDArray[Any], function: str, target: int, source: int) -> None:
        with self._turn:
            if not array.flags.c_contiguous or array.nbytes > buffer.size_bytes:
                message = f"an array of {array.nbytes} bytes does not fit a buffer of {buffer.size_bytes}, or has gaps"
                raise UsageError(message, "Give a contiguous array of the buffer's size at most.")
            self._copied_arrays.append(array)
            self._put(function, target, source, array.nbytes)

    def _put(self, function: str, *arguments: int) -> None:
        """Put work of CUDA's into the stream. It may wait for tasks in front of it, as pageable copies do."""
        self._streams.add(self.stream)
        limit_s = self._patience_s() if self.state is DlaSessionState.BUSY else None
        self._calls.ask("a CUDA copy", lambda: self._cuda.call(function, *arguments, self.stream), limit_s)

    def _patience_s(self) -> float:
        return self._deadlines.patience_s(self._timing.clock())

    def _settle(self) -> None:
        """Wait for every task, and raise a late error: with isolation on, CUDA does not report it."""
        for stream in sorted(self._streams):
            self._calls.cu("cuStreamSynchronize", stream, limit_s=self._patience_s())
        self._streams.clear()
        self._copied_arrays.clear()
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
        for registration in reversed(self._registrations.values()):
            self._library.call("cudlaMemUnregister", self.handle, registration.dla_address)
        self._registrations.clear()
        if self._module is not None:
            self._library.call("cudlaModuleUnload", self._module.handle, 0)
            self._module = None
        self._library.call("cudlaDestroyDevice", self.handle)
        for memory in self._buffers:
            self._cuda.call("cuMemFree", memory)
        self._buffers.clear()
        for address in self._locked:
            self._cuda.call("cuMemFreeHost", address)
        self._locked.clear()
        self._cuda.call("cuStreamDestroy", self.stream)
        self._host.forget(self)
