"""Memory kept for reuse, because the system maps and clears new memory page by page."""

import threading
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MOST_LARGER: Final = 2


class IdleMemory:
    """Memory that no tensor or picture uses, up to ``most_bytes``; what was idle longest is dropped first. Thread-safe.

    Memory smaller than ``least_bytes`` is not kept.
    """

    def __init__(self, most_bytes: int, least_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._least_bytes = least_bytes
        # Reentrant: garbage collection in a thread that holds the lock may destroy an object whose memory then returns
        # through ``keep``.
        self._lock = threading.RLock()
        self._held: list[NDArray[np.uint8]] = []

    def keep(self, memory: NDArray[np.uint8]) -> None:
        """Keep memory, unless it is too small or too large."""
        if not self._least_bytes <= memory.nbytes <= self._most_bytes:
            return
        with self._lock:
            self._held.append(memory)
            while sum(each.nbytes for each in self._held) > self._most_bytes:
                del self._held[0]

    def take(self, size_bytes: int) -> NDArray[np.uint8]:
        """Return memory of at least this size, and at most twice this size, kept or new."""
        with self._lock:
            found = next((each for each in self._held if fits(each, size_bytes)), None)
            if found is not None:
                # By identity: garbage collection may have called ``keep``, which may have dropped this memory.
                self._held = [each for each in self._held if each is not found]
                return found
        return np.empty(size_bytes, np.uint8)


def fits(memory: NDArray[np.uint8], size_bytes: int) -> bool:
    """Return whether memory is large enough for a use, and not far too large."""
    return size_bytes <= memory.nbytes <= _MOST_LARGER * size_bytes
