"""The interfaces to the fake DLAs: what stands for NVIDIA's two bindings.

    modules = FakeModules(FakeMachine(dlas=3))
    host = open_host(environment={}, import_module=modules.import_module)

They pass the contract tests of the sessions.
"""

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import numpy as np

from ...actors.dla.engine import CudlaStatus
from .fake_cudla import VERSION, CudlaRefusal, FakeMachine

__all__ = ["FakeCudlaError", "FakeModules"]

ResultT = TypeVar("ResultT")

STREAM: Final = 0x51
"""The handle of every stream: they all do everything at once."""


class FakeCudlaError(Exception):
    """``cuda.bindings.cudla.CudlaError``."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"{CudlaStatus.of(status).name} ({status})")


class FakeModules:
    """All the interfaces to one machine: ``binding`` and ``driver``."""

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self.binding = _Binding(machine)
        self.driver = _Driver(machine)

    def import_module(self, name: str) -> Any:
        """Give the fakes by the names of the real modules."""
        return {"cuda.bindings.cudla": self.binding, "cuda.bindings.driver": self.driver}[name]


class _Binding:
    """``cuda.bindings.cudla``."""

    CudlaError = FakeCudlaError

    def __init__(self, machine: FakeMachine) -> None:
        self._machine = machine

    def get_version(self) -> int:
        return VERSION

    def device_get_count(self) -> int:
        return self._machine.dlas

    def create_device(self, device: int, flags: int) -> int:
        if flags:
            raise FakeCudlaError(CudlaStatus.UNSUPPORTED_OPERATION)  # the binding itself, before it calls anything
        return self._do(lambda: self._machine.create(device))

    def destroy_device(self, handle: int) -> None:
        self._do(lambda: self._machine.destroy(handle))

    def device_get_attribute(self, handle: int, which: int) -> SimpleNamespace:
        value = self._do(lambda: self._machine.attribute(handle, which))
        return SimpleNamespace(unified_addressing_supported=value & 0xFF, device_version=value)

    def module_load_from_memory(self, handle: int, loadable: bytes, size_bytes: int, flags: int) -> int:
        del flags
        return self._do(lambda: self._machine.load(handle, loadable[:size_bytes]))

    def module_get_attributes(self, module: int, attribute: int) -> Any:
        found = self._do(lambda: self._machine.tensors(module, attribute))
        if attribute in (0, 1, 4):
            return len(found)
        kept = [np.frombuffer(descriptor.to_bytes(), dtype=np.uint8) for descriptor in found]
        return [SimpleNamespace(ptr=int(array.ctypes.data), kept=array) for array in kept]

    def module_unload(self, module: int, flags: int) -> None:
        del flags
        self._do(lambda: self._machine.unload(module))

    def mem_register(self, handle: int, memory: int, size_bytes: int, flags: int) -> int:
        del flags
        return self._do(lambda: self._machine.register(handle, memory, size_bytes))

    def mem_unregister(self, handle: int, address: int) -> None:
        self._do(lambda: self._machine.unregister(handle, address))

    def submit_task(self, handle: int, tasks: int, count: int, stream: int, flags: int) -> None:
        del stream, flags
        self._do(lambda: self._machine.submit(handle, tasks, count))

    def get_last_error(self, handle: int) -> int:
        return self._do(lambda: self._machine.last_error(handle))

    def set_task_timeout_in_ms(self, handle: int, milliseconds: int) -> None:
        self._do(lambda: self._machine.limit(handle, milliseconds))

    def _do(self, call: Callable[[], ResultT]) -> ResultT:
        try:
            return call()
        except CudlaRefusal as refused:
            raise FakeCudlaError(refused.status) from None


class _Driver:
    """``cuda.bindings.driver``, as far as sessions use it."""

    def __init__(self, machine: FakeMachine) -> None:
        self._machine = machine

    @staticmethod
    def CUdevice_attribute(number: int) -> int:
        """Return the attribute of a number."""
        return number

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        """Return the function of that name; each returns its result first, as the binding's do."""
        functions: dict[str, Callable[..., object]] = {
            "cuInit": lambda _flags: None,
            "cuDeviceGetCount": lambda: len(self._machine.integrated),
            "cuDeviceGet": lambda ordinal: ordinal,
            "cuDeviceGetAttribute": lambda _integrated, gpu: int(self._machine.integrated[gpu]),
            "cuDevicePrimaryCtxSetFlags": self._machine.set_context_flags,
            "cuDevicePrimaryCtxRetain": self._machine.retain,
            "cuDevicePrimaryCtxRelease": lambda _gpu: self._machine.release_context(),
            "cuCtxSetCurrent": lambda _context: None,
            "cuStreamCreate": lambda _flags: STREAM,
            "cuStreamDestroy": lambda _stream: None,
            "cuMemAlloc": self._machine.allocate,
            "cuMemFree": self._machine.free,
            "cuMemHostAlloc": lambda size_bytes, _flags: self._machine.lock(size_bytes),
            "cuMemFreeHost": self._machine.unlock,
            "cuMemcpyHtoDAsync": lambda to, host, size_bytes, _: ctypes.memmove(to, host, size_bytes),
            "cuMemcpyDtoHAsync": lambda host, source, size_bytes, _: ctypes.memmove(host, source, size_bytes),
            "cuMemsetD8Async": lambda to, value, size_bytes, _: ctypes.memset(to, value, size_bytes),
            "cuStreamSynchronize": self._synchronize,
        }
        if name not in functions:
            raise AttributeError(name)

        def call(*arguments: object) -> tuple[Any, ...]:
            try:
                self._machine.enter(name)
                result = functions[name](*arguments)
            except CudlaRefusal as refused:
                return (refused.status,)
            return (0, result)

        return call

    def _synchronize(self, stream: int) -> None:
        if status := self._machine.wait_for_stream(stream):
            raise CudlaRefusal(status)
