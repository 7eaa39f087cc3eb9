"""Cores, memory and shared memory of this process, by the kernel and its cgroup."""

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def cores(cgroup: Path = _CGROUP) -> int:
    """Return how many cores this process may use: its affinity, or its CPU quota rounded up if less."""
    allowed = len(os.sched_getaffinity(0))
    quota, _, period = _read(cgroup / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        allowed = min(allowed, math.ceil(int(quota) / int(period)))
    return max(1, allowed)


def memory_bytes(cgroup: Path = _CGROUP) -> int:
    """Return the machine's memory, or our cgroup's limit if less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read(cgroup / "memory.max")
    return min(physical, int(limit)) if limit.isdigit() else physical


def shared_memory_free_bytes(directory: Path = Path("/dev/shm")) -> int:  # noqa: S108 - where Linux keeps it
    """Return the free shared memory; 0 where there is none."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
