"""A simulated machine with DLAs, under the names of NVIDIA's two bindings.

    host = open_host(environment={}, import_module=FakeMachine(dlas=3).import_module)

Tasks run at once, in the calling thread. Only hybrid mode is supported; tests/driver_sim has standalone mode.
"""

import concurrent.futures
import ctypes
import itertools
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...actors.dla.engine import (
    TASK,
    TENSOR_DESCRIPTOR,
    CudlaStatus,
    DataCategory,
    DataFormat,
    DataType,
    PixelFormat,
    PixelMapping,
    TensorDescriptor,
)
from ...actors.dla.inference import pack, unpack
from .fake_cuda import CONTEXT

VERSION: Final = 1_002_001
DEVICE_VERSION: Final = 2
DLA_ADDRESSES_FROM: Final = 0x0D1A_0000_0000
HANG: Final = -1
EXTERNAL_DEVICE: Final = 911
STREAM: Final = 0x51
"""The handle of the first stream."""
_MAGIC: Final = b"FAKE DLA"
_NUMBERS: Final = struct.Struct("<dd")


def fake_tensor(
    name: str,
    shape: tuple[int, int, int, int],
    data_type: DataType = DataType.FLOAT,
    data_format: DataFormat = DataFormat.NCHW,
) -> TensorDescriptor:
    """Return the descriptor of a tightly packed tensor."""
    n, c, h, w = shape
    width = c if data_format is not DataFormat.NCxHWx else -(-c * data_type.dtype.itemsize // 32) * 32
    element = data_type.dtype.itemsize if data_format is not DataFormat.NCxHWx else 1
    return TensorDescriptor(
        name=name,
        size_bytes=n * width * h * w * element,
        n=n,
        c=c,
        h=h,
        w=w,
        data_format=data_format,
        data_type=data_type,
        data_category=DataCategory.IMAGE,
        pixel_format=PixelFormat.UNKNOWN,
        pixel_mapping=PixelMapping.PITCH_LINEAR,
    )


@dataclass(frozen=True, slots=True)
class FakeLoadable:
    """A network with one input and one output (n, c, 1, 1): for each channel, gain times mean, plus bias."""

    source: TensorDescriptor
    result: TensorDescriptor
    gain: float = 1.0
    bias: float = 0.0

    def to_bytes(self) -> bytes:
        """Return the network as bytes that the fake machine can load."""
        return _MAGIC + _NUMBERS.pack(self.gain, self.bias) + self.source.to_bytes() + self.result.to_bytes()

    @classmethod
    def from_bytes(cls, loadable: bytes) -> "FakeLoadable | None":
        """Return the network in these bytes; None if the bytes are not a network."""
        start = len(_MAGIC) + _NUMBERS.size
        if not loadable.startswith(_MAGIC) or len(loadable) != start + 2 * TENSOR_DESCRIPTOR.itemsize:
            return None
        gain, bias = _NUMBERS.unpack_from(loadable, len(_MAGIC))
        source, result = np.frombuffer(loadable, dtype=TENSOR_DESCRIPTOR, offset=start)
        return cls(TensorDescriptor.from_record(source), TensorDescriptor.from_record(result), gain, bias)

    def expected(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the output for these input values."""
        means = values.astype(np.float64).mean(axis=(2, 3), keepdims=True)
        found = self.gain * means + self.bias
        dtype = self.result.data_type.dtype
        if dtype.kind != "f":
            limits = np.iinfo(dtype)
            found = np.clip(np.rint(found), limits.min, limits.max)
        return np.asarray(found.astype(dtype))


@dataclass(slots=True)
class _Device:
    """The state of one open handle."""

    number: int
    has_loaded: bool = False
    error: int = 0
    regions: dict[int, tuple[int, int]] = field(default_factory=dict)


class FakeCudlaError(Exception):
    """``cuda.bindings.cudla.CudlaError``."""

    def __init__(self, status: int) -> None:
        self.status = int(status)
        super().__init__(f"{CudlaStatus.of(status).name} ({int(status)})")


class FakeMachine:
    """A machine with ``dlas`` accelerators, which replaces ``cuda.bindings.cudla``.

    ``integrated`` states for each GPU, in order of ordinals, whether it is part of the Tegra.
    """

    CudlaError = FakeCudlaError

    def __init__(self, dlas: int = 1, *, integrated: Sequence[bool] = (True,)) -> None:
        self.dlas = dlas
        self.integrated = tuple(integrated)
        self.context_gpus: list[int] = []  # the GPUs of the retained contexts
        self.context_flags: dict[int, int] = {}
        self.calls: list[str] = []  # the C names of all calls; a task that an engine runs appears as ``cudlaTask``
        self.hanging: Future[None] = Future()  # done as soon as a call hangs
        self.released = Future[None]()
        self.isolated = False  # whether errors of a DLA stay out of CUDA (CUDA_EXTERNAL_ENGINE_EXECUTION_MODE)
        self.streams_waited: list[int] = []  # the handles of the streams that were synchronised
        self.tasks_of: Counter[int] = Counter()  # how many tasks each DLA has run
        self.memory: dict[int, NDArray[np.uint8]] = {}  # device memory, by address
        self.managed: dict[int, NDArray[np.uint8]] = {}  # managed memory, by address
        self.locked: dict[int, NDArray[np.uint8]] = {}  # page-locked memory, by address
        self.capturing: set[int] = set()  # the streams whose work is being captured in a CUDA graph
        self._faults: dict[tuple[str, int], int] = {}
        self._counts: Counter[str] = Counter()
        self._numbers = itertools.count(0x1000, 0x10)
        self._addresses = itertools.count(DLA_ADDRESSES_FROM, 0x1_0000)
        self._devices: dict[int, _Device] = {}
        self._modules: dict[int, tuple[int, FakeLoadable]] = {}
        self._contexts = 0
        self.context = CONTEXT
        self.streams = itertools.count(STREAM)
        self.recorded: dict[int, int] = {}
        self.stream_waits: list[tuple[int, int]] = []  # pairs of a stream and another stream that waits for it

    def import_module(self, name: str) -> Any:
        """Return the fake of the binding with this name."""
        return {"cuda.bindings.cudla": self, "cuda.bindings.driver": _Driver(self)}[name]

    def fault(self, function: str, call: int, status: int) -> None:
        """Make the ``call``-th call of ``function`` from now on return ``status``; with ``HANG``, it never returns."""
        self._faults[function, self._counts[function] + call] = status

    def patience(self, future: "Future[Any]", seconds: float) -> bool:
        """Wait for a call as a session does, but without a clock; there is a timeout only if a call hangs."""
        del seconds
        concurrent.futures.wait({future, self.hanging}, return_when=concurrent.futures.FIRST_COMPLETED)
        return future.done()

    def release(self) -> None:
        """End calls that hang, so that their threads end."""
        if not self.released.done():
            self.released.set_result(None)

    @property
    def open_handles(self) -> int:
        """The number of open cuDLA handles."""
        return len(self._devices)

    def enter(self, function: str) -> None:
        """Count a call, and inject the fault that is due."""
        self.calls.append(function)
        self._counts[function] += 1
        status = self._faults.get((function, self._counts[function]))
        if status == HANG:
            self.hang()
        elif status is not None:
            raise FakeCudlaError(status)

    def hang(self) -> None:
        """Hang until ``release`` is called."""
        self.hanging.set_result(None)
        self.released.result()

    def get_version(self) -> int:
        return VERSION

    def device_get_count(self) -> int:
        return self.dlas

    def create_device(self, number: int, flags: int) -> int:
        if flags:
            # the binding itself raises this without calling anything
            raise FakeCudlaError(CudlaStatus.UNSUPPORTED_OPERATION)
        self.enter("cudlaCreateDevice")
        if number >= self.dlas:
            raise FakeCudlaError(CudlaStatus.INVALID_PARAM)
        if not self._contexts:
            raise FakeCudlaError(CudlaStatus.CUDA)
        if not self.integrated[self.context_gpus[-1]]:
            raise FakeCudlaError(CudlaStatus.UNSUPPORTED_OPERATION)
        handle = next(self._numbers)
        self._devices[handle] = _Device(number)
        return handle

    def destroy_device(self, handle: int) -> None:
        self._device(handle, "cudlaDestroyDevice")
        del self._devices[handle]

    def device_get_attribute(self, handle: int, which: int) -> SimpleNamespace:
        self._device(handle, "cudlaDeviceGetAttribute")
        value = DEVICE_VERSION if which else 1
        return SimpleNamespace(unified_addressing_supported=value, device_version=value)

    def module_load_from_memory(self, handle: int, loadable: bytes, size_bytes: int, _flags: int) -> int:
        device = self._device(handle, "cudlaModuleLoadFromMemory")
        if device.has_loaded:
            raise FakeCudlaError(CudlaStatus.UNSUPPORTED_OPERATION)
        network = FakeLoadable.from_bytes(loadable[:size_bytes])
        if network is None:
            raise FakeCudlaError(CudlaStatus.INVALID_MODULE)
        device.has_loaded = True
        module = next(self._numbers)
        self._modules[module] = (handle, network)
        return module

    def module_get_attributes(self, module: int, attribute: int) -> Any:
        self.enter("cudlaModuleGetAttributes")
        _, network = self._network(module)
        is_count = attribute in (0, 1, 4)
        found = {0: network.source, 1: network.result, 2: network.source, 3: network.result}.get(attribute)
        if is_count or found is None:
            return int(found is not None) if is_count else []
        kept = np.frombuffer(found.to_bytes(), dtype=np.uint8)
        return [SimpleNamespace(ptr=int(kept.ctypes.data), kept=kept)]

    def module_unload(self, module: int, _flags: int) -> None:
        self.enter("cudlaModuleUnload")
        self._network(module)
        del self._modules[module]

    def mem_register(self, handle: int, memory: int, size_bytes: int, _flags: int) -> int:
        device = self._device(handle, "cudlaMemRegister")
        if memory in (origin for origin, _ in device.regions.values()):
            raise FakeCudlaError(CudlaStatus.MEMORY_REGISTERED)
        if memory not in self.memory or size_bytes > self.memory[memory].nbytes:
            raise FakeCudlaError(CudlaStatus.INVALID_ADDRESS)
        address = next(self._addresses)
        device.regions[address] = (memory, size_bytes)
        return address

    def mem_unregister(self, handle: int, address: int) -> None:
        if self._device(handle, "cudlaMemUnregister").regions.pop(address, None) is None:
            raise FakeCudlaError(CudlaStatus.INVALID_ADDRESS)

    def submit_task(self, handle: int, tasks: int, count: int, _stream: int, _flags: int) -> None:
        device = self._device(handle, "cudlaSubmitTask")
        for record in _records(tasks, TASK, count):
            if record["wait_events"] or record["signal_events"]:
                raise FakeCudlaError(CudlaStatus.UNSUPPORTED_OPERATION)  # only standalone mode has events
            self._run(device, record)

    def get_last_error(self, handle: int) -> int:
        return self._device(handle, "cudlaGetLastError").error

    def set_task_timeout_in_ms(self, handle: int, milliseconds: int) -> None:
        self._device(handle, "cudlaSetTaskTimeoutInMs")
        del milliseconds

    def retain_context(self, gpu: int) -> int:
        self.context_gpus.append(gpu)
        self._contexts += 1
        return self.context

    def release_context(self) -> None:
        """Release a context. If a handle is still open, fail, because cuDLA may crash."""
        if self._devices:
            raise AssertionError("the context was released before the handles")
        self._contexts -= 1

    def wait_for_stream(self, stream: int) -> None:
        """Record the stream; its work is already done. Fail if a device has an error and errors are not isolated."""
        self.streams_waited.append(stream)
        if not self.isolated and any(device.error for device in self._devices.values()):
            raise FakeCudlaError(EXTERNAL_DEVICE)

    def wait_in_stream(self, stream: int, event: int, _flags: int) -> None:
        """Record that a stream waits for the stream in which an event was recorded."""
        self.stream_waits.append((self.recorded[event], stream))

    def _run(self, device: _Device, record: np.void) -> None:
        handle, network = self._network(int(record["module_handle"]))
        if self._devices.get(handle) is not device:
            raise FakeCudlaError(CudlaStatus.INVALID_MODULE)
        inputs = _records(int(record["input_tensors"]), np.dtype("<u8"), int(record["input_tensor_count"]))
        outputs = _records(int(record["output_tensors"]), np.dtype("<u8"), int(record["output_tensor_count"]))
        source, result = (_region(device, int(address)) for address in (inputs[0], outputs[0]))
        self.tasks_of[device.number] += 1
        try:
            self.enter("cudlaTask")
            found = network.expected(unpack(network.source, source))
            result[: network.result.size_bytes] = pack(network.result, found)
        except FakeCudlaError as refused:
            device.error = device.error or refused.status

    def _device(self, handle: int, function: str) -> _Device:
        self.enter(function)
        if handle not in self._devices:
            raise FakeCudlaError(CudlaStatus.INVALID_DEVICE)
        return self._devices[handle]

    def _network(self, module: int) -> tuple[int, FakeLoadable]:
        if module not in self._modules:
            raise FakeCudlaError(CudlaStatus.INVALID_MODULE)
        return self._modules[module]


def _region(device: _Device, address: int) -> NDArray[np.uint8]:
    if address not in device.regions:
        raise FakeCudlaError(CudlaStatus.INVALID_ADDRESS)
    memory, size_bytes = device.regions[address]
    return np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(memory))


def _records(address: int, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    if not count:
        return np.zeros(0, dtype=dtype)
    return np.frombuffer(ctypes.string_at(address, count * dtype.itemsize), dtype=dtype)


class _Driver:
    """The part of ``cuda.bindings.driver`` that sessions use. Each function returns its status first."""

    CUdevice_attribute = CUpointer_attribute = int

    def __init__(self, machine: FakeMachine) -> None:
        self._machine = machine
        self._functions: dict[str, Callable[..., object]] = {
            "cuInit": lambda _flags: None,
            "cuDeviceGetCount": lambda: len(machine.integrated),
            "cuDeviceGet": lambda ordinal: ordinal,
            "cuDeviceGetAttribute": lambda number, gpu: {18: int(machine.integrated[gpu]), 75: 8, 76: 7}[number],
            "cuDevicePrimaryCtxSetFlags": machine.context_flags.__setitem__,
            "cuDevicePrimaryCtxRetain": machine.retain_context,
            "cuDevicePrimaryCtxRelease": lambda _gpu: machine.release_context(),
            "cuCtxSetCurrent": lambda _context: None,
            "cuStreamCreate": lambda _flags: next(machine.streams),
            "cuStreamDestroy": lambda _stream: None,
            "cuEventCreate": lambda _flags: next(machine.streams),
            "cuEventDestroy": lambda _event: None,
            "cuEventRecord": machine.recorded.__setitem__,
            "cuStreamWaitEvent": machine.wait_in_stream,
            "cuMemAlloc": lambda size_bytes: _allocated(machine.memory, size_bytes),
            "cuMemAllocManaged": lambda size_bytes, _flags: _allocated(machine.managed, size_bytes),
            "cuPointerGetAttribute": lambda _managed, address: int(address in machine.managed),
            "cuStreamIsCapturing": lambda stream: int(stream in machine.capturing),
            "cuMemFree": machine.memory.__delitem__,
            "cuMemHostAlloc": lambda size_bytes, _flags: _allocated(machine.locked, size_bytes),
            "cuMemFreeHost": machine.locked.__delitem__,
            "cuMemcpyHtoDAsync": lambda to, host, size_bytes, _: ctypes.memmove(to, host, size_bytes),
            "cuMemcpyDtoHAsync": lambda host, source, size_bytes, _: ctypes.memmove(host, source, size_bytes),
            "cuMemsetD8Async": lambda to, value, size_bytes, _: ctypes.memset(to, value, size_bytes),
            "cuStreamSynchronize": machine.wait_for_stream,
        }

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        if name not in self._functions:
            raise AttributeError(name)

        def call(*arguments: object) -> tuple[Any, ...]:
            try:
                self._machine.enter(name)
                return (0, self._functions[name](*arguments))
            except FakeCudlaError as refused:
                return (refused.status,)

        return call


def _allocated(memory: dict[int, NDArray[np.uint8]], size_bytes: int) -> int:
    found = np.zeros(size_bytes, dtype=np.uint8)
    memory[int(found.ctypes.data)] = found
    return int(found.ctypes.data)
