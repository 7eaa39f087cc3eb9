"""Keeps a library from taking real-time priority: SVT-AV1, opened as root, puts threads on SCHED_FIFO (PyAV 18.1).

No option of the library prevents that, so a thread drops CAP_SYS_NICE (capabilities(7)) while it opens an encoder.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

_VERSION: Final = 0x20080522
"""_LINUX_CAPABILITY_VERSION_3: two words of 32 bits for each set."""
_SYS_NICE: Final = 1 << 23


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


_Words = _Sets * 2


@contextmanager
def ordinary_scheduling() -> Iterator[None]:
    """Keep the calling thread, and threads that it starts, from getting real-time priority (on Linux only)."""
    words = _Words()
    is_known = sys.platform == "linux" and not _libc().capget(ctypes.byref(_Header(_VERSION, 0)), words)
    if not is_known or not words[0].effective & _SYS_NICE:
        yield
        return
    words[0].effective &= ~_SYS_NICE
    _set_rights(words)
    try:
        yield
    finally:
        words[0].effective |= _SYS_NICE
        _set_rights(words)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _set_rights(words: "ctypes.Array[_Sets]") -> None:
    # The kernel never refuses this: a thread may drop a capability, and regain it while the capability is permitted.
    _libc().capset(ctypes.byref(_Header(_VERSION, 0)), words)
