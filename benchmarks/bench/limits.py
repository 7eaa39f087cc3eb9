"""The kernel's limits on processes, threads and open files."""

import resource
from pathlib import Path

__all__ = ["raise_limits", "too_low"]


def raise_limits() -> None:
    """Raise this process's limits on open files and processes as far as it may; children inherit them."""
    for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        _, most = resource.getrlimit(kind)
        resource.setrlimit(kind, (most, most))


def too_low(threads: int, files: int) -> list[str]:
    """Return the command that raises each kernel limit that is too low.

    ``threads`` is how many threads all processes have together; ``files`` how many files one process opens.
    """
    wanted = {"kernel/pid_max": threads, "kernel/threads-max": threads}
    lines = [
        f"sysctl -w {name.replace('/', '.')}={2 * least}"
        for name, least in wanted.items()
        if int(Path("/proc/sys", name).read_text(encoding="ascii")) < least
    ]
    return lines + ([f"ulimit -n {2 * files}"] if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < files else [])
