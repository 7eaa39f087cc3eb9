"""What a process of root, or a program with rights of its own, can do beyond files: given up for good.

Sources: linux/prctl.h, linux/capability.h, capabilities(7).
"""

import ctypes
import os
import struct
from typing import Final

_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 38, 24
_VERSION: Final = 0x20080522
_SETS: Final = struct.Struct("=6I")
"""Effective, permitted and inheritable: the lower half of each, then the upper half."""
_KEPT: Final = (0, 1, 2, 3, 4, 5, 23, 24)
"""CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, KILL, SYS_NICE, SYS_RESOURCE: of files, and of our own."""
_MOST: Final = 64


def keep_from_gaining() -> None:
    """Have no program that this process starts gain rights by its file."""
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, *(ctypes.c_ulong(each) for each in (1, 0, 0, 0)))


def drop_capabilities() -> None:
    """Drop all capabilities of this thread, and of what it starts, but those of files.

    Raises:
        OSError: the kernel refuses.
    """
    library = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("=Ii", _VERSION, 0)
    sets = ctypes.create_string_buffer(_SETS.size)
    _check(library.capget(header, sets))
    kept = sum(1 << number for number in _KEPT)
    masks = [kept & 0xFFFFFFFF] * 3 + [kept >> 32] * 3
    for number in set(range(_MOST)) - set(_KEPT):
        library.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number))  # without CAP_SETPCAP there is nothing to drop
    _check(library.capset(header, _SETS.pack(*(a & b for a, b in zip(_SETS.unpack(sets.raw), masks, strict=True)))))


def _check(failed: int) -> None:
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
