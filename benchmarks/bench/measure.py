"""Runs one command, and measures it together with all processes that it starts, including daemons.

CPU time. A process that waits for a child gets the child's time, including the time of all processes for which
the child waited. A daemon's parent has ended, so its ancestors never get its time; Ray's processes are such daemons.
Therefore the measuring process makes itself their *subreaper* (prctl(2)): orphans become its children, it
waits for them, and adds their exact time. One gap remains: if a parent ignores SIGCHLD, as Ray's raylet does, the
kernel drops the times of that parent's children. For these the last sample counts, at most one interval old.

Memory. The proportional set size (PSS) of every process is summed every 0.1 s, or less often if that would cost more
than a fiftieth of one core; the largest sum is the peak. Shared pages are counted once. If the kernel does not report
PSS, the resident set is used, and the measurement says so.
"""

import ctypes
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, NamedTuple

from .failures import command_failed
from .processes import (
    Memory,
    ProcessKey,
    ProcessStat,
    ProcessTree,
    command_line,
    ignores_children,
    read_memory,
)

__all__ = ["Measurement", "Role", "measure", "role_of"]

INTERVAL_S = 0.1
MEMORY_SHARE = 50
"""The least time between two memory samples, as a multiple of a sample's own cost."""
LINGER_S = 15.0
"""How long daemons may take to end after the command has ended."""

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


class Role(StrEnum):
    """A process's role, found from its place in the tree and its command line."""

    MAIN = "main"  #: the command itself
    WORKERS = "workers"  #: Ray's worker processes, in which codecs run
    RAY = "ray"  #: Ray's own processes
    SHARED = "shared memory"  #: the object store: shared segments, counted apart from the processes that map them
    OTHER = "other"  #: whatever else the command starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The cost of one run of a command, for all its processes together.

    ``wall_s`` ends with the command itself. ``peak_by_role_bytes`` holds each role's own peak; the peaks need not
    coincide. ``sampled_cpu_s`` is the part of ``cpu_s`` that comes from samples, not from the kernel's final count.
    ``system_s`` is the part of the rest that was spent in the kernel, for example to clear fresh memory.
    ``sampler_cpu_s`` is the cost of measuring, not part of ``cpu_s``. ``killed`` counts daemons that did not end.
    """

    wall_s: float
    cpu_s: float
    system_s: float
    sampled_cpu_s: float
    sampler_cpu_s: float
    peak_bytes: int
    peak_by_role_bytes: dict[str, int]
    memory_kind: str
    samples: int
    processes: int
    killed: int
    output: str


@dataclass(slots=True)
class _Seen:
    stat: ProcessStat
    dropped: bool
    """Whether the parent of the process ignores SIGCHLD; the final use of the process is then lost."""


@dataclass(slots=True)
class _Sampler:
    """Samples the process tree until it is stopped; its results can be read afterwards."""

    main_pid: int
    tree: ProcessTree
    stop: threading.Event = field(default_factory=threading.Event)
    seen: dict[ProcessKey, _Seen] = field(default_factory=dict)
    peaks: dict[Role, int] = field(default_factory=dict)
    peak_bytes: int = 0
    samples: int = 0
    cpu_s: float = 0.0
    proportional: bool = True

    def run(self) -> None:
        memory_due = time.monotonic()
        while not self.stop.is_set():
            processes = self._look()
            if time.monotonic() >= memory_due:
                began_cpu_s = time.thread_time()
                self._weigh(processes)
                memory_due = time.monotonic() + (time.thread_time() - began_cpu_s) * MEMORY_SHARE
            self.cpu_s = time.thread_time()
            self.stop.wait(INTERVAL_S)

    def _look(self) -> list[ProcessStat]:
        """Record the processes and their use."""
        processes = self.tree.look()
        ignoring = {parent: ignores_children(parent) for parent in {process.parent for process in processes}}
        for process in processes:
            self.seen[process.key] = _Seen(process, dropped=ignoring[process.parent])
        return processes

    def _weigh(self, processes: Sequence[ProcessStat]) -> None:
        """Record the processes' memory."""
        self.samples += 1
        totals = dict.fromkeys(Role, 0)
        for process in processes:
            memory = read_memory(process.pid)
            if memory is not None:
                self._add(totals, role_of(process.pid, command_line(process.pid), self.main_pid), memory)
        self.peak_bytes = max(self.peak_bytes, sum(totals.values()))
        self.peaks = {role: max(self.peaks.get(role, 0), total) for role, total in totals.items()}

    def _add(self, totals: dict[Role, int], role: Role, memory: Memory) -> None:
        self.proportional = self.proportional and memory.proportional
        totals[role] += memory.total_bytes - memory.shared_bytes
        totals[Role.SHARED] += memory.shared_bytes


def role_of(pid: int, command: str, main_pid: int) -> Role:
    """Return a process's role."""
    if pid == main_pid:
        return Role.MAIN
    if command.endswith("Agent") and command.startswith("ray::"):
        return Role.RAY
    if command.startswith("ray::") or "default_worker.py" in command:
        return Role.WORKERS
    return Role.RAY if "/ray/" in command else Role.OTHER


def measure(
    command: Sequence[str], *, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Measurement:
    """Run ``command`` until it and everything it started have ended, and return the cost.

    Raises:
        CommandFailed: the command ended with a status other than 0; the message has the end of its stderr.
    """
    with _adopting_orphans(), tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        without = frozenset(process.key for process in ProcessTree(os.getpid()).look())
        began = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, cwd=folder
        )
        sampler = _Sampler(process.pid, ProcessTree(os.getpid(), without=without))
        thread = threading.Thread(target=sampler.run, name="sampler", daemon=True)
        thread.start()
        reaped: dict[int, _Used] = {}
        killed = 0
        try:
            reaped[process.pid], process.returncode = _wait(process.pid)
            wall_s = time.monotonic() - began
            killed = _reap_rest(without, reaped)
        finally:
            _kill(without)  # only an interrupted run leaves processes to kill
            sampler.stop.set()
            thread.join()
        if process.returncode != 0:
            raise command_failed(command, process.returncode, _text(errors))
        return _measurement(sampler, reaped, wall_s, killed, _text(output))


class _Used(NamedTuple):
    """The CPU seconds of an ended child and of all processes for which it waited."""

    user_s: float
    system_s: float


def _wait(pid: int) -> tuple[_Used, int]:
    """Return the CPU seconds of a child, and its exit code."""
    _, status, usage = os.wait4(pid, 0)
    return _Used(usage.ru_utime, usage.ru_stime), os.waitstatus_to_exitcode(status)


def _reap_rest(without: frozenset[ProcessKey], reaped: dict[int, _Used]) -> int:
    """Wait for the adopted orphans; kill those that do not end in time, and return how many."""
    deadline = time.monotonic() + LINGER_S
    killed = 0
    while rest := ProcessTree(os.getpid(), without=without).look():
        if time.monotonic() > deadline and not killed:
            killed = _kill(without)
        for process in rest:
            if process.parent == os.getpid():
                _reap_if_ended(process.pid, reaped)
        time.sleep(0.01)
    return killed


def _reap_if_ended(pid: int, reaped: dict[int, _Used]) -> None:
    ended, _, usage = os.wait4(pid, os.WNOHANG)
    if ended:
        reaped[pid] = _Used(usage.ru_utime, usage.ru_stime)


def _kill(without: frozenset[ProcessKey]) -> int:
    rest = ProcessTree(os.getpid(), without=without).look()
    for process in rest:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return len(rest)


def _measurement(
    sampler: _Sampler, reaped: Mapping[int, _Used], wall_s: float, killed: int, output: str
) -> Measurement:
    sampled_cpu_s = sum(seen.stat.cpu_s for key, seen in sampler.seen.items() if seen.dropped and key[0] not in reaped)
    return Measurement(
        wall_s=wall_s,
        cpu_s=sum(map(sum, reaped.values())) + sampled_cpu_s,
        system_s=sum(each.system_s for each in reaped.values()),
        sampled_cpu_s=sampled_cpu_s,
        sampler_cpu_s=sampler.cpu_s,
        peak_bytes=sampler.peak_bytes,
        peak_by_role_bytes={role.value: peak for role, peak in sampler.peaks.items() if peak},
        memory_kind="PSS" if sampler.proportional else "RSS",
        samples=sampler.samples,
        processes=len(sampler.seen),
        killed=killed,
        output=output,
    )


@contextmanager
def _adopting_orphans() -> Iterator[None]:
    """Make this process the parent of every descendant whose own parent ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    former = ctypes.c_int(0)
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(former), 0, 0, 0)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this kernel does not support adopting orphaned processes")
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, former.value, 0, 0, 0)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
