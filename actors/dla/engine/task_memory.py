"""Tasks as cuDLA reads them: arrays of C structures, and all that they point to.

The binding's own ``Task`` class holds one task, so arrays of them are laid out here.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .contract import DlaTask

__all__ = ["TASK", "TaskMemory"]

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
"""``cudlaTask``; events belong to standalone mode, and are left out."""


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
        self.count = len(tasks)
        self.address = self._keep(records)

    def _pointers(self, addresses: Sequence[int]) -> int:
        if not addresses:
            return 0
        return self._keep(np.array(addresses, dtype="<u8"))

    def _keep(self, array: NDArray[Any]) -> int:
        self._kept.append(array)
        return int(array.ctypes.data)
