"""A DLA beside CUDA: tasks run in the order of CUDA streams, between copies and kernels, on CUDA's memory."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ....errors import CodecfleetError, UsageError
from .cuda_calls import EXTERNAL_DEVICE, CudaCalls, CudaFailure, lost
from .library import CudlaBinding
from .session import DlaSession, Timing
from .states import DlaSessionState
from .statuses import CudlaFailure, CudlaStatus, error_of
from .tasks import Access, Registration

if TYPE_CHECKING:
    from .host import DlaHost


ResultT = TypeVar("ResultT")

_TASKS: Final = "cudlaSubmitTask"
"""What an engine's error is put down to: a task that was submitted at some time."""


@dataclass(frozen=True, slots=True)
class DeviceBuffer:
    """Device memory of a session's own, registered with its DLA."""

    memory: int
    size_bytes: int
    registration: Registration


class HybridSession(DlaSession):
    """``DlaSession`` in hybrid mode (``CUDLA_CUDA_DLA``). Open it with ``DlaHost.open``.

    It adds a CUDA stream, memory and copies, all in the stream's order. Put kernels of your own between them through
    ``stream``. Not for managed memory, CUDA's virtual memory management or streams under graph capture (5.4).
    """

    def __init__(self, library: CudlaBinding, cuda: CudaCalls, device: int, timing: Timing, host: "DlaHost") -> None:
        super().__init__(library, device, timing)
        self._cuda = cuda
        self._host = host
        self._stream = 0
        self._buffers: dict[int, DeviceBuffer] = {}
        self._host_arrays: list[NDArray[Any]] = []
        self._locked: list[int] = []
        self._open()

    @property
    def handle(self) -> int:
        """The cuDLA handle."""
        return self._handle

    @property
    def stream(self) -> int:
        """The session's own CUDA stream (a CUstream); work put into it keeps its order with the tasks."""
        return self._stream

    def allocate(self, size_bytes: int, access: Access = Access.READ_WRITE) -> DeviceBuffer:
        """Allocate device memory and register it; ``close`` frees it."""
        with self._turn:
            self._refuse_unless(size_bytes > 0, f"no memory: {size_bytes} bytes")
            memory = self._ask("cuMemAlloc", lambda: self._mapped(lambda: self._cuda.allocate(size_bytes)))
            buffer = DeviceBuffer(memory, size_bytes, self.register(memory, size_bytes, access))
            self._buffers[memory] = buffer
            return buffer

    def free(self, buffer: DeviceBuffer) -> None:
        """Unregister a buffer and free its memory; its tasks must be done."""
        with self._turn:
            self._refuse_unless(self._buffers.get(buffer.memory) is buffer, "the buffer is not this session's")
            self.unregister(buffer.registration)
            self._ask("cuMemFree", lambda: self._mapped(lambda: self._cuda.free(buffer.memory)))
            del self._buffers[buffer.memory]

    def host_array(self, size_bytes: int) -> NDArray[np.uint8]:
        """Return page-locked memory for ``upload`` and ``download``, which do not hold up the caller with it.

        ``close`` frees it: keep no view of it longer than the session.
        """
        with self._turn:
            self._refuse_unless(size_bytes > 0, f"no memory: {size_bytes} bytes")
            address = self._ask("cuMemHostAlloc", lambda: self._mapped(lambda: self._cuda.allocate_host(size_bytes)))
            self._locked.append(address)
            return np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(address))

    def upload(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        """Queue a copy of a contiguous array into a buffer; do not change the array before ``synchronize``."""
        self._copy(buffer, array, lambda: self._cuda.copy_in(buffer.memory, *_span(array), self._stream))

    def download(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        """Queue a copy of a buffer's beginning into a contiguous array; it is there after ``synchronize``."""
        address, size_bytes = _span(array)
        self._copy(buffer, array, lambda: self._cuda.copy_out(address, buffer.memory, size_bytes, self._stream))

    def clear(self, buffer: DeviceBuffer) -> None:
        """Queue the filling of a buffer with zeros."""
        with self._turn:
            self._put(lambda: self._cuda.fill(buffer.memory, 0, buffer.size_bytes, self._stream))

    def _copy(self, buffer: DeviceBuffer, array: NDArray[Any], copy: Callable[[], None]) -> None:
        with self._turn:
            if not array.flags.c_contiguous or array.nbytes > buffer.size_bytes:
                message = f"an array of {array.nbytes} bytes does not fit a buffer of {buffer.size_bytes}, or has gaps"
                raise UsageError(message, "Give a contiguous array of the buffer's size at most.")
            self._host_arrays.append(array)
            self._put(copy)

    def _put(self, call: Callable[[], None]) -> None:
        """Put work of CUDA's into the stream. It may wait for tasks in front of it, as pageable copies do."""
        self._streams.add(self._stream)
        busy = self._state is DlaSessionState.BUSY
        limit_s = self._deadlines.patience_s(self._timing.clock()) if busy else self._timing.limits.call_s
        self._ask("a CUDA copy", lambda: self._mapped(call), limit_s)

    def _enter(self) -> None:
        self._mapped(self._cuda.enter)
        self._stream = self._mapped(self._cuda.create_stream)

    def _leave(self) -> None:
        for buffer in self._buffers.values():
            self._mapped(partial(self._cuda.free, buffer.memory))
        self._buffers.clear()
        for address in self._locked:
            self._mapped(partial(self._cuda.free_host, address))
        self._locked.clear()
        self._mapped(lambda: self._cuda.destroy_stream(self._stream))
        self._host.forget(self)

    def _own_stream(self) -> int:
        return self._stream

    def _wait_for_tasks(self) -> None:
        for stream in sorted(self._streams):
            wait = partial(self._mapped, partial(self._cuda.wait_for, stream))
            self._ask("cuStreamSynchronize", wait, self._deadlines.patience_s(self._timing.clock()))
        self._streams.clear()
        self._host_arrays.clear()

    def _failed_finally(self, error: CodecfleetError) -> None:
        self._host.condemn(error)

    def _mapped(self, call: Callable[[], ResultT]) -> ResultT:
        """Make a failure of CUDA one of cuDLA, where CUDA says that an engine is to blame."""
        try:
            return call()
        except CudaFailure as failure:
            if failure.code != EXTERNAL_DEVICE:
                raise _Lost(lost(failure, self._device)) from None
            found = self._host.guilty(self._library)
            own = self._library.last_error(self._handle) if self._handle else CudlaStatus.SUCCESS
            if own is not CudlaStatus.SUCCESS:
                raise CudlaFailure(_TASKS, own) from None
            if found:
                device, status = next(iter(found.items()))
                raise _Lost(error_of(_TASKS, status, device)) from None
            raise _Lost(lost(failure, self._device)) from None

    def _ask(self, what: str, call: Callable[[], ResultT], limit_s: float | None = None) -> ResultT:
        try:
            return super()._ask(what, call, limit_s)
        except _Lost as failure:
            self._fail(failure.error)


class _Lost(Exception):
    """Carries an error that is made already from the session's thread to its caller."""

    def __init__(self, error: CodecfleetError) -> None:
        super().__init__(error)
        self.error = error


def _span(array: NDArray[Any]) -> tuple[int, int]:
    return int(array.ctypes.data), array.nbytes
