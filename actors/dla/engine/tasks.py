"""The values that a DLA session takes and returns, as cuDLA reads them (CUDA for Tegra, chapter 5, and cudla.h)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..nvsci.syncs import Fence
from .tensors import TensorDescriptor


class Access(IntFlag):
    """The purposes of registered memory (``cudlaAccessPermissionFlags``)."""

    READ_WRITE = 0
    TASK_STATISTICS = 2  #: receives the statistics of a task


class LoadOption(IntFlag):
    """How a loadable is loaded (``cudlaModuleLoadFlags``, ``cudlaScratchMemoryConfig``)."""

    NONE = 0
    FAULT_DIAGNOSTICS = 1  #: the library's own module, which tests for permanent faults and needs no loadable
    SHARED_SCRATCH_MEMORY = 2


class SubmitOption(IntFlag):
    """How tasks are submitted (``cudlaSubmissionFlags``)."""

    NONE = 0
    NOOP = 1  #: do everything but run the tasks
    SKIP_LOCK = 2  #: cuDLA need not lock: no other thread submits to this handle or stream meanwhile
    DIAGNOSTICS = 4  #: the tasks run the library's own module, which finds faults


@dataclass(frozen=True, slots=True)
class DeviceAttributes:
    """``cudlaDeviceGetAttribute``: whether CUDA and the DLA share addresses, and the DLA's version (Orin: 2.0)."""

    unified_addressing: bool
    device_version: int


@dataclass(frozen=True, slots=True)
class DlaModule:
    """A loadable in a handle: ``cudlaModule`` with its attributes."""

    handle: int
    inputs: tuple[TensorDescriptor, ...]
    outputs: tuple[TensorDescriptor, ...]
    statistics: tuple[TensorDescriptor, ...]  # the tensors of statistics, in the order of a task's buffers


@dataclass(frozen=True, slots=True)
class Registration:
    """Memory that is registered with a DLA, so that the DLA's tasks may use the memory."""

    memory: int  # the CUDA pointer (hybrid mode) or NvSciBuf object (standalone mode) that was registered
    size_bytes: int
    dla_address: int  # the memory's address for the DLA
    access: Access = Access.READ_WRITE


@dataclass(frozen=True, slots=True)
class DeviceBuffer:
    """Memory that a session allocated, and registered with its DLA."""

    memory: int
    size_bytes: int
    registration: Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class DlaTask:
    """One run of a module: ``cudlaTask``. Its fences are those of the whole submission (``TaskEvents``)."""

    module: DlaModule
    inputs: tuple[Registration, ...]
    outputs: tuple[Registration, ...]
    statistics: tuple[Registration, ...] = ()  # no buffers, or one buffer for each of the module's statistics


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TaskEvents:
    """The fences of a standalone submission (CUDA for Tegra, section 5.1.4): the first task waits, the last signals."""

    waits: tuple[Fence, ...]  # the fences for which the submission waits, no two at the same point
    semaphore: int  # the address, for the DLA, of the sync object to signal
    end: Fence  # the fence of that signal, which cuDLA fills in


def task_fault(task: DlaTask, module: DlaModule | None, registrations: Mapping[int, Registration]) -> str:
    """Return why a task cannot be submitted with this ``module`` and these registrations; "" if it can."""
    if module is None or task.module is not module:
        return "the task's module is not loaded in this session"
    kinds = [("input", module.inputs, task.inputs), ("output", module.outputs, task.outputs)]
    if task.statistics:
        kinds.append(("statistics buffer", module.statistics, task.statistics))
    for kind, wanted, given in kinds:
        if len(wanted) != len(given):
            return f"a task of this module needs {len(wanted)} {kind}s, not {len(given)}"
        for descriptor, memory in zip(wanted, given, strict=True):
            if registrations.get(memory.dla_address) is not memory:
                return f"the {kind} for {descriptor.name} is not registered here"
            if memory.size_bytes < descriptor.size_bytes:
                return f"the {kind} for {descriptor.name} needs {descriptor.size_bytes} bytes, not {memory.size_bytes}"
    return ""


TASK: Final = np.dtype(
    {
        "names": [
            *("module_handle", "output_tensors", "output_tensor_count", "input_tensor_count"),
            *("input_tensors", "wait_events", "signal_events"),
        ],
        "formats": ["<u8", "<u8", "<u4", "<u4", "<u8", "<u8", "<u8"],
        "offsets": [0, 8, 16, 20, 24, 32, 40],
        "itemsize": 48,
    }
)
"""``cudlaTask``."""
_FENCE: Final = np.dtype({"names": ["fence", "type"], "formats": ["<u8", "<i4"], "offsets": [0, 8], "itemsize": 16})
_WAIT_EVENTS: Final = np.dtype(
    {"names": ["fences", "count"], "formats": ["<u8", "<u4"], "offsets": [0, 8], "itemsize": 16}
)
_SIGNAL_EVENTS: Final = np.dtype(
    {
        "names": ["semaphores", "fences", "count"],
        "formats": ["<u8", "<u8", "<u4"],
        "offsets": [0, 8, 16],
        "itemsize": 24,
    }
)
_NVSCISYNC_FENCE: Final = 1


class TaskMemory:
    """``cudlaTask`` structures and everything to which they point.

    Keep this object until the tasks end. This class exists because NVIDIA's binding holds only one structure.
    """

    def __init__(self, tasks: Sequence[DlaTask], events: TaskEvents | None = None) -> None:
        self._kept: list[Any] = [events]
        records = np.zeros(len(tasks), dtype=TASK)
        for record, task in zip(records, tasks, strict=True):
            record["module_handle"] = task.module.handle
            record["input_tensors"] = self._pointers([tensor.dla_address for tensor in task.inputs])
            record["input_tensor_count"] = len(task.inputs)
            # Statistics follow the outputs, and count as outputs.
            outputs = [tensor.dla_address for tensor in (*task.outputs, *task.statistics)]
            record["output_tensors"] = self._pointers(outputs)
            record["output_tensor_count"] = len(outputs)
        if events is not None:
            records[0]["wait_events"] = self._waits(events.waits) if events.waits else 0
            records[-1]["signal_events"] = self._signal(events)
        self.count = len(tasks)
        self.address = self._keep(records)

    def _waits(self, fences: Sequence[Fence]) -> int:
        listed = np.array([(fence.address, _NVSCISYNC_FENCE) for fence in fences], dtype=_FENCE)
        return self._keep(np.array([(self._keep(listed), len(fences))], dtype=_WAIT_EVENTS))

    def _signal(self, events: TaskEvents) -> int:
        fence = self._keep(np.array([(events.end.address, _NVSCISYNC_FENCE)], dtype=_FENCE))
        return self._keep(np.array([(self._pointers([events.semaphore]), fence, 1)], dtype=_SIGNAL_EVENTS))

    def _pointers(self, addresses: Sequence[int]) -> int:
        return self._keep(np.array(addresses, dtype="<u8")) if addresses else 0

    def _keep(self, array: NDArray[Any]) -> int:
        self._kept.append(array)
        return int(array.ctypes.data)
