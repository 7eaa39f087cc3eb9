"""The simulated cuDLA as test programs call it: through the real binding beside CUDA, through ctypes without.

Imported by programs that run with the simulated driver; every call that fails gives its status instead of raising.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from cuda.bindings import cudla, driver

from .loadable import Array, Loadable, Tensor

__all__ = ["Hybrid", "NvSci", "Standalone", "cuda", "status", "use_cuda"]

STANDALONE = 1
FENCE, START_FENCE = 1, 2


def status(call: Callable[..., Any], *arguments: Any) -> int:  # noqa: ANN401 - the binding's own
    """Return the status with which a function of the binding ends, 0 where it does not fail."""
    try:
        call(*arguments)
    except cudla.CudlaError as error:
        return int(error.status)
    return 0


def cuda(result: Sequence[Any]) -> Any:  # noqa: ANN401 - what the function gave
    """Return what a function of CUDA's gave.

    Raises:
        RuntimeError: it failed.
    """
    if int(result[0]):
        raise RuntimeError(result[0])
    return result[1] if len(result) > 1 else None


def use_cuda() -> None:
    """Make the first GPU's primary context current."""
    cuda(driver.cuInit(0))
    cuda(driver.cuCtxSetCurrent(cuda(driver.cuDevicePrimaryCtxRetain(0))))


class Hybrid:
    """A handle beside CUDA with one loadable, its memory and a stream."""

    def __init__(self, loadable: Loadable, number: int = 0, stream: int | None = None) -> None:
        self.loadable = loadable
        self.handle = cudla.create_device(number, 0)
        content = loadable.to_bytes()
        self.module = cudla.module_load_from_memory(self.handle, content, len(content), 0)
        self.stream = int(cuda(driver.cuStreamCreate(0))) if stream is None else stream
        self.inputs = [self._memory(tensor) for tensor in loadable.inputs]
        self.outputs = [self._memory(tensor) for tensor in loadable.outputs]
        self._kept: list[Any] = []

    def _memory(self, tensor: Tensor) -> tuple[int, int]:
        address = int(cuda(driver.cuMemAlloc(max(tensor.size_bytes, 64))))
        return address, cudla.mem_register(self.handle, address, tensor.size_bytes, 0)

    def task(self, inputs: Sequence[int] | None = None, outputs: Sequence[int] | None = None) -> Any:  # noqa: ANN401
        """Return a task of the binding, from the handle's inputs to its outputs where nothing else is said."""
        task = cudla.Task()
        task.module_handle = self.module
        task.input_tensor = list(inputs or [registered for _, registered in self.inputs])
        task.output_tensor = list(outputs or [registered for _, registered in self.outputs])
        return task

    def submit(self, *tasks: Any, flags: int = 0) -> None:  # noqa: ANN401 - tasks of the binding
        """Submit tasks in one call; one from the inputs to the outputs where none is given."""
        given = tasks or (self.task(),)
        listed = b"".join(ctypes.string_at(task.ptr, cudla.task_dtype.itemsize) for task in given)
        buffer = ctypes.create_string_buffer(listed, len(listed))
        self._kept += [*given, buffer]
        cudla.submit_task(self.handle, ctypes.addressof(buffer), len(given), self.stream, flags)

    def put(self, values: Sequence[Array]) -> None:
        """Copy values into the inputs, in the stream."""
        for tensor, (address, _), each in zip(self.loadable.inputs, self.inputs, values, strict=True):
            content = np.frombuffer(tensor.packed(each), np.uint8)
            self._kept.append(content)
            cuda(driver.cuMemcpyHtoDAsync(address, content.ctypes.data, content.nbytes, self.stream))

    def get(self) -> list[Array]:
        """Return the outputs, when the stream is done."""
        found = []
        for tensor, (address, _) in zip(self.loadable.outputs, self.outputs, strict=True):
            content = np.empty(tensor.size_bytes, np.uint8)
            cuda(driver.cuMemcpyDtoHAsync(content.ctypes.data, address, content.nbytes, self.stream))
            found.append(content)
        cuda(driver.cuStreamSynchronize(self.stream))
        return [tensor.unpacked(each.tobytes()) for tensor, each in zip(self.loadable.outputs, found, strict=True)]

    def synchronize(self) -> int:
        """Wait for the stream, and return what CUDA says."""
        return int(driver.cuStreamSynchronize(self.stream)[0])

    def error(self) -> int:
        """Return the handle's last error."""
        return int(cudla.get_last_error(self.handle))

    def close(self) -> None:
        """Unregister, unload and destroy."""
        for _, registered in (*self.inputs, *self.outputs):
            cudla.mem_unregister(self.handle, registered)
        cudla.module_unload(self.module, 0)
        cudla.destroy_device(self.handle)


class _Fence(ctypes.Structure):
    _fields_ = (("fence", ctypes.c_void_p), ("type", ctypes.c_int))


class _Waits(ctypes.Structure):
    _fields_ = (("fences", ctypes.POINTER(_Fence)), ("count", ctypes.c_uint32))


class _Signals(ctypes.Structure):
    _fields_ = (
        ("objects", ctypes.POINTER(ctypes.c_uint64)),
        ("fences", ctypes.POINTER(_Fence)),
        ("count", ctypes.c_uint32),
    )


class _Task(ctypes.Structure):
    _fields_ = (
        ("module", ctypes.c_void_p),
        ("outputs", ctypes.POINTER(ctypes.c_uint64)),
        ("output_count", ctypes.c_uint32),
        ("input_count", ctypes.c_uint32),
        ("inputs", ctypes.POINTER(ctypes.c_uint64)),
        ("waits", ctypes.POINTER(_Waits)),
        ("signals", ctypes.POINTER(_Signals)),
    )


class NvSci:
    """What stands for NvSci: buffers, sync objects, fences (six words) and attribute lists, by their handles."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcudla.so.1")
        for name in ("simNvSciBufAlloc", "simNvSciBufCpuPointer", "simNvSciSyncAlloc", "simNvSciAttributesAlloc"):
            getattr(self.library, name).restype = ctypes.c_void_p

    def buffer(self, size_bytes: int) -> int:
        """Allocate a buffer."""
        return int(self.library.simNvSciBufAlloc(ctypes.c_size_t(size_bytes)))

    def memory(self, buffer: int) -> int:
        """Return where a buffer lies."""
        return int(self.library.simNvSciBufCpuPointer(ctypes.c_void_p(buffer)))

    def sync(self) -> int:
        """Allocate a sync object."""
        return int(self.library.simNvSciSyncAlloc())

    def fence(self, sync: int) -> ctypes.Array[ctypes.c_uint64]:
        """Return the fence of a sync object's next signal."""
        words = (ctypes.c_uint64 * 6)()
        self.library.simNvSciSyncGenerateFence(ctypes.c_void_p(sync), words)
        return words

    def signal(self, sync: int) -> None:
        """Signal a sync object."""
        self.library.simNvSciSyncSignal(ctypes.c_void_p(sync))

    def is_reached(self, fence: object, timeout_us: int = 0) -> bool:
        """Wait for a fence."""
        return not self.library.simNvSciSyncFenceWait(fence, ctypes.c_int64(timeout_us))


class Standalone:
    """A handle without CUDA; its methods give statuses. ``mode`` is cudlaCreateDevice's."""

    def __init__(self, sci: NvSci, mode: int = STANDALONE) -> None:
        self.sci = sci
        self.library = sci.library
        self.handle = ctypes.c_void_p()
        self.module = ctypes.c_void_p()
        self.opened = self.library.cudlaCreateDevice(ctypes.c_uint64(0), ctypes.byref(self.handle), mode)
        self._kept: list[Any] = []

    def load(self, content: bytes | None, flags: int = 0) -> int:
        """Load a module."""
        size = ctypes.c_size_t(len(content or b""))
        return int(self.library.cudlaModuleLoadFromMemory(self.handle, content, size, ctypes.byref(self.module), flags))

    def imported(self, buffer: int, size_bytes: int, flags: int = 0) -> tuple[int, int]:
        """Import a buffer: the status, and the address."""
        described = (ctypes.c_uint64 * 2)(buffer, size_bytes)
        return self._imported(self.library.cudlaImportExternalMemory, described, flags)

    def imported_sync(self, sync: int, flags: int = 0) -> tuple[int, int]:
        """Import a sync object: the status, and the address."""
        return self._imported(self.library.cudlaImportExternalSemaphore, (ctypes.c_uint64 * 1)(sync), flags)

    def _imported(self, function: Callable[..., int], described: object, flags: int) -> tuple[int, int]:
        address = ctypes.c_uint64()
        said = function(self.handle, described, ctypes.byref(address), ctypes.c_uint32(flags))
        return int(said), address.value

    def submit(
        self,
        inputs: Sequence[int] | None = None,
        outputs: Sequence[int] | None = None,
        *,
        waits: Sequence[Any] = (),
        signals: Sequence[tuple[int, Any, int]] = (),
        flags: int = 0,
        stream: int = 0,
        wait_type: int = FENCE,
    ) -> int:
        """Submit one task. ``waits`` are fences; ``signals`` are addresses, fences to fill in and their types."""
        task = _Task(module=self.module)
        if inputs is not None:
            task.inputs, task.input_count = _numbers(inputs), len(inputs)
        if outputs is not None:
            task.outputs, task.output_count = _numbers(outputs), len(outputs)
        if waits:
            fences = (_Fence * len(waits))(*(_Fence(ctypes.addressof(each), wait_type) for each in waits))
            task.waits = ctypes.pointer(_Waits(fences, len(waits)))
        if signals:
            filled = (_Fence * len(signals))(*(_Fence(ctypes.addressof(each), kind) for _, each, kind in signals))
            objects = _numbers([address for address, _, _ in signals])
            task.signals = ctypes.pointer(_Signals(objects, filled, len(signals)))
        self._kept += [task, waits, signals]
        count = ctypes.c_uint32(1)
        return int(self.library.cudlaSubmitTask(self.handle, ctypes.byref(task), count, ctypes.c_void_p(stream), flags))

    def error(self) -> int:
        """Return the handle's last error."""
        return int(self.library.cudlaGetLastError(self.handle))

    def set_timeout(self, timeout_ms: int) -> int:
        """Set the time that a task may take."""
        return int(self.library.cudlaSetTaskTimeoutInMs(self.handle, ctypes.c_uint32(timeout_ms)))

    def close(self) -> int:
        """Destroy the device."""
        return int(self.library.cudlaDestroyDevice(self.handle))


def _numbers(values: Sequence[int]) -> Any:  # noqa: ANN401 - a ctypes array, which stands for a pointer
    return (ctypes.c_uint64 * len(values))(*values)
