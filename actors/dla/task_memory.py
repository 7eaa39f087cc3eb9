"""Tasks as cuDLA reads them: arrays of C structures, and all that they point to.

The binding's own ``Task`` class holds one task and takes no fences, so the structures are laid out here, for it and for
the library alike.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .session import DlaTask, Fence, Signal

__all__ = ["FENCE", "SIGNAL_EVENTS", "TASK", "WAIT_EVENTS", "TaskMemory"]

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
FENCE: Final = np.dtype({"names": ["fence", "kind"], "formats": ["<u8", "<i4"], "offsets": [0, 8], "itemsize": 16})
"""``CudlaFence``."""
WAIT_EVENTS: Final = np.dtype(
    {"names": ["fences", "count"], "formats": ["<u8", "<u4"], "offsets": [0, 8], "itemsize": 16}
)
"""``cudlaWaitEvents``."""
SIGNAL_EVENTS: Final = np.dtype(
    {
        "names": ["semaphores", "fences", "count"],
        "formats": ["<u8", "<u8", "<u4"],
        "offsets": [0, 8, 16],
        "itemsize": 24,
    }
)
"""``cudlaSignalEvents``."""


class TaskMemory:
    """An array of ``cudlaTask``. Keep it until the tasks are done."""

    def __init__(self, tasks: Sequence[DlaTask]) -> None:
        self._kept: list[NDArray[Any]] = []
        records = np.zeros(len(tasks), dtype=TASK)
        for record, task in zip(records, tasks, strict=True):
            record["module_handle"] = task.module.handle
            record["input_tensors"] = self._pointers([tensor.dla_address for tensor in task.inputs])
            record["input_tensor_count"] = len(task.inputs)
            # Statistics come behind the outputs, and count as such.
            outputs = [tensor.dla_address for tensor in (*task.outputs, *task.statistics)]
            record["output_tensors"] = self._pointers(outputs)
            record["output_tensor_count"] = len(outputs)
            record["wait_events"] = self._waits(task.waits)
            record["signal_events"] = self._signal(task.signal)
        self.count = len(tasks)
        self.address = self._keep(records)

    def _pointers(self, addresses: Sequence[int]) -> int:
        if not addresses:
            return 0
        return self._keep(np.array(addresses, dtype="<u8"))

    def _waits(self, fences: Sequence[Fence]) -> int:
        if not fences:
            return 0
        events = np.zeros(1, dtype=WAIT_EVENTS)
        events["fences"], events["count"] = self._fences(fences), len(fences)
        return self._keep(events)

    def _signal(self, signal: Signal | None) -> int:
        if signal is None:
            return 0
        events = np.zeros(1, dtype=SIGNAL_EVENTS)
        events["semaphores"] = self._pointers([signal.semaphore.dla_address])
        events["fences"], events["count"] = self._fences([signal.fence]), 1
        return self._keep(events)

    def _fences(self, fences: Sequence[Fence]) -> int:
        return self._keep(np.array([(fence.address, fence.kind) for fence in fences], dtype=FENCE))

    def _keep(self, array: NDArray[Any]) -> int:
        self._kept.append(array)
        return int(array.ctypes.data)
