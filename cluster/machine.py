"""The cores, memory and shared memory that this process may use, as the kernel and its cgroups report them."""

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Lock

_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
_OOM_KILL = "oom_kill"
CORES_PER_PROCESS = 8
"""One worker process serves up to 8 cores: codecs release the GIL, and each process takes 80 MiB and time to start."""
_LIMIT_OF_VERSION_1 = "memory.limit_in_bytes"
_USES = (
    ("memory.max", "memory.current", "inactive_file"),
    (_LIMIT_OF_VERSION_1, "memory.usage_in_bytes", "total_inactive_file"),
)
"""For cgroups of version 2 and of version 1: the file with the memory limit, the file with the memory in use, and the
counter in ``memory.stat`` of used bytes that are easily freed.
"""


def cores(cgroup: Path = _CGROUP) -> int:
    """Return the number of cores that this process's affinity and CPU quota allow; the quota is rounded up."""
    allowed = len(os.sched_getaffinity(0))
    quota, _, period = _read(cgroup / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit():
        allowed = min(allowed, math.ceil(int(quota) / int(period)))
    return max(1, allowed)


def slots_of_processes(cores: int) -> list[int]:
    """Return the number of slots of each worker process on a machine with this many cores."""
    count = -(-cores // CORES_PER_PROCESS)
    return [cores // count + (number < cores % count) for number in range(count)]


def memory_bytes(cgroup: Path = _CGROUP, proc: Path = _PROC) -> int:
    """Return the machine's memory, or the limit of this process's cgroups (version 1 or 2) if that is lower."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (
        _read(folder / name) for folder in _memory_cgroups(cgroup, proc) for name in ("memory.max", _LIMIT_OF_VERSION_1)
    )
    return min([physical, *(int(limit) for limit in limits if limit.isdigit())])


def available_memory_bytes(cgroup: Path = _CGROUP, proc: Path = _PROC) -> int:
    """Return how much memory new work may take, on this machine and within the limits of this process's cgroups."""
    left = [1024 * (_counter(proc / "meminfo", "MemAvailable:") or 0)]
    for folder in _memory_cgroups(cgroup, proc):
        for limit, used, cached in _USES:
            most, now = _read(folder / limit), _read(folder / used)
            if most.isdigit() and now.isdigit():
                left.append(int(most) - int(now) + (_counter(folder / "memory.stat", cached) or 0))
    return max(0, min(left))


def shared_memory_free_bytes(directory: Path = Path("/dev/shm")) -> int:  # noqa: S108 - Linux keeps shared memory there
    """Return the free shared memory; 0 if there is no shared memory."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def oom_kills(cgroup: Path = _CGROUP, proc: Path = _PROC) -> int:
    """Return how many processes the OOM killer has killed in this cgroup or, without a cgroup, on this machine."""
    own = next(_memory_cgroups(cgroup, proc))
    sources = (own / "memory.events", own / "memory.oom_control", proc / "vmstat")
    return next((count for source in sources if (count := _counter(source, _OOM_KILL)) is not None), 0)


class OomKills:
    """Decides which deaths the kernel's OOM killer caused; each kill explains one death."""

    def __init__(self, count: Callable[[], int] = oom_kills) -> None:
        self._count = count
        self._explained = count()
        self._lock = Lock()

    def explains_a_death(self) -> bool:
        """Return whether a kill explains this death and has not explained another death. Thread-safe."""
        with self._lock:
            explains = self._count() > self._explained
            self._explained += explains
            return explains


def _memory_cgroups(cgroup: Path, proc: Path) -> Iterator[Path]:
    """Yield this process's cgroup and its ancestors; in a container, perhaps only the root is visible."""
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


def _counter(path: Path, name: str) -> int | None:
    found = (line.split() for line in _read(path).splitlines())
    return next((int(words[1]) for words in found if words[:1] == [name]), None)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
