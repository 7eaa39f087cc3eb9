"""Hearing of pictures that NVDEC could not decode rightly.

PyNvVideoCodec says so in one way only: a line on the process's standard output, "Decode Error occurred for picture N",
which names neither decoder nor file. So a worker process that decodes on a GPU gives its standard output a file that
can be read, passes on everything, and counts those lines. Whoever decoded while the count rose decodes again in
software: damage is rare, and being wrong about whose it is costs time and no picture.
"""

import atexit
import ctypes
import fcntl
import os
import threading
from collections.abc import Callable
from functools import cache

__all__ = ["SpokenErrors", "heard_in_time"]

_SAID = b"Decode Error occurred"
_READ_BYTES = 1 << 16
STDOUT = 1


class SpokenErrors:
    """Listens to a file descriptor, standard output unless told otherwise. Safe from any thread.

    Listening begins with the object and ends with ``close``, or with the process.
    """

    def __init__(self, descriptor: int = STDOUT) -> None:
        self._descriptor = descriptor
        self._original = os.dup(descriptor)
        self._heard = os.memfd_create("codecfleet-stdout")
        # Appending: whoever writes never overwrites what another thread writes at that moment.
        fcntl.fcntl(self._heard, fcntl.F_SETFL, os.O_APPEND)
        os.dup2(self._heard, descriptor)
        self._read_bytes = 0
        self._tail = b""
        self._count = 0
        self._lock = threading.Lock()
        self._is_open = True
        atexit.register(self.close)  # what was said last must not be lost

    def count(self) -> int:
        """Return how many pictures were said to be wrong so far, by anybody in this process; pass on what was said."""
        ctypes.CDLL(None).fflush(None)  # what C and C++ code still holds back
        with self._lock:
            self._pass_on()
            return self._count

    def close(self) -> None:
        """Give the descriptor back what it had, and pass on what is left. Idempotent."""
        ctypes.CDLL(None).fflush(None)
        with self._lock:
            if self._is_open:
                os.dup2(self._original, self._descriptor)  # first: what others say from now on goes its old way
                self._pass_on()
                self._is_open = False
                os.close(self._original)
                os.close(self._heard)

    def _pass_on(self) -> None:
        while self._is_open and (data := os.pread(self._heard, _READ_BYTES, self._read_bytes)):
            self._read_bytes += len(data)
            heard = self._tail + data
            self._count += heard.count(_SAID)
            self._tail = heard[-len(_SAID) + 1 :]
            os.write(self._original, data)


def heard_in_time(listen: Callable[[], SpokenErrors] = SpokenErrors) -> Callable[[], int]:
    """Return what counts the wrong pictures of this process, and listens from its first call on.

    Threads may call it first at the same time, and one listener is all there may be: of two, the first would hear
    nothing any more.
    """
    turn, spoken = threading.Lock(), cache(listen)

    def count() -> int:
        with turn:
            heard = spoken()
        return heard.count()

    return count
