"""What Ray's killed processes leave in the folder for temporary files."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_BOUND: Final = Path("/proc/net/unix")
"""The kernel's list of sockets; the last column of a bound one is its path."""


def remove_dead_listeners(since_s: float) -> None:
    """Remove sockets of Python's ``multiprocessing`` that no process has bound any more, and their folders.

    Only those of this user whose folder appeared after ``since_s``, in seconds since 1970. What cannot be looked at
    stays.
    """
    with suppress(OSError):
        bound = {line.split()[-1] for line in _BOUND.read_text(encoding="utf-8", errors="replace").splitlines()}
        for folder in Path(tempfile.gettempdir()).glob("pymp-*"):
            with suppress(OSError):
                _remove_dead(folder, bound, since_s)


def _remove_dead(folder: Path, bound: set[str], since_s: float) -> None:
    found = folder.lstat()
    if found.st_uid != os.geteuid() or found.st_mtime < since_s:
        return
    for listener in folder.glob("listener-*"):
        if listener.is_socket() and str(listener) not in bound:
            listener.unlink()
    folder.rmdir()  # fails where something else is in it
