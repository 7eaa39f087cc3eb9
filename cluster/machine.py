"""Cores, memory and shared memory of this process, by the kernel and its cgroups."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_LIMIT_OF_VERSION_1 = "memory.limit_in_bytes"


def cores(cgroup: Path = _CGROUP) -> int:
    """Return how many cores this process may use: its affinity, or its CPU quota rounded up if less."""
    allowed = len(os.sched_getaffinity(0))
    quota, _, period = _read(cgroup / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        allowed = min(allowed, math.ceil(int(quota) / int(period)))
    return max(1, allowed)


def memory_bytes(cgroup: Path = _CGROUP, proc: Path = _PROC) -> int:
    """Return the machine's memory, or the least limit of our cgroup and those around it (version 1 or 2) if less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (
        _read(folder / name) for folder in _memory_cgroups(cgroup, proc) for name in ("memory.max", _LIMIT_OF_VERSION_1)
    )
    return min([physical, *(int(limit) for limit in limits if limit.isdigit())])


def shared_memory_free_bytes(directory: Path = Path("/dev/shm")) -> int:  # noqa: S108 - where Linux keeps it
    """Return the free shared memory; 0 where there is none."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _memory_cgroups(cgroup: Path, proc: Path) -> Iterator[Path]:
    """Yield the folders of our cgroup and of those around it; in a container its root may be all that is shown."""
    for line in _read(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        root = cgroup if not controllers else cgroup / "memory"
        if controllers and "memory" not in controllers.split(","):
            continue
        own = root / path.lstrip("/")
        if not (own / "memory.stat").is_file():
            continue
        while own != root:
            yield own
            own = own.parent
        yield root
        return
    yield cgroup


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
