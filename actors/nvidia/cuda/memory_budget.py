"""How much of a memory this process may use, and what is evicted when it is full."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from ....errors import DeviceMemory

USABLE_PART: Final = 0.9
"""The part of a device's free memory that is used: what drivers and kernels take by themselves needs the rest."""
_ADVICE: Final = "Run fewer segments at a time, or end what else uses this GPU."
_MIB: Final = 1 << 20

ResultT = TypeVar("ResultT")


class MemoryBudget:
    """Counts what is taken of a memory, never more than its total. Safe from any thread.

    Idle objects count as taken until their room is needed: then they are evicted one by one, in the order of
    ``reclaim_from``.

    Args:
        total_bytes: what may be taken at once; None has no bound.
        name: what it is the memory of, for messages.
    """

    def __init__(self, total_bytes: int | None, name: str = "the GPU's memory") -> None:
        self.total_bytes = total_bytes
        self._name = name
        self._lock = threading.Lock()
        self._taken_bytes = 0
        # Without the lock: the interpreter may release a buffer anywhere, even within this class.
        self._returned: deque[int] = deque()
        self._reclaims: list[Callable[[], bool]] = []

    @property
    def taken_bytes(self) -> int:
        """How much is taken now."""
        with self._lock:
            self._settle()
            return self._taken_bytes

    def reclaim_from(self, reclaim: Callable[[], bool]) -> None:
        """Ask ``reclaim`` for room: it evicts one idle object, and returns whether there was one."""
        self._reclaims.append(reclaim)

    def spend(self, size_bytes: int, allocate: Callable[[], ResultT]) -> ResultT:
        """Take ``size_bytes`` for what ``allocate`` returns; ``give_back`` them when that is freed.

        Idle objects are evicted until it fits the budget and the driver.

        Raises:
            DeviceMemory: it does not fit, and nothing is idle.
            CodecfleetError: any other error of ``allocate``; nothing is taken then.
        """
        while True:
            self._take(size_bytes)
            try:
                return allocate()
            except DeviceMemory:
                self.give_back(size_bytes)
                if not self._reclaim():
                    raise
            except BaseException:
                self.give_back(size_bytes)
                raise

    def give_back(self, size_bytes: int) -> None:
        """Give taken bytes back."""
        self._returned.append(size_bytes)

    def _take(self, size_bytes: int) -> None:
        while not self._taken(size_bytes):
            if not self._reclaim():
                held = f"{self.taken_bytes // _MIB} of {(self.total_bytes or 0) // _MIB} MiB are in use"
                raise DeviceMemory(f"{self._name} does not hold another {size_bytes / _MIB:.1f} MiB: {held}", _ADVICE)

    def _taken(self, size_bytes: int) -> bool:
        with self._lock:
            self._settle()
            if self.total_bytes is not None and self._taken_bytes + size_bytes > self.total_bytes:
                return False
            self._taken_bytes += size_bytes
            return True

    def _settle(self) -> None:
        while self._returned:
            self._taken_bytes -= self._returned.popleft()

    def _reclaim(self) -> bool:
        # Not under the lock: what is asked has locks of its own.
        return any(reclaim() for reclaim in self._reclaims)
