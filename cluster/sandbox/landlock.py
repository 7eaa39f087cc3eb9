"""Landlock: a process, with its children, gives up access to all files except the named ones.

Sources: linux/landlock.h; Documentation/userspace-api/landlock.rst of Linux 6.15.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

LEAST_ABI: Final = 3
"""The version in Linux 6.2. Version 1 never allows renaming between folders; 1 and 2 always allow truncating files."""
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION: Final = 1
_BENEATH: Final = 1
_NET_ABI, _IOCTL_ABI, _SCOPE_ABI = 4, 5, 6

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_ALL: Final = (1 << 15) - 1
_MAKE_DEVICES: Final = 1 << 6 | 1 << 11  #: Character and block devices
_TCP: Final = 0b11  #: Binding and connecting
#: Connecting to abstract Unix sockets of outside processes, and sending signals to outside processes
_SCOPES: Final = 0b11
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

READ: Final = _READ_FILE | _READ_DIR  #: Reading files and listing folders
RUN: Final = READ | _EXECUTE  #: Reading, and running programs
WRITE: Final = _ALL & ~_EXECUTE & ~_MAKE_DEVICES  #: Reading files, and making, changing, moving and removing them
USE: Final = _READ_FILE | _WRITE_FILE | _IOCTL_DEV  #: Reading and writing an existing device


def landlock_abi() -> int:
    """Return the kernel's version of Landlock; 0 if the kernel has no Landlock, or it is switched off."""
    return max(0, _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION)))


def restrict_files(rules: Iterable[tuple[Path, int]]) -> None:
    """Confine this thread and its children to the existing paths in ``rules``, each with its rights.

    Files that are open stay open. If the kernel supports it, TCP, signals to outside processes, and connections to the
    abstract sockets of outside processes are blocked too. Raises OSError: the kernel refuses, or has no Landlock.
    """
    abi = landlock_abi()
    handled = _ALL | (_IOCTL_DEV if abi >= _IOCTL_ABI else 0)
    fields = [handled, *([_TCP] if abi >= _NET_ABI else []), *([_SCOPES] if abi >= _SCOPE_ABI else [])]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _checked(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    try:
        for path, rights in rules:
            _add(ruleset, path, rights & handled)
        _checked(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _add(ruleset: int, path: Path, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, place)
        _checked(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(place)


def _checked(number: int, *arguments: object) -> int:
    found = _call(number, *arguments)
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return found


def _call(number: int, *arguments: object) -> int:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    found: int = call(ctypes.c_long(number), *arguments)
    return found
