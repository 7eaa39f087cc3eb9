"""Hearing of pictures that NVDEC could not decode rightly.

PyNvVideoCodec says so in one way only: a line on the process's standard output, "Decode Error occurred for picture N",
which names neither decoder nor file. So a worker process that decodes on a GPU gives its standard output a file that
can be read, passes on everything, and counts those lines. Whoever decoded while the count rose decodes again in
software: damage is rare, and being wrong about whose it is costs time and no picture. A process that may be a user's
own program is never listened to.
"""

import atexit
import ctypes
import fcntl
import os
import select
import threading
from typing import Final

__all__ = ["StdoutMonitor", "StdoutTap"]

_SAID = b"Decode Error occurred"
_READ_BYTES = 1 << 16
STDOUT = 1
_PUNCH_HOLE: Final = 3
"""FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE of linux/falloc.h."""

_libc = ctypes.CDLL(None)


class StdoutTap:
    """Listens to a file descriptor, standard output unless told otherwise. Safe from any thread.

    StdoutMonitor begins with the object and ends with ``close``, or with the process.
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
        _flush()
        with self._lock:
            self._pass_on()
            return self._count

    def close(self) -> None:
        """Give the descriptor back what it had, and pass on what is left. Idempotent."""
        _flush()
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
            # The file is memory: a program that decodes for hours may say more than fits.
            _libc.fallocate(self._heard, _PUNCH_HOLE, ctypes.c_int64(0), ctypes.c_int64(self._read_bytes))
            _write_all(self._original, data)


def _flush() -> None:
    """Have C and C++ code write what it holds back: to standard output alone.

    Flushing every stream would wait for whoever is reading from one, such as a thread in ``input``.
    """
    _libc.fflush(ctypes.c_void_p.in_dll(_libc, "stdout"))


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, also where the descriptor takes less at once or shall not be waited for by others."""
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            ready = select.poll()
            ready.register(descriptor, select.POLLOUT)
            ready.poll()


class StdoutMonitor:
    """Hears of wrong pictures from the first count on. Safe from any thread.

    Threads may count first at the same time, and one tap is all there may be: of two, the first would hear nothing.
    """

    def __init__(self, descriptor: int = STDOUT) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._tap: StdoutTap | None = None

    def count(self) -> int:
        """Return how many pictures were said to be wrong so far; listens from now on if nobody did."""
        with self._lock:
            if self._tap is None:
                self._tap = StdoutTap(self._descriptor)
            return self._tap.count()
