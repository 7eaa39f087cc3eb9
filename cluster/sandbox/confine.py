"""Confining this process and all that it starts to the files of one command, without any socket.

What reads a film may be taken over by it: decoders are large, and their inputs hostile. A confined command can then
read its inputs and the system's programs, write where its outputs go, and reach nothing else. docs/security.md says
what that defends and what not.
"""

import resource
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .landlock import LEAST_ABI, READ, RUN, USE, WRITE, landlock_abi, restrict_files
from .privileges import drop_capabilities, keep_from_gaining
from .seccomp import has_seccomp, refuse_calls

_SYSTEM: Final = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/nix/store", "/gnu/store")
_SETTINGS: Final = (
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/mime.types"),
    *("/proc", "/sys"),
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
DATA_OF_MEMORY: Final = 2
"""How much data a process may have, in what the machine has of memory: also what it has asked for and never uses
counts, and encoders use two thirds (x264 at 2160p: 2.6 GB of data, 1.9 GB of memory)."""
_PACKAGE: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAccess:
    """The files of a command: what it reads, and the folders beneath which it writes."""

    reads: tuple[Path, ...]
    writes: tuple[Path, ...] = ()


def why_not() -> str:
    """Say why this kernel confines no command; "" where it does."""
    abi = landlock_abi()
    if abi < LEAST_ABI:
        return (
            f"Landlock is {'version ' + str(abi) if abi else 'missing'}: Linux 6.2 with CONFIG_SECURITY_LANDLOCK has 3"
        )
    return "" if has_seccomp() else "seccomp is missing, or its calls are not known on this processor"


def confine(access: FileAccess, memory_bytes: int) -> None:
    """Confine this process, which has one thread, for good, on a machine with ``memory_bytes``.

    Raises:
        OSError: the kernel refuses, or other threads run, which would stay as they are.
    """
    if threading.active_count() > 1 or len(list(Path("/proc/self/task").iterdir())) > 1:
        raise OSError("other threads run")
    harden()
    _lower(resource.RLIMIT_DATA, DATA_OF_MEMORY * memory_bytes)
    drop_capabilities()
    restrict_files(_rules(access))
    refuse_calls()


def harden() -> None:
    """Give up what no worker needs: core dumps, which hold pictures, and programs that run with more rights."""
    _lower(resource.RLIMIT_CORE, 0)
    keep_from_gaining()


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
    # Links of a checkout lead from the package to its floors.
    linked = {path.resolve() for path in _PACKAGE.iterdir() if path.is_symlink()}
    # ``python -m`` searches the current folder, which may hold films; a checkout that is not installed runs from it.
    searched = {Path(path) for path in sys.path if path} - ({Path.cwd()} - {_PACKAGE.parent})
    python = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent}
    return {_PACKAGE, *linked, *searched, *python}
