"""Keeps a library from taking real-time priority for itself.

SVT-AV1, when root opens an encoder (as in most containers), puts the calling thread on SCHED_FIFO with the highest
priority, and so every thread that is started from there (seen with PyAV 18.1). No ordinary thread preempts those: on a
machine with fewer cores than they need nothing else runs, Ray's heartbeats among it, and who spins until another thread
has done something spins for ever. There is no switch for it. So the thread that opens an encoder goes without the right
to it: the kernel refuses, and SVT-AV1 goes on as for any other user (capabilities(7), CAP_SYS_NICE).
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["ordinary_scheduling"]

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
    """Let nothing that the calling thread does, and no thread that it starts, have another priority than it has.

    Threads that are started meanwhile stay without the right. Where the kernel has no such rights, or says nothing of
    them, nothing is done.
    """
    words = _own_rights() if sys.platform == "linux" else None
    if words is None or not words[0].effective & _SYS_NICE:
        yield
        return
    words[0].effective &= ~_SYS_NICE
    _set_rights(words)
    try:
        yield
    finally:
        words[0].effective |= _SYS_NICE
        _set_rights(words)


def _own_rights() -> "ctypes.Array[_Sets] | None":
    words = _Words()
    done = ctypes.CDLL(None).capget(ctypes.byref(_Header(_VERSION, 0)), words)
    return words if done == 0 else None


def _set_rights(words: "ctypes.Array[_Sets]") -> None:
    # Fewer rights of one's own, or those that one may have: neither is ever refused.
    ctypes.CDLL(None).capset(ctypes.byref(_Header(_VERSION, 0)), words)
