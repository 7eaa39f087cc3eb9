"""Pools of buffers that return with their last reference, for host and device memory."""

import sys
from collections import deque
from collections.abc import Callable
from functools import partial

from .memory_budget import MemoryBudget


class PooledBuffer:
    """Memory that returns to its pool with the last reference, on any thread.

    When the interpreter ends, nothing returns: the driver may be gone, and frees its process's memory.
    """

    __slots__ = ("__weakref__", "_memory", "address", "size_bytes")

    def __init__(self, memory: "BufferPool", address: int, size_bytes: int) -> None:
        self._memory = memory
        self.address = address
        self.size_bytes = size_bytes

    # A quarter of the cost of ``weakref.finalize``. The function is bound here: modules are emptied at exit.
    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():
            self._memory.take_back(self.address, self.size_bytes)


class BufferPool:
    """Buffers that return when nothing in them is referenced. Safe from any thread.

    A dozen threads take and return a buffer for every picture, thousands a second, and would queue for a lock whose
    holder may wait for the interpreter. So each size has a deque, whose ends are taken and put atomically.

    Args:
        allocate: returns the address of that many bytes.
        free: frees such an address.
        idle_bytes: how much idle memory is kept.
        budget: what all of it, idle or in use, is taken from; idle buffers are evicted there.
    """

    def __init__(
        self, allocate: Callable[[int], int], free: Callable[[int], None], idle_bytes: int, budget: MemoryBudget
    ) -> None:
        self._allocate = allocate
        self._free = free
        self._idle_bytes_max = idle_bytes
        self._budget = budget
        self._idle: dict[int, deque[int]] = {}
        self._latest_bytes = 0
        budget.reclaim_from(self.drop_oldest)

    def take(self, size_bytes: int) -> int:
        """Return the address of ``size_bytes`` uninitialised bytes.

        Raises:
            DeviceError: no more can be allocated.
        """
        idle = self._idle.get(size_bytes)
        if idle:
            try:
                return idle.pop()
            except IndexError:  # another thread was faster
                pass
        return self._budget.spend(size_bytes, partial(self._allocate, size_bytes))

    def acquire(self, size_bytes: int) -> PooledBuffer:
        """Return a buffer of ``size_bytes`` uninitialised bytes.

        Raises:
            DeviceError: no more can be allocated.
        """
        return PooledBuffer(self, self.take(size_bytes), size_bytes)

    def drop_oldest(self) -> bool:
        """Free the buffer idle longest, preferably not of the latest size; return whether there was one."""
        sizes = sorted(self._idle, key=lambda size_bytes: size_bytes == self._latest_bytes)
        for size_bytes in sizes:
            try:
                address = self._idle[size_bytes].popleft()
            except IndexError:
                continue
            self._give_up(address, size_bytes)
            return True
        return False

    def take_back(self, address: int, size_bytes: int) -> None:
        """Take a buffer back: called wherever its last reference goes, even within any line of this class."""
        self._latest_bytes = size_bytes
        idle = self._idle.get(size_bytes)
        if idle is None:
            idle = self._idle.setdefault(size_bytes, deque())
        idle.append(address)
        while self._idle_bytes() > self._idle_bytes_max and self.drop_oldest():
            pass

    def _idle_bytes(self) -> int:
        return sum([size_bytes * len(idle) for size_bytes, idle in list(self._idle.items())])

    def _give_up(self, address: int, size_bytes: int) -> None:
        try:
            self._free(address)
        finally:
            self._budget.give_back(size_bytes)
