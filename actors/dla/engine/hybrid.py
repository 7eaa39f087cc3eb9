"""A DLA used with CUDA: device memory, page-locked host memory, and streams that order copies, kernels and tasks."""

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...device.memory_choice import BufferUse, MemoryChoice, Party
from ..nvsci.syncs import Fence
from .cuda_calls import CudaCalls
from .library import Cudla
from .session import DlaSession
from .states import DlaMode, DlaSessionState
from .tasks import Access, DeviceBuffer, DlaTask, SubmitOption, TaskMemory
from .watchdog import Timing

if TYPE_CHECKING:
    from .host import DlaHost

_TENSOR = Party.GPU | Party.DLA
"""The users of a tensor's memory: the DLA, and CUDA, which copies or converts the data."""
_COPIED = Party.HOST | Party.GPU
"""The users of host memory through which CUDA copies data: the processor and the GPU."""
_NON_BLOCKING = 1
_WITHOUT_TIMES = 2
"""CU_EVENT_DISABLE_TIMING."""
_PER_THREAD_STREAM = 2
"""CU_STREAM_PER_THREAD, which cuDLA does not support (CUDA for Tegra, section 5.4)."""


class HybridSession(DlaSession):
    """One cuDLA device handle in hybrid mode (``CUDLA_CUDA_DLA``).

    Tasks and copies run in the order of the session's CUDA stream; use ``stream`` to put your own kernels between them.
    Memory of CUDA's virtual memory management is not supported (CUDA for Tegra, section 5.4).
    """

    mode: ClassVar = DlaMode.HYBRID
    stream: int  # the session's own CUDA stream (a CUstream), which orders tasks and other work

    def __init__(self, library: Cudla, cuda: CudaCalls, device: int, timing: Timing, host: "DlaHost") -> None:
        self._cuda = cuda
        self.stream = 0
        self._event = 0
        self._memory: dict[int, MemoryChoice] = {}
        self._host_memory: list[tuple[MemoryChoice, int]] = []
        self._copied_arrays: list[NDArray[Any]] = []
        self._streams: set[int] = set()  # streams whose queued work may still be running
        self._foreign: set[int] = set()  # those of ``_streams`` for which the session's own stream does not wait yet
        super().__init__(library, device, timing, host)

    @property
    def context(self) -> int:
        """The CUDA context (a CUcontext) of the GPU with which the DLA is coupled."""
        return self._cuda.context

    def view(self, buffer: DeviceBuffer) -> None:
        """Return None: a hybrid DLA uses device memory, which the processor cannot reach (CUDA for Tegra, Table 1)."""

    def host_array(self, size_bytes: int) -> NDArray[np.uint8]:
        """Return new page-locked memory, of the kind that ``choose_memory`` chooses for CUDA's copies."""
        with self._turn:
            self._calls.refuse_unless(size_bytes > 0, f"memory needs a size above 0: {size_bytes} bytes")
            use = BufferUse(size_bytes=size_bytes, writers=_COPIED, readers=_COPIED)
            choice, address = self._calls.ask("allocating host memory", partial(self._cuda.allocate, use))
            self._host_memory.append((choice, address))
            return np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(address))

    def clear(self, buffer: DeviceBuffer) -> None:
        """Queue the filling of a buffer with zeros."""
        with self._turn:
            self._put("cuMemsetD8Async", buffer.memory, 0, buffer.size_bytes)

    def _begin(self) -> None:
        self._cuda.enter()
        self.stream = int(self._cuda.call("cuStreamCreate", _NON_BLOCKING))
        self._event = int(self._cuda.call("cuEventCreate", _WITHOUT_TIMES))

    def _registered(self, memory: int, size_bytes: int, access: Access) -> int:
        is_managed = self._calls.ask("cuPointerGetAttribute", partial(self._cuda.is_managed, memory))
        self._calls.refuse_unless(
            not is_managed, "cuDLA takes no managed memory: use cuMemAlloc, or this session's allocate"
        )
        return int(self._calls.cudla("cudlaMemRegister", self.handle, memory, size_bytes, int(access)))

    def _allocated(self, size_bytes: int) -> int:
        use = BufferUse(size_bytes=size_bytes, writers=_TENSOR, readers=_TENSOR)
        choice, address = self._calls.ask("allocating memory", partial(self._cuda.allocate, use))
        self._memory[address] = choice
        return address

    def _freed(self, memory: int) -> None:
        self._cuda.free(self._memory.pop(memory), memory)

    def _uploaded(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        self._copied_arrays.append(array)
        self._put("cuMemcpyHtoDAsync", buffer.memory, int(array.ctypes.data), array.nbytes)

    def _downloaded(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        self._copied_arrays.append(array)
        self._put("cuMemcpyDtoHAsync", int(array.ctypes.data), buffer.memory, array.nbytes)

    def _queue(
        self, tasks: Sequence[DlaTask], stream: int | None, options: SubmitOption, waits: Sequence[Fence]
    ) -> None:
        self._calls.refuse_unless(not waits, "fences belong to standalone mode: put the wait into the stream")
        self._calls.refuse_unless(stream != _PER_THREAD_STREAM, "cuDLA does not support the per-thread default stream")
        where = self.stream if stream is None else stream
        is_capturing = int(self._cu("cuStreamIsCapturing", where)) != 0
        self._calls.refuse_unless(not is_capturing, "cuDLA does not support CUDA graphs: submit after the capture")
        self._order(self.stream, where)  # uploads come before the tasks
        self._submitted(TaskMemory(tasks), where, options)
        self._streams.add(where)
        self._foreign |= {where} - {self.stream}

    def _order(self, first: int, then: int) -> None:
        """Make later work of a stream wait for the current work of another stream."""
        if first != then:
            self._cu("cuEventRecord", self._event, first, limit_s=self._patience_s())
            self._cu("cuStreamWaitEvent", then, self._event, 0)

    def _put(self, function: str, *arguments: int) -> None:
        """Put CUDA work into the stream. This call may wait for earlier tasks, as copies of pageable memory do."""
        while self._foreign:
            self._order(self._foreign.pop(), self.stream)  # downloads come after the tasks
        self._streams.add(self.stream)
        limit_s = self._patience_s() if self.state is DlaSessionState.BUSY else None
        self._calls.ask("a CUDA copy", lambda: self._cuda.call(function, *arguments, self.stream), limit_s)

    def _wait_for_tasks(self) -> None:
        for stream in sorted(self._streams):
            self._cu("cuStreamSynchronize", stream, limit_s=self._patience_s())
        self._streams.clear()
        self._foreign.clear()
        self._copied_arrays.clear()

    def _end_side(self) -> None:
        for choice, address in self._host_memory:
            self._cuda.free(choice, address)
        self._host_memory.clear()
        self._cuda.call("cuEventDestroy", self._event)
        self._cuda.call("cuStreamDestroy", self.stream)

    def _cu(self, function: str, *arguments: object, limit_s: float | None = None) -> Any:
        return self._calls.ask(function, lambda: self._cuda.call(function, *arguments), limit_s)
