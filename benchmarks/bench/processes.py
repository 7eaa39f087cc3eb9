"""Reads a process tree from /proc: its processes, their CPU time and their current memory.

The files are read directly, because the sampler must cost little on a small machine: a scan takes a few milliseconds.
"""

import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Memory", "ProcessKey", "ProcessStat", "ProcessTree", "command_line", "ignores_children", "read_memory"]

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

ProcessKey = tuple[int, int]
"""A pair (pid, start time), because a pid may be used again."""


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One process: ``cpu_s`` is its own user and system time plus that of the children for which it has waited."""

    pid: int
    parent: int
    started_ticks: int
    cpu_s: float

    @property
    def key(self) -> ProcessKey:
        """Identifies the process uniquely, even after it has ended."""
        return self.pid, self.started_ticks


@dataclass(frozen=True, slots=True)
class Memory:
    """A process's memory: ``total_bytes`` includes ``shared_bytes``, its share of shared memory segments.

    If ``proportional``, pages that several processes map are divided among these processes (PSS), so sums count nothing
    twice. Otherwise the value is the resident set (RSS), whose sums count shared pages once per process.
    """

    total_bytes: int
    shared_bytes: int
    proportional: bool


def parse_stat(text: str) -> ProcessStat:
    """Return the fields of ``/proc/PID/stat`` (proc_pid_stat(5)); the name in it may contain spaces and brackets."""
    head, _, tail = text.rpartition(")")
    fields = tail.split()
    ticks = sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime
    return ProcessStat(
        pid=int(head.split(" ", 1)[0]),
        parent=int(fields[1]),
        started_ticks=int(fields[19]),
        cpu_s=ticks / _TICKS_PER_S,
    )


class ProcessTree:
    """Every process below ``root``, including zombies, except those in ``without`` and their descendants.

    A process that is not a descendant cannot become one later, so it is examined only once.
    """

    def __init__(self, root: int, *, without: Iterable[ProcessKey] = ()) -> None:
        self._root = root
        self._without = frozenset(without)
        self._strangers: set[str] = set()

    def look(self) -> list[ProcessStat]:
        """Return the current processes."""
        names = {name for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208 - only names are needed
        self._strangers &= names
        texts = ((name, _read(name, "stat")) for name in names - self._strangers)
        processes = {name: parse_stat(text) for name, text in texts if text}
        found = self._below_root(processes.values())
        self._strangers |= processes.keys() - {str(process.pid) for process in found}
        return found

    def _below_root(self, processes: Iterable[ProcessStat]) -> list[ProcessStat]:
        children: dict[int, list[ProcessStat]] = defaultdict(list)
        for process in processes:
            children[process.parent].append(process)
        found: list[ProcessStat] = []
        waiting = [self._root]
        while waiting:
            below = [child for child in children[waiting.pop()] if child.key not in self._without]
            found += below
            waiting += [child.pid for child in below]
        return found


def ignores_children(pid: int) -> bool:
    """Return whether a process ignores SIGCHLD: the kernel then drops its children's CPU time when they end."""
    for line in _lines(pid, "status"):
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) >> (signal.SIGCHLD - 1) & 1)
    return False


def command_line(pid: int) -> str:
    """Return a process's command line; empty if it has ended."""
    return _read(str(pid), "cmdline").replace("\0", " ").strip()


def read_memory(pid: int) -> Memory | None:
    """Return a process's current memory; None if it has ended."""
    sizes = {
        name: int(rest.split()[0]) * 1024
        for name, _, rest in (line.partition(":") for line in _lines(pid, "smaps_rollup"))
        if name in {"Pss", "Pss_Shmem"}
    }
    if "Pss" in sizes:
        return Memory(sizes["Pss"], sizes.get("Pss_Shmem", 0), proportional=True)
    resident = [int(field) for line in _lines(pid, "statm") for field in line.split()]
    return Memory(resident[1] * _PAGE_BYTES, 0, proportional=False) if any(resident) else None


def _lines(pid: int, name: str) -> list[str]:
    return _read(str(pid), name).splitlines()


def _read(pid: str, name: str) -> str:
    """Return the content of a file in /proc; empty if the process has ended."""
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
            return file.read()
    except OSError:
        return ""
