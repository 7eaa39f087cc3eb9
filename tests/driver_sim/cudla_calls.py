"""The simulated cuDLA as test programs call it, through the real binding.

Imported by programs that run with the simulated driver; every call that fails gives its status instead of raising.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from cuda.bindings import cudla, driver

from .loadable import Array, Loadable, Tensor

__all__ = ["Hybrid", "cuda", "status", "use_cuda"]


def status(call: Callable[..., Any], *arguments: Any) -> int:
    """Return the status with which a function of the binding ends, 0 where it does not fail."""
    try:
        call(*arguments)
    except cudla.CudlaError as error:
        return int(error.status)
    return 0


def cuda(result: Sequence[Any]) -> Any:
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

    def task(self, inputs: Sequence[int] | None = None, outputs: Sequence[int] | None = None) -> Any:
        """Return a task of the binding, from the handle's inputs to its outputs where nothing else is said."""
        task = cudla.Task()
        task.module_handle = self.module
        task.input_tensor = list(inputs or [registered for _, registered in self.inputs])
        task.output_tensor = list(outputs or [registered for _, registered in self.outputs])
        return task

    def submit(self, *tasks: Any, flags: int = 0) -> None:
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
