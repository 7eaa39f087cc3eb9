"""Memory that is lent and comes back by itself: the keeping of idle buffers that host and device memory share."""

import threading
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from functools import partial

from .memory_budget import MemoryBudget

__all__ = ["LentMemory"]


class LentMemory:
    """Buffers that come back when nobody holds what lies in them any more. Safe from any thread.

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
        self._idle: defaultdict[int, deque[int]] = defaultdict(deque)
        self._sizes: OrderedDict[int, int] = OrderedDict()
        self._idle_bytes = 0
        # Re-entrant: taking back may happen wherever the interpreter lets go of a buffer, in here too.
        self._lock = threading.RLock()
        budget.reclaim_from(self.drop_oldest)

    def take(self, size_bytes: int) -> int:
        """Return the address of so many bytes; they hold whatever was in them before.

        Raises:
            DeviceError: no more can be allocated.
        """
        with self._lock:
            idle = self._idle[size_bytes]
            if idle:
                address = idle.pop()
                del self._sizes[address]
                self._idle_bytes -= size_bytes
                return address
        return self._budget.spend(size_bytes, partial(self._allocate, size_bytes))

    def returns_with(self, owner: object, address: int, size_bytes: int) -> None:
        """Have the bytes at an address taken back when ``owner`` is no more."""
        weakref.finalize(owner, self._take_back, address, size_bytes).atexit = False

    def drop_oldest(self) -> bool:
        """Free what has been idle longest; tell whether there was anything."""
        with self._lock:
            if not self._sizes:
                return False
            address, size_bytes = self._popped_oldest()
        self._give_up(address, size_bytes)
        return True

    def drop_idle(self) -> None:
        """Free what nobody uses."""
        while self.drop_oldest():
            pass

    def _take_back(self, address: int, size_bytes: int) -> None:
        surplus = []
        with self._lock:
            self._idle[size_bytes].append(address)
            self._sizes[address] = size_bytes
            self._idle_bytes += size_bytes
            while self._idle_bytes > self._idle_bytes_max:
                surplus.append(self._popped_oldest())
        for each in surplus:
            self._give_up(*each)

    def _popped_oldest(self) -> tuple[int, int]:
        address, size_bytes = self._sizes.popitem(last=False)
        self._idle[size_bytes].remove(address)
        self._idle_bytes -= size_bytes
        return address, size_bytes

    def _give_up(self, address: int, size_bytes: int) -> None:
        try:
            self._free(address)
        finally:
            self._budget.give_back(size_bytes)
