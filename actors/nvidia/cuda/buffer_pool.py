"""Memory that is lent and comes back by itself: the keeping of idle buffers that host and device memory share."""

import sys
from collections import deque
from collections.abc import Callable
from functools import partial

from .memory_budget import MemoryBudget

__all__ = ["BufferPool", "PooledBuffer"]


class PooledBuffer:
    """Some memory that goes back when nobody holds this any more, on whichever thread that happens.

    When the interpreter ends, nothing goes back: the driver may be gone by then, and had the memory of its process.

    Args:
        memory: who lends it.
        address: where it begins.
        size_bytes: how much it is.
    """

    __slots__ = ("__weakref__", "_memory", "address", "size_bytes")

    def __init__(self, memory: "BufferPool", address: int, size_bytes: int) -> None:
        self._memory = memory
        self.address = address
        self.size_bytes = size_bytes

    # A fourth of what a finalizer of ``weakref`` takes. The function is kept here: modules are emptied in the end.
    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():
            self._memory.take_back(self.address, self.size_bytes)


class BufferPool:
    """Buffers that come back when nobody holds what lies in them any more. Safe from any thread.

    A dozen threads take and return a buffer for every picture, thousands a second. With a lock around that, they would
    queue for it: whoever holds it may have to wait for the interpreter. So each size has a deque, whose ends the
    interpreter takes from and puts to at once, and there is no lock.

    Args:
        allocate: returns the address of so many bytes.
        free: gives such an address back.
        idle_bytes: how much idle memory is kept.
        budget: what all of it is taken from, idle or lent; idle buffers give way there.
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
        """Return the address of so many bytes; they hold whatever was in them before.

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
        """Return so many bytes; they hold whatever was in them before.

        Raises:
            DeviceError: no more can be allocated.
        """
        return PooledBuffer(self, self.take(size_bytes), size_bytes)

    def drop_oldest(self) -> bool:
        """Free what has been idle longest, of another size than the latest if there is any; tell whether there was."""
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
        """Have bytes back that were lent: wherever the interpreter lets go of them, also within any line of this."""
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
