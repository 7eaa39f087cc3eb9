"""Ends the processes that a killed driver leaves behind: the kernel kills its children, but not its grandchildren.

This program uses only the standard library. It reads from a pipe to the driver: if the pipe closes before a line
arrives, the driver was killed.
"""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PASSES_MAX = 20


def end_processes_in(directory: Path) -> None:
    """Kill every process that has a file open in ``directory``, where all of Ray's processes write logs."""
    for _ in range(_PASSES_MAX):
        found = list(processes_in(directory))
        if not found:
            return
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def processes_in(directory: Path) -> Iterator[int]:
    """Yield every other process that has a file open in ``directory``."""
    for entry in Path("/proc").iterdir():
        process = int(entry.name) if entry.name.isdigit() else os.getpid()
        if process != os.getpid() and any(file.is_relative_to(directory) for file in open_files(process)):
            yield process


def open_files(process: int) -> Iterator[Path]:
    """Yield the names of a process's open files; a socket is ``socket:[INODE]`` (proc_pid_fd(5))."""
    with suppress(OSError):  # the process has ended, or belongs to another user
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):  # closed meanwhile
                yield descriptor.readlink()


def _main() -> None:
    directory = Path(sys.argv[1])
    if not sys.stdin.readline():
        end_processes_in(directory)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    _main()
