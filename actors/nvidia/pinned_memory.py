"""Page-locked host memory, which the device copies into at full speed, lent and taken back by itself."""

import ctypes
import os
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .cuda import Cuda
from .lent_memory import LentMemory
from .memory_budget import MemoryBudget

__all__ = ["PinnedMemory"]

_LOCKED_BYTES_MAX: Final = 16 << 30
"""Far more than a GPU's sessions have under way: what is locked is lost to everything else on the host."""
IDLE_BYTES: Final = 1 << 30
"""How much idle memory is kept: locking pages costs a millisecond for a picture."""


class PinnedMemory:
    """A device's page-locked buffers. Safe from any thread.

    A buffer comes back when nobody holds an array, or a picture, that lies in it any more.

    Args:
        cuda: the device.
        idle_bytes: how much idle memory is kept.
        budget: the host's memory that may be locked; None is a quarter of it, or 16 GiB if that is less.
    """

    def __init__(self, cuda: Cuda, idle_bytes: int = IDLE_BYTES, budget: MemoryBudget | None = None) -> None:
        self.budget = budget or MemoryBudget(_lockable_bytes(), "the host's page-locked memory")
        self._memory = LentMemory(cuda.pin, cuda.unpin, idle_bytes, self.budget)

    def lend(self, size_bytes: int) -> NDArray[np.uint8]:
        """Return a buffer; it holds whatever was in it before.

        Raises:
            DeviceMemory: no more memory may be locked.
            DeviceError: none can be.
        """
        address = self._memory.take(size_bytes)
        buffer = (ctypes.c_uint8 * size_bytes).from_address(address)
        self._memory.returns_with(buffer, address, size_bytes)
        return np.frombuffer(memoryview(buffer).cast("B"), dtype=np.uint8)


def _lockable_bytes() -> int:
    return min(_LOCKED_BYTES_MAX, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)
