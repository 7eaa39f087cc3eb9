"""A machine with as many DLAs as wanted, and no hardware: what cuDLA does. ``fake_cudla_modules`` is the way to it.

Tasks run at once, in the calling thread; memory is plain memory of this process; what tasks meet is told as cuDLA tells
it. ``FakeMachine.fault`` has the n-th call of a function return a status, or never return; ``cudlaTask`` is the engine.
"""

import concurrent.futures
import ctypes
import itertools
import struct
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
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

__all__ = ["HANG", "VERSION", "CudlaRefusal", "FakeLoadable", "FakeMachine", "fake_tensor"]

VERSION: Final = 1_002_001
DEVICE_VERSION: Final = 2
DLA_ADDRESSES_FROM: Final = 0x0D1A_0000_0000
HANG: Final = -1
EXTERNAL_DEVICE: Final = 911
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
    """A network with one input and one output, (n, c, 1, 1): gain x the mean of each channel + bias."""

    source: TensorDescriptor
    result: TensorDescriptor
    gain: float = 1.0
    bias: float = 0.0

    def to_bytes(self) -> bytes:
        """Return it as the fake machine loads it."""
        return _MAGIC + _NUMBERS.pack(self.gain, self.bias) + self.source.to_bytes() + self.result.to_bytes()

    @classmethod
    def from_bytes(cls, loadable: bytes) -> "FakeLoadable | None":
        """Return the network; None where these bytes are none."""
        start = len(_MAGIC) + _NUMBERS.size
        if not loadable.startswith(_MAGIC) or len(loadable) != start + 2 * TENSOR_DESCRIPTOR.itemsize:
            return None
        gain, bias = _NUMBERS.unpack_from(loadable, len(_MAGIC))
        source, result = np.frombuffer(loadable, dtype=TENSOR_DESCRIPTOR, offset=start)
        return cls(TensorDescriptor.from_record(source), TensorDescriptor.from_record(result), gain, bias)

    def expected(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return what comes out for these values of the input."""
        means = values.astype(np.float64).mean(axis=(2, 3), keepdims=True)
        found = self.gain * means + self.bias
        dtype = self.result.data_type.dtype
        if dtype.kind != "f":
            limits = np.iinfo(dtype)
            found = np.clip(np.rint(found), limits.min, limits.max)
        return np.asarray(found.astype(dtype))


@dataclass(slots=True)
class _Device:
    """One handle."""

    number: int
    has_loaded: bool = False
    error: int = 0
    regions: dict[int, tuple[int, int]] = field(default_factory=dict)


class CudlaRefusal(Exception):
    """A call that returns a status; the interfaces tell it as theirs do."""

    def __init__(self, status: CudlaStatus | int) -> None:
        super().__init__(status)
        self.status = int(status)


class FakeMachine:
    """A machine with ``dlas`` accelerators."""

    def __init__(self, dlas: int = 1, *, integrated: Sequence[bool] = (True,)) -> None:
        self.dlas = dlas
        self.integrated = tuple(integrated)
        """Whether each GPU, by its ordinal, is the Tegra's own."""
        self.context_gpus: list[int] = []
        """The GPU of every context that was retained, in order."""
        self.context_flags: dict[int, int] = {}
        self.calls: list[str] = []
        """Every call, by its C name, in order; an engine's run of a task is ``cudlaTask``."""
        self.hanging: Future[None] = Future()
        """Done once a call hangs."""
        self.released = Future[None]()
        """Set it to let what hangs end."""
        self.isolated = False
        """Whether errors of the DLA leave CUDA alone (CUDA_EXTERNAL_ENGINE_EXECUTION_MODE)."""
        self.streams_waited: list[int] = []
        """Every stream that was waited for, in order."""
        self.timeouts_ms: dict[int, int] = {}
        self.tasks_of: Counter[int] = Counter()
        """How many tasks each DLA ran."""
        self._faults: dict[tuple[str, int], int] = {}
        self._counts: Counter[str] = Counter()
        self._numbers = itertools.count(0x1000, 0x10)
        self._addresses = itertools.count(DLA_ADDRESSES_FROM, 0x1_0000)
        self._devices: dict[int, _Device] = {}
        self._modules: dict[int, tuple[int, FakeLoadable]] = {}
        self._memory: dict[int, NDArray[np.uint8]] = {}
        self._locked: dict[int, NDArray[np.uint8]] = {}
        self._contexts = 0

    def fault(self, function: str, call: int, status: int) -> None:
        """Have the ``call``-th call of ``function`` from now return ``status``; ``HANG`` never returns."""
        self._faults[function, self._counts[function] + call] = status

    def patience(self, future: "Future[Any]", seconds: float) -> bool:
        """Wait for a call as a session does, without a clock: time is up when, and only when, something hangs."""
        del seconds
        concurrent.futures.wait({future, self.hanging}, return_when=concurrent.futures.FIRST_COMPLETED)
        return future.done()

    def release(self) -> None:
        """Let what hangs end, so that its thread does."""
        if not self.released.done():
            self.released.set_result(None)

    @property
    def open_handles(self) -> int:
        """How many cuDLA handles are open."""
        return len(self._devices)

    @property
    def open_memory(self) -> int:
        """How much device memory is allocated, in pieces."""
        return len(self._memory)

    @property
    def open_host_memory(self) -> int:
        """How much page-locked memory is allocated, in pieces."""
        return len(self._locked)

    def enter(self, function: str) -> None:
        """Count a call and do what its fault says."""
        self.calls.append(function)
        self._counts[function] += 1
        status = self._faults.get((function, self._counts[function]))
        if status == HANG:
            self.hanging.set_result(None)
            self.released.result()
        elif status is not None:
            raise CudlaRefusal(status)

    def create(self, number: int) -> int:
        """``cudlaCreateDevice``."""
        self.enter("cudlaCreateDevice")
        if number >= self.dlas:
            raise CudlaRefusal(CudlaStatus.INVALID_PARAM)
        if not self._contexts:
            raise CudlaRefusal(CudlaStatus.CUDA)
        if not self.integrated[self.context_gpus[-1]]:
            raise CudlaRefusal(CudlaStatus.UNSUPPORTED_OPERATION)
        handle = next(self._numbers)
        self._devices[handle] = _Device(number)
        return handle

    def destroy(self, handle: int) -> None:
        """``cudlaDestroyDevice``."""
        self.enter("cudlaDestroyDevice")
        self._device(handle)
        del self._devices[handle]

    def load(self, handle: int, loadable: bytes) -> int:
        """``cudlaModuleLoadFromMemory``."""
        self.enter("cudlaModuleLoadFromMemory")
        device = self._device(handle)
        if device.has_loaded:
            raise CudlaRefusal(CudlaStatus.UNSUPPORTED_OPERATION)
        network = FakeLoadable.from_bytes(loadable)
        if network is None:
            raise CudlaRefusal(CudlaStatus.INVALID_MODULE)
        device.has_loaded = True
        module = next(self._numbers)
        self._modules[module] = (handle, network)
        return module

    def unload(self, module: int) -> None:
        """``cudlaModuleUnload``."""
        self.enter("cudlaModuleUnload")
        self._network(module)
        del self._modules[module]

    def tensors(self, module: int, attribute: int) -> tuple[TensorDescriptor, ...]:
        """``cudlaModuleGetAttributes``: what the attribute is about, be it counted or described."""
        self.enter("cudlaModuleGetAttributes")
        _, network = self._network(module)
        return {0: (network.source,), 1: (network.result,), 2: (network.source,), 3: (network.result,)}.get(
            attribute, ()
        )

    def register(self, handle: int, memory: int, size_bytes: int) -> int:
        """``cudlaMemRegister``."""
        self.enter("cudlaMemRegister")
        device = self._device(handle)
        if memory in (origin for origin, _ in device.regions.values()):
            raise CudlaRefusal(CudlaStatus.MEMORY_REGISTERED)
        if memory not in self._memory or size_bytes > self._memory[memory].nbytes:
            raise CudlaRefusal(CudlaStatus.INVALID_ADDRESS)
        address = next(self._addresses)
        device.regions[address] = (memory, size_bytes)
        return address

    def unregister(self, handle: int, address: int) -> None:
        """``cudlaMemUnregister``."""
        self.enter("cudlaMemUnregister")
        if self._device(handle).regions.pop(address, None) is None:
            raise CudlaRefusal(CudlaStatus.INVALID_ADDRESS)

    def submit(self, handle: int, tasks: int, count: int) -> None:
        """``cudlaSubmitTask``: runs them at once."""
        self.enter("cudlaSubmitTask")
        device = self._device(handle)
        for record in _records(tasks, TASK, count):
            self._run(device, record)

    def last_error(self, handle: int) -> int:
        """``cudlaGetLastError``."""
        self.enter("cudlaGetLastError")
        return self._device(handle).error

    def limit(self, handle: int, milliseconds: int) -> None:
        """``cudlaSetTaskTimeoutInMs``."""
        self.enter("cudlaSetTaskTimeoutInMs")
        self._device(handle)
        self.timeouts_ms[handle] = milliseconds

    def attribute(self, handle: int, which: int) -> int:
        """``cudlaDeviceGetAttribute``."""
        self.enter("cudlaDeviceGetAttribute")
        self._device(handle)
        return DEVICE_VERSION if which else 1

    def allocate(self, size_bytes: int) -> int:
        """``cuMemAlloc``."""
        memory = np.zeros(size_bytes, dtype=np.uint8)
        address = int(memory.ctypes.data)
        self._memory[address] = memory
        return address

    def free(self, address: int) -> None:
        """``cuMemFree``."""
        del self._memory[address]

    def lock(self, size_bytes: int) -> int:
        """``cuMemHostAlloc``."""
        memory = np.zeros(size_bytes, dtype=np.uint8)
        self._locked[int(memory.ctypes.data)] = memory
        return int(memory.ctypes.data)

    def unlock(self, address: int) -> None:
        """``cuMemFreeHost``."""
        del self._locked[address]

    def set_context_flags(self, gpu: int, flags: int) -> None:
        """``cuDevicePrimaryCtxSetFlags``."""
        self.context_flags[gpu] = flags

    def retain(self, gpu: int) -> int:
        """``cuDevicePrimaryCtxRetain``."""
        self.context_gpus.append(gpu)
        self._contexts += 1
        return self._contexts

    def release_context(self) -> None:
        """``cuDevicePrimaryCtxRelease``; cuDLA may crash where a handle is still open, so this one does."""
        if self._devices:
            message = "the context went before the handles"
            raise AssertionError(message)
        self._contexts -= 1

    def wait_for_stream(self, stream: int) -> int:
        """Return what waiting for a stream says."""
        self.streams_waited.append(stream)
        failed = any(device.error for device in self._devices.values())
        return EXTERNAL_DEVICE if failed and not self.isolated else 0

    def _run(self, device: _Device, record: np.void) -> None:
        if record["wait_events"] or record["signal_events"]:
            raise CudlaRefusal(CudlaStatus.UNSUPPORTED_OPERATION)  # events belong to standalone mode
        handle, network = self._network(int(record["module_handle"]))
        if self._devices.get(handle) is not device:
            raise CudlaRefusal(CudlaStatus.INVALID_MODULE)
        inputs = _records(int(record["input_tensors"]), np.dtype("<u8"), int(record["input_tensor_count"]))
        outputs = _records(int(record["output_tensors"]), np.dtype("<u8"), int(record["output_tensor_count"]))
        source, result = (self._region(device, int(address)) for address in (inputs[0], outputs[0]))
        self.tasks_of[device.number] += 1
        try:
            self.enter("cudlaTask")
            found = network.expected(unpack(network.source, source))
            result[: network.result.size_bytes] = pack(network.result, found)
        except CudlaRefusal as refused:
            device.error = device.error or refused.status

    def _region(self, device: _Device, address: int) -> NDArray[np.uint8]:
        if address not in device.regions:
            raise CudlaRefusal(CudlaStatus.INVALID_ADDRESS)
        memory, size_bytes = device.regions[address]
        return np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(memory))

    def _device(self, handle: int) -> _Device:
        if handle not in self._devices:
            raise CudlaRefusal(CudlaStatus.INVALID_DEVICE)
        return self._devices[handle]

    def _network(self, module: int) -> tuple[int, FakeLoadable]:
        if module not in self._modules:
            raise CudlaRefusal(CudlaStatus.INVALID_MODULE)
        return self._modules[module]


def _records(address: int, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Read an array of C structures."""
    if not count:
        return np.zeros(0, dtype=dtype)
    return np.frombuffer(ctypes.string_at(address, count * dtype.itemsize), dtype=dtype)
