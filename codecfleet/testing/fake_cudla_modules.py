"""The interfaces to the fake DLAs: what stands for NVIDIA's two bindings, and for the library itself.

    modules = FakeModules(FakeMachine(dlas=3))
    host = open_host(environment={}, import_module=modules.import_module)
    native = load_native_cudla(lambda name: modules.library)

They pass the contract tests of the sessions.
"""

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import numpy as np

from ..actors.dla.statuses import Status
from .fake_cudla import STANDALONE, VERSION, FakeMachine, Refused

__all__ = ["FakeCudlaError", "FakeModules"]

ResultT = TypeVar("ResultT")

STREAM: Final = 0x51
"""The handle of every stream: they all do everything at once."""


class FakeCudlaError(Exception):
    """``cuda.bindings.cudla.CudlaError``."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"{Status.of(status).name} ({status})")


class FakeModules:
    """All the interfaces to one machine: ``binding``, ``driver`` and ``library``."""

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self.binding = _Binding(machine)
        self.driver = _Driver(machine)
        self.library = _Library(machine)

    def import_module(self, name: str) -> Any:  # noqa: ANN401 - stands for importlib.import_module
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
        if flags & STANDALONE:
            raise FakeCudlaError(Status.UNSUPPORTED_OPERATION)  # the binding itself, before it calls anything
        return self._do(lambda: self._machine.create(device, flags))

    def destroy_device(self, handle: int) -> None:
        self._do(lambda: self._machine.destroy(handle))

    def device_get_attribute(self, handle: int, which: int) -> SimpleNamespace:
        value = self._do(lambda: self._machine.attribute(handle, which))
        return SimpleNamespace(unified_addressing_supported=value & 0xFF, device_version=value)

    def module_load_from_memory(self, handle: int, loadable: bytes, size_bytes: int, flags: int) -> int:
        del flags
        return self._do(lambda: self._machine.load(handle, loadable[:size_bytes]))

    def module_get_attributes(self, module: int, attribute: int) -> Any:  # noqa: ANN401 - as the binding does
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
        return self._do(lambda: self._register(handle, memory, size_bytes))

    def mem_unregister(self, handle: int, address: int) -> None:
        self._do(lambda: self._machine.unregister(handle, address))

    def submit_task(self, handle: int, tasks: int, count: int, stream: int, flags: int) -> None:
        del stream, flags
        self._do(lambda: self._machine.submit(handle, tasks, count))

    def get_last_error(self, handle: int) -> int:
        return self._do(lambda: self._machine.last_error(handle))

    def set_task_timeout_in_ms(self, handle: int, milliseconds: int) -> None:
        self._do(lambda: self._machine.limit(handle, milliseconds))

    def _register(self, handle: int, memory: int, size_bytes: int) -> int:
        self._machine.enter("cudlaMemRegister")
        return self._machine.register(handle, memory, size_bytes, standalone=False)

    def _do(self, call: Callable[[], ResultT]) -> ResultT:
        try:
            return call()
        except Refused as refused:
            raise FakeCudlaError(refused.status) from None


class _Driver:
    """``cuda.bindings.driver``, as far as sessions use it."""

    def __init__(self, machine: FakeMachine) -> None:
        self._machine = machine

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        """Return the function of that name; each returns its result first, as the binding's do."""
        functions: dict[str, Callable[..., object]] = {
            "cuInit": lambda _flags: None,
            "cuDeviceGet": lambda _ordinal: 0,
            "cuDevicePrimaryCtxRetain": lambda _gpu: self._machine.retain(),
            "cuDevicePrimaryCtxRelease": lambda _gpu: self._machine.release_context(),
            "cuCtxSetCurrent": lambda _context: None,
            "cuStreamCreate": lambda _flags: STREAM,
            "cuStreamDestroy": lambda _stream: None,
            "cuMemAlloc": self._machine.allocate,
            "cuMemFree": self._machine.free,
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
            except Refused as refused:
                return (refused.status,)
            return (0, result)

        return call

    def _synchronize(self, stream: int) -> None:
        if status := self._machine.wait_for_stream(stream):
            raise Refused(status)


class _Library:
    """``ctypes.CDLL("libcudla.so.1")``: takes ctypes values and references, returns a status."""

    def __init__(self, machine: FakeMachine) -> None:
        self._machine = machine

    def cudlaGetVersion(self, value: Any) -> int:  # noqa: N802, ANN401 - as in C
        return self._give(value, lambda: VERSION)

    def cudlaDeviceGetCount(self, value: Any) -> int:  # noqa: N802, ANN401
        return self._give(value, lambda: self._machine.dlas)

    def cudlaCreateDevice(self, device: Any, value: Any, flags: Any) -> int:  # noqa: N802, ANN401
        return self._give(value, lambda: self._machine.create(device.value, flags.value))

    def cudlaDestroyDevice(self, handle: Any) -> int:  # noqa: N802, ANN401
        return self._do(lambda: self._machine.destroy(handle.value))

    def cudlaDeviceGetAttribute(self, handle: Any, which: Any, value: Any) -> int:  # noqa: N802, ANN401
        return self._give(value, lambda: self._machine.attribute(handle.value, which.value))

    def cudlaModuleLoadFromMemory(self, handle: Any, loadable: Any, size: Any, value: Any, flags: Any) -> int:  # noqa: N802, ANN401
        del flags
        content = ctypes.string_at(loadable, size.value)
        return self._give(value, lambda: self._machine.load(handle.value, content))

    def cudlaModuleGetAttributes(self, module: Any, attribute: Any, value: Any) -> int:  # noqa: N802, ANN401
        return self._do(lambda: self._describe(module.value, attribute.value, value._obj))  # noqa: SLF001 - byref's own

    def cudlaModuleUnload(self, module: Any, flags: Any) -> int:  # noqa: N802, ANN401
        del flags
        return self._do(lambda: self._machine.unload(module.value))

    def cudlaImportExternalMemory(self, handle: Any, described: Any, value: Any, flags: Any) -> int:  # noqa: N802, ANN401
        del flags
        return self._import("cudlaImportExternalMemory", handle, value, described, described._obj.size_bytes)  # noqa: SLF001

    def cudlaImportExternalSemaphore(self, handle: Any, described: Any, value: Any, flags: Any) -> int:  # noqa: N802, ANN401
        del flags
        return self._import("cudlaImportExternalSemaphore", handle, value, described, 8)

    def cudlaGetNvSciSyncAttributes(self, attributes: Any, flags: Any) -> int:  # noqa: N802, ANN401
        self._machine.enter("cudlaGetNvSciSyncAttributes")
        ctypes.c_uint32.from_address(attributes.value).value = flags.value
        return 0

    def cudlaMemUnregister(self, handle: Any, address: Any) -> int:  # noqa: N802, ANN401
        return self._do(lambda: self._machine.unregister(handle.value, address.value))

    def cudlaSubmitTask(self, handle: Any, tasks: Any, count: Any, stream: Any, flags: Any) -> int:  # noqa: N802, ANN401
        del flags
        if stream.value is not None:
            return int(Status.INVALID_PARAM)
        return self._do(lambda: self._machine.submit(handle.value, tasks.value, count.value))

    def cudlaGetLastError(self, handle: Any) -> int:  # noqa: N802, ANN401
        try:
            return self._machine.last_error(handle.value)
        except Refused as refused:
            return refused.status

    def cudlaSetTaskTimeoutInMs(self, handle: Any, milliseconds: Any) -> int:  # noqa: N802, ANN401
        return self._do(lambda: self._machine.limit(handle.value, milliseconds.value))

    def _import(self, function: str, handle: Any, value: Any, described: Any, size_bytes: int) -> int:  # noqa: ANN401
        def register() -> int:
            self._machine.enter(function)
            return self._machine.register(handle.value, described._obj.object, size_bytes, standalone=True)  # noqa: SLF001

        return self._give(value, register)

    def _describe(self, module: int, attribute: int, value: Any) -> None:  # noqa: ANN401
        found = self._machine.tensors(module, attribute)
        if attribute in (0, 1, 4):
            value.value = len(found)
            return
        content = b"".join(descriptor.to_bytes() for descriptor in found)
        ctypes.memmove(value.value, content, len(content))

    def _give(self, value: Any, call: Callable[[], int]) -> int:  # noqa: ANN401
        def give() -> None:
            value._obj.value = call()  # noqa: SLF001 - what byref refers to

        return self._do(give)

    def _do(self, call: Callable[[], object]) -> int:
        try:
            call()
        except Refused as refused:
            return refused.status
        return 0
