"""A CUDA driver for machines without a GPU, with one device whose memory is host memory.

The fake proves nothing about a real driver. Streams do their work only when they are synchronised, new memory holds
noise, and copies of memory that is not allocated fail. The calls are those of ``actors/nvidia/cuda/context.py``, after
the CUDA Driver API.
"""

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

CONTEXT: Final = 0xC0DE
"""The handle that the fake gives to its only context."""
NOISE: Final = 0xA5
"""The content of memory that was not written."""
_FIRST_STREAM: Final = 0x5700
_FIRST_EVENT: Final = 0xE000
_POOLS, _NO_TIMING = 115, 2
_INVALID_VALUE, _ILLEGAL_ADDRESS = 1, 700
_GLOBAL, _HOST = 1, 2
_NAMES: Final = {0: "CUDA_SUCCESS", 2: "CUDA_ERROR_OUT_OF_MEMORY", 999: "CUDA_ERROR_UNKNOWN"}
_KERNEL_ARGUMENTS: Final = (*[ctypes.c_uint64] * 2, *[ctypes.c_int] * 6, *[ctypes.c_int64] * 2, *[ctypes.c_int] * 2)

Answer = tuple[Any, ...]


class _Result(int):
    """A status code like the driver's CUresult: an integer with a ``name``."""

    @property
    def name(self) -> str:
        return _NAMES.get(self, f"CUDA_ERROR_{int(self)}")


@dataclass
class FakeCudaDriver:
    """``cuda.bindings.driver`` with one device whose memory is host memory. Thread-safe, as the driver is."""

    faults: dict[str, int] = field(default_factory=dict)  # the result of each function that shall fail
    fails_after: dict[str, int] = field(default_factory=dict)  # how many calls of each function succeed before it fails
    calls: dict[str, int] = field(default_factory=dict)  # how many times each function was called
    memory: dict[int, Any] = field(default_factory=dict)  # allocated memory, by address
    streams: dict[int, list[Callable[[], int]]] = field(default_factory=dict)  # the queued work of each open stream
    # the attributes of the device, by number
    attributes: dict[int, int] = field(default_factory=lambda: {18: 0, 75: 9, 76: 0})
    # flags of managed memory, by address; kernels that use memory with the flag _HOST fail
    attached: dict[int, int] = field(default_factory=dict)
    default_streams: dict[int, list[Callable[[], int]]] = field(default_factory=lambda: {1: [], 2: []})
    streams_made: int = 0
    events: dict[int, tuple[int, Callable[[], int]] | None] = field(
        default_factory=dict
    )  # open events, each with its latest recording
    pools: bool = True  # whether the device has memory pools
    pushed: int = 0  # how many contexts are pushed
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)
    _working: threading.RLock = field(default_factory=threading.RLock, repr=False)

    class CUstream_flags:
        """Flags of ``cuStreamCreate``."""

        CU_STREAM_NON_BLOCKING = 1

    CUfunction: Callable[[int], int] = int
    CUcontext: Callable[[int], int] = int
    CUdevice_attribute: Callable[[int], int] = int

    def cuInit(self, flags: int) -> Answer:
        return self._answer("cuInit", valid=flags == 0)

    def cuDeviceGet(self, ordinal: int) -> Answer:
        return self._answer("cuDeviceGet", ordinal, valid=ordinal == 0)

    def cuDevicePrimaryCtxRetain(self, device: int) -> Answer:
        return self._answer("cuDevicePrimaryCtxRetain", CONTEXT, valid=device == 0)

    def cuDeviceGetCount(self) -> Answer:
        return self._answer("cuDeviceGetCount", 1)

    def cuCtxGetDevice(self) -> Answer:
        return self._answer("cuCtxGetDevice", 0)

    def cuCtxPushCurrent(self, context: int) -> Answer:
        answer = self._answer("cuCtxPushCurrent", valid=context == CONTEXT)
        with self._lock:
            self.pushed += not answer[0]
        return answer

    def cuCtxPopCurrent(self) -> Answer:
        with self._lock:
            self.pushed -= 1
        return self._answer("cuCtxPopCurrent", CONTEXT)

    def cuMemGetInfo(self) -> Answer:
        return self._answer("cuMemGetInfo", 1 << 30, 2 << 30)

    def cuMemHostAlloc(self, size_bytes: int, flags: int) -> Answer:
        return self._allocated("cuMemHostAlloc", size_bytes, valid=flags == 0)

    def cuMemFreeHost(self, address: int) -> Answer:
        return self._freed("cuMemFreeHost", address)

    def cuMemAlloc(self, size_bytes: int) -> Answer:
        return self._allocated("cuMemAlloc", size_bytes)

    def cuMemFree(self, address: int) -> Answer:
        """Do all queued work of all streams, then free memory."""
        for stream in [*self.default_streams, *self.streams]:
            self._run(stream)
        return self._freed("cuMemFree", address)

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> Answer:
        found = {**self.attributes, _POOLS: int(self.pools)}
        return self._answer("cuDeviceGetAttribute", found[attribute], valid=device == 0)

    def cuMemAllocManaged(self, size_bytes: int, attached: int) -> Answer:
        answer = self._allocated("cuMemAllocManaged", size_bytes, valid=attached in (_GLOBAL, _HOST))
        if not answer[0]:
            self.attached[answer[1]] = attached
        return answer

    def cuStreamAttachMemAsync(self, stream: int, address: int, length: int, to: int) -> Answer:
        def attach() -> int:
            self.attached[address] = to
            return 0

        name = "cuStreamAttachMemAsync"
        if length or address not in self.attached or to not in (_GLOBAL, _HOST):
            return self._answer(name, valid=False)
        return self._queued(name, stream, attach)

    def cuStreamCreate(self, flags: int) -> Answer:
        with self._lock:
            self.streams_made += 1
            handle = _FIRST_STREAM + self.streams_made
            answer = self._answer("cuStreamCreate", handle, valid=flags == 1)
            if not answer[0]:
                self.streams[handle] = []
            return answer

    def cuStreamDestroy(self, stream: int) -> Answer:
        return self._answer("cuStreamDestroy", valid=self.streams.pop(int(stream), None) is not None)

    def cuEventCreate(self, flags: int) -> Answer:
        with self._lock:
            handle = _FIRST_EVENT + self.calls.get("cuEventCreate", 0)
            answer = self._answer("cuEventCreate", handle, valid=flags == _NO_TIMING)
            if not answer[0]:
                self.events[handle] = None
            return answer

    def cuEventRecord(self, event: int, stream: int) -> Answer:
        """Record an event in a stream; the event is complete when all earlier work of the stream is done."""

        def happened() -> int:
            return 0

        answer = self._queued("cuEventRecord", stream, happened)
        if not answer[0]:
            self.events[event] = (int(stream), happened)
        return answer

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> Answer:
        """Make a stream wait for the work before the latest recording of an event."""
        recorded = self.events[event]
        if recorded is None:
            return self._answer("cuStreamWaitEvent", valid=flags == 0)
        return self._queued("cuStreamWaitEvent", stream, lambda: self._run(*recorded))

    def cuMemAllocAsync(self, size_bytes: int, stream: int) -> Answer:
        return self._allocated("cuMemAllocAsync", size_bytes, valid=self.pools and int(stream) in self.streams)

    def cuMemFreeAsync(self, address: int, stream: int) -> Answer:
        return self._queued("cuMemFreeAsync", stream, lambda: int(self._freed("cuMemFree", address)[0]))

    def cuStreamSynchronize(self, stream: int) -> Answer:
        """Do all queued work of a stream now."""
        failed = self._run(int(stream))
        return (_Result(failed),) if failed else self._answer("cuStreamSynchronize")

    def _run(self, stream: int, last: Callable[[], int] | None = None) -> int:
        """Do the work of a stream up to ``last``, unless that is already done; return the last failure."""
        queue = self._queue(stream)
        failed = 0
        with self._working:
            while queue and (last is None or last in queue):
                failed = queue.pop(0)() or failed
        return failed

    def _queue(self, stream: int) -> list[Callable[[], int]]:
        return (self.default_streams if stream in self.default_streams else self.streams).get(stream, [])

    def cuCtxSynchronize(self) -> Answer:
        for stream in [*self.default_streams, *self.streams]:
            self.cuStreamSynchronize(stream)
        return self._answer("cuCtxSynchronize")

    def cuMemcpyDtoHAsync(self, host: int, device: int, size_bytes: int, stream: int) -> Answer:
        return self._queued("cuMemcpyDtoHAsync", stream, lambda: self._copy(host, device, size_bytes))

    def cuMemcpyHtoDAsync(self, device: int, host: int, size_bytes: int, stream: int) -> Answer:
        return self._queued("cuMemcpyHtoDAsync", stream, lambda: self._copy(device, host, size_bytes))

    def cuMemcpyDtoDAsync(self, target: int, source: int, size_bytes: int, stream: int) -> Answer:
        return self._queued("cuMemcpyDtoDAsync", stream, lambda: self._copy(target, source, size_bytes))

    def cuLaunchKernel(self, function: int, *shape_and_more: int) -> Answer:
        """Launch the kernel that unpacks surfaces in a stream; ``function`` is the size of a sample in bytes."""
        *_, stream, arguments, _extra = shape_and_more
        pointers = ctypes.cast(arguments, ctypes.POINTER(ctypes.c_void_p))
        # Read the arguments when the kernel is launched, not when it runs.
        values = [kind.from_address(pointers[place] or 0).value for place, kind in enumerate(_KERNEL_ARGUMENTS)]
        return self._queued("cuLaunchKernel", stream, lambda: self._unpack(function, *values))

    def put(self, stream: int, work: Callable[[], int]) -> None:
        """Put a function that returns a CUresult into a stream."""
        self._queue(stream).append(work)

    def forget(self, address: int) -> None:
        """Forget memory that its owner released without calling ``cuMemFree``."""
        with self._lock:
            self.memory.pop(address, None)

    def holds(self, address: int, size_bytes: int) -> bool:
        """Return whether all of a range is allocated memory."""
        with self._lock:
            return any(
                start <= address and address + size_bytes <= start + len(buffer)
                # a copy, since an owner may release memory at the same time
                for start, buffer in list(self.memory.items())
            )

    def _queued(self, name: str, stream: int, work: Callable[[], int]) -> Answer:
        answer = self._answer(name, valid=int(stream) in self.streams or int(stream) in self.default_streams)
        if not answer[0]:
            self.put(int(stream), work)
        return answer

    def write(self, address: int, content: NDArray[np.uint8]) -> int:
        """Write bytes to memory; if the memory has been released, write nothing, because the address is illegal."""
        with self._lock:  # keeps the memory from being released during the write
            if not self.holds(address, content.nbytes):
                return _ILLEGAL_ADDRESS
            ctypes.memmove(address, content.ctypes.data, content.nbytes)
        return 0

    def _copy(self, target: int, source: int, size_bytes: int) -> int:
        with self._lock:
            if not (self.holds(target, size_bytes) and self.holds(source, size_bytes)):
                return _ILLEGAL_ADDRESS
            ctypes.memmove(target, source, size_bytes)
        return 0

    def _unpack(self, sample_bytes: int, *values: int) -> int:
        """Do the work of all threads of the kernel in ``actors/nvidia/convert/unpacking.py``."""
        surface, planar, width, height, columns, rows, luma_pitch, chroma_pitch, blue, red, shift, pairs = values
        taken, given = width * height + 2 * columns * rows, red + chroma_pitch * rows
        if not (self.holds(surface, taken * sample_bytes) and self.holds(planar, given * sample_bytes)):
            return _ILLEGAL_ADDRESS
        if self.attached.get(planar) == _HOST:
            return _ILLEGAL_ADDRESS
        source, target = _samples(surface, taken, sample_bytes), _samples(planar, given, sample_bytes)
        chroma = source[width * height :] >> shift
        first, second = (chroma[::2], chroma[1::2]) if pairs else (chroma[: columns * rows], chroma[columns * rows :])
        for begin, pitch, across, part in (
            (0, luma_pitch, width, source[: width * height] >> shift),
            (blue, chroma_pitch, columns, first),
            (red, chroma_pitch, columns, second),
        ):
            lines = part.reshape(-1, across)
            target[begin : begin + pitch * len(lines)].reshape(-1, pitch)[:, :across] = lines
        return 0

    def _allocated(self, name: str, size_bytes: int, *, valid: bool = True) -> Answer:
        buffer = (ctypes.c_uint8 * size_bytes)()
        ctypes.memset(buffer, NOISE, size_bytes)
        answer = self._answer(name, ctypes.addressof(buffer), valid=valid and size_bytes > 0)
        if not answer[0]:
            with self._lock:
                self.memory[ctypes.addressof(buffer)] = buffer
        return answer

    def _freed(self, name: str, address: int) -> Answer:
        with self._lock:
            return self._answer(name, valid=self.memory.pop(int(address), None) is not None)

    def _answer(self, name: str, *values: object, valid: bool = True) -> Answer:
        with self._lock:
            number = self.calls[name] = self.calls.get(name, 0) + 1
        code = 0 if valid else _INVALID_VALUE
        if name in self.faults and number > self.fails_after.get(name, 0):
            code = self.faults[name]
        return (_Result(code), *([None] * len(values) if code else values))


def _samples(address: int, count: int, sample_bytes: int) -> NDArray[Any]:
    kind = ctypes.c_uint8 if sample_bytes == 1 else ctypes.c_uint16
    return np.ctypeslib.as_array((kind * count).from_address(address))


class FakeCudaCore:
    """The part of ``cuda.core`` that compiles the kernel for unpacking surfaces.

    The handle of a kernel is the size of the kernel's samples.
    """

    class Device:
        """A device of compute capability 9.0."""

        arch = "90"

        def __init__(self, ordinal: int) -> None:
            self.ordinal = ordinal

        def set_current(self) -> None:
            pass

    @dataclass
    class ProgramOptions:
        """The options with which a program is compiled; the fake ignores them."""

        std: str
        arch: str

    @dataclass
    class Program:
        """A source that compiles to any requested kernel."""

        source: str
        code_type: str
        options: object

        def compile(self, target: str, name_expressions: tuple[str, ...]) -> "FakeCudaCore.Program":
            if target != "cubin" or not all(name.partition("<")[0] in self.source for name in name_expressions):
                raise ValueError(target, name_expressions)
            return self

        def get_kernel(self, name: str) -> "FakeCudaCore.Kernel":
            return FakeCudaCore.Kernel({"<unsigned char>": 1, "<unsigned short>": 2}[name[name.index("<") :]])

    @dataclass
    class Kernel:
        """A compiled kernel."""

        handle: int
