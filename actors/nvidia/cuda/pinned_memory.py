"""Page-locked host memory, which the device copies into at full speed, in a pool."""

import os
from typing import Any, Final

from .buffer_pool import BufferPool, PooledBuffer
from .context import Cuda
from .memory_budget import MemoryBudget

_LOCKED_BYTES_MAX: Final = 16 << 30
"""Far more than a GPU's sessions have under way: what is locked is lost to everything else on the host."""
IDLE_BYTES: Final = 1 << 30
"""How much idle memory is kept: locking pages costs a millisecond for a picture."""


class PinnedMemory:
    """A device's page-locked buffers. Safe from any thread.

    A buffer returns with the last reference to it, or to an array or a picture in it.

    Args:
        cuda: the device.
        idle_bytes: how much idle memory is kept.
        part: this process's part of what may be locked: a quarter of the host's memory, at most 16 GiB.
    """

    def __init__(self, cuda: Cuda, idle_bytes: int = IDLE_BYTES, part: float = 1.0) -> None:
        lockable_bytes = min(_LOCKED_BYTES_MAX, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)
        self.budget = MemoryBudget(int(lockable_bytes * part), "the host's page-locked memory")
        self._memory = BufferPool(cuda.pin, cuda.unpin, idle_bytes, self.budget)

    def acquire(self, size_bytes: int) -> "PinnedBuffer":
        """Return an uninitialised buffer.

        Raises:
            DeviceMemory: no more memory may be locked.
            DeviceError: none can be.
        """
        return PinnedBuffer(self._memory.acquire(size_bytes))


class PinnedBuffer:
    """Some page-locked memory, of which ``numpy.asarray`` makes bytes that may be written and keep it from going back.

    Args:
        buffer: the memory.
    """

    __slots__ = ("_buffer", "address")

    def __init__(self, buffer: PooledBuffer) -> None:
        self._buffer = buffer
        self.address = buffer.address

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface, version 3."""
        return {"version": 3, "typestr": "|u1", "shape": (self._buffer.size_bytes,), "data": (self.address, False)}
