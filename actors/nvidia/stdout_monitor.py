"""Counts the pictures that NVDEC could not decode: PyNvVideoCodec only prints "Decode Error occurred for picture N".

The line does not name the decoder, so every range that was being decoded then is decoded again in software. A worker
redirects its standard output to a memory file; in a user's program only C's ``stdout`` is replaced.
"""

import atexit
import ctypes
import fcntl
import os
import select
import threading
from collections.abc import Callable
from functools import cache
from typing import Final

_ERROR_LINE: Final = b"Decode Error occurred"
_READ_BYTES = 1 << 16
STDOUT = 1
_PUNCH_HOLE: Final = 3
"""FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE of linux/falloc.h."""

_libc = ctypes.CDLL(None)
_libc.fdopen.restype = ctypes.c_void_p
_C_STDOUT: Final = ctypes.c_void_p.in_dll(_libc, "stdout")


class StdoutTap:
    """Reads the text that is written to a file descriptor, until ``close`` or exit. Safe from any thread."""

    def __init__(self, descriptor: int = STDOUT) -> None:
        self._descriptor = descriptor
        self._original = os.dup(descriptor)
        self._written = os.memfd_create("codecfleet-stdout")
        # O_APPEND: threads that write at the same moment never overwrite each other.
        fcntl.fcntl(self._written, fcntl.F_SETFL, os.O_APPEND)
        self._redirect()
        self._read_bytes = 0
        self._tail = b""
        self._count = 0
        self._lock = threading.Lock()
        self._is_open = True
        atexit.register(self.close)  # the last lines must not be lost

    def count(self) -> int:
        """Forward the newly written text; return how many wrong pictures were reported in this process so far."""
        _flush()
        with self._lock:
            self._forward()
            return self._count

    def close(self) -> None:
        """Restore the descriptor, and forward the remaining text. Idempotent."""
        _flush()
        with self._lock:
            if self._is_open:
                self._restore()  # restored before the last read, so that later writes go to the original file
                self._forward()
                self._is_open = False
                os.close(self._original)
                os.close(self._written)

    def _redirect(self) -> None:
        os.dup2(self._written, self._descriptor)

    def _restore(self) -> None:
        os.dup2(self._original, self._descriptor)

    def _forward(self) -> None:
        while self._is_open and (data := os.pread(self._written, _READ_BYTES, self._read_bytes)):
            self._read_bytes += len(data)
            text = self._tail + data
            self._count += text.count(_ERROR_LINE)
            self._tail = text[-len(_ERROR_LINE) + 1 :]
            # The file is in memory, where hours of output would not fit.
            _libc.fallocate(self._written, _PUNCH_HOLE, ctypes.c_int64(0), ctypes.c_int64(self._read_bytes))
            _write_all(self._original, data)


class CStdoutTap(StdoutTap):
    """Reads only C's ``stdout``, to which glibc lets a program assign (glibc manual, 12.2)."""

    def _redirect(self) -> None:
        _flush()
        self._before = _C_STDOUT.value
        self._stream = _libc.fdopen(os.dup(self._written), b"a")
        _C_STDOUT.value = self._stream

    def _restore(self) -> None:
        if _C_STDOUT.value == self._stream:
            _C_STDOUT.value = self._before
        # The file is not closed, because a thread of the package may be printing.
        _libc.fflush(ctypes.c_void_p(self._stream))


def _flush() -> None:
    """Flush only C's standard output: flushing all streams would wait for threads that are reading from a stream."""
    _libc.fflush(_C_STDOUT)


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            ready = select.poll()
            ready.register(descriptor, select.POLLOUT)
            ready.poll()


def wrong_picture_counter(make: Callable[[], StdoutTap]) -> Callable[[], int]:
    """Return a function that counts wrong pictures from its first call on. Safe from any thread."""
    lock, tap = threading.Lock(), cache(make)

    def count() -> int:
        with lock:
            return tap().count()

    return count
