"""Confines this process and its children to the files of one command, without sockets.

Decoders are large, and inputs may be hostile. A film that takes over a confined command reaches only the command's
inputs and output folders and the system's programs. docs/security.md states what this protects and what remains
exposed.
"""

import ctypes
import os
import resource
import struct
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .landlock import LEAST_ABI, READ, RUN, USE, WRITE, landlock_abi, restrict_files
from .seccomp import has_seccomp, refuse_calls

_SYSTEM: Final = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/nix/store", "/gnu/store")
_SETTINGS: Final = (
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/mime.types"),
    *("/proc", "/sys"),
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
DATA_OF_MEMORY: Final = 2
"""The limit on a process's data, as a multiple of the machine's memory. Allocated data counts even if it is unused, and
encoders use only about two thirds of what they allocate (x264 at 2160p: 1.9 GB of 2.6 GB)."""
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 38, 24  #: linux/prctl.h
_CAP_VERSION: Final = 0x20080522  #: linux/capability.h
_CAP_SETS: Final = struct.Struct("=6I")
"""Effective, permitted and inheritable capabilities: the lower half of each, then the upper half of each."""
_CAP_KEPT: Final = (0, 1, 2, 3, 4, 5, 23, 24)
"""CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID for files; KILL, SYS_NICE, SYS_RESOURCE for child processes."""
_CAP_MAX: Final = 64
_PACKAGE: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAccess:
    """The files that a command may use."""

    reads: tuple[Path, ...]  # files and folders that the command reads
    writes: tuple[Path, ...] = ()  # folders below which the command writes


def why_not() -> str:
    """Return why this kernel cannot confine a command; "" if it can."""
    abi = landlock_abi()
    if abi < LEAST_ABI:
        found = f"Landlock has version {abi}" if abi else "Landlock is missing"
        return f"{found}: Linux 6.2 with CONFIG_SECURITY_LANDLOCK has the required version 3"
    return "" if has_seccomp() else "the kernel has no seccomp, or codecfleet does not support this processor"


def confine(access: FileAccess, memory_bytes: int) -> None:
    """Confine this process for good; it must have only one thread. Raises OSError if the kernel refuses."""
    if threading.active_count() > 1 or len(list(Path("/proc/self/task").iterdir())) > 1:
        raise OSError("this process has other threads")
    harden()
    _lower(resource.RLIMIT_DATA, DATA_OF_MEMORY * memory_bytes)
    _drop_capabilities()
    restrict_files(_rules(access))
    refuse_calls()


def harden() -> None:
    """Disable core dumps, which contain pictures, and keep programs that this process runs from gaining rights."""
    _lower(resource.RLIMIT_CORE, 0)
    ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, *(ctypes.c_ulong(each) for each in (1, 0, 0, 0)))


def _drop_capabilities() -> None:
    """Drop this thread's capabilities for good, except ``_CAP_KEPT``. Raises OSError if the kernel refuses."""
    library = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("=Ii", _CAP_VERSION, 0)
    sets = ctypes.create_string_buffer(_CAP_SETS.size)
    _check(library.capget(header, sets))
    kept = sum(1 << number for number in _CAP_KEPT)
    masks = [kept & 0xFFFFFFFF] * 3 + [kept >> 32] * 3
    for number in set(range(_CAP_MAX)) - set(_CAP_KEPT):
        library.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number))  # may fail without CAP_SETPCAP, which does no harm
    left = [had & mask for had, mask in zip(_CAP_SETS.unpack(sets.raw), masks, strict=True)]
    _check(library.capset(header, _CAP_SETS.pack(*left)))


def _check(failed: int) -> None:
    if failed:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _lower(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (least, least))


def _rules(access: FileAccess) -> Iterator[tuple[Path, int]]:
    yield from ((Path(name), RUN) for name in _SYSTEM)
    yield from ((folder, RUN) for folder in program_folders())
    yield from ((Path(name), READ) for name in _SETTINGS)
    yield from ((Path(name), USE) for name in _DEVICES)
    yield from ((path, READ) for path in access.reads)
    yield from ((folder, WRITE) for folder in access.writes)


def program_folders() -> set[Path]:
    """Return the folders from which Python and its modules are loaded."""
    # In a checkout, some folders of the package are links.
    linked = {path.resolve() for path in _PACKAGE.iterdir() if path.is_symlink()}
    # ``python -m`` adds the current folder, which may hold films; that folder counts only if it is the running
    # checkout.
    searched = {Path(path) for path in sys.path if path} - ({Path.cwd()} - {_PACKAGE.parent})
    python = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent}
    return {_PACKAGE, *linked, *searched, *python}
