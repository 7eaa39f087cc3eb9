"""Page-locked host memory, which the device copies into at full speed, lent and taken back by itself."""

import ctypes
import threading
import weakref
from collections import defaultdict
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .cuda import Cuda

__all__ = ["PinnedMemory"]

IDLE_BYTES: Final = 1 << 30
"""How much idle memory is kept: locking pages costs a millisecond for a picture."""


class PinnedMemory:
    """A device's page-locked buffers. Safe from any thread.

    A buffer comes back when nobody holds an array, or a picture, that lies in it any more.

    Args:
        cuda: the device.
        idle_bytes: how much idle memory is kept.
    """

    def __init__(self, cuda: Cuda, idle_bytes: int = IDLE_BYTES) -> None:
        self._cuda = cuda
        self._idle_bytes_max = idle_bytes
        self._idle: defaultdict[int, list[int]] = defaultdict(list)
        self._idle_bytes = 0
        # Re-entrant: taking back may happen wherever the interpreter lets go of an array, in here too.
        self._lock = threading.RLock()

    def lend(self, size_bytes: int) -> NDArray[np.uint8]:
        """Return a buffer; it holds whatever was in it before.

        Raises:
            DeviceError: no more memory can be locked.
        """
        with self._lock:
            idle = self._idle[size_bytes]
            address = idle.pop() if idle else 0
            self._idle_bytes -= size_bytes if address else 0
        address = address or self._cuda.pin(size_bytes)
        buffer = (ctypes.c_uint8 * size_bytes).from_address(address)
        weakref.finalize(buffer, self._take_back, address, size_bytes).atexit = False
        return np.frombuffer(memoryview(buffer).cast("B"), dtype=np.uint8)

    def _take_back(self, address: int, size_bytes: int) -> None:
        surplus = []
        with self._lock:
            self._idle[size_bytes].append(address)
            self._idle_bytes += size_bytes
            while self._idle_bytes > self._idle_bytes_max:
                # Another film's, rather than what has just been of use.
                size = next(size for size, idle in self._idle.items() if idle)
                surplus.append(self._idle[size].pop())
                self._idle_bytes -= size
        for each in surplus:
            self._cuda.unpin(each)
