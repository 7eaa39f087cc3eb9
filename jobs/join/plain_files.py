"""Reads and removes files in a work folder safely: any name there may be a folder, pipe, link, or file of any size."""

import errno
import os
import shutil
import stat
from pathlib import Path
from typing import Final

_NEVER_PLAIN: Final = frozenset({errno.ELOOP, errno.ENXIO})  #: Errors of opening a link or a socket


def content_of(path: Path, most_bytes: int) -> bytes | None:
    """Return a file's content; None if it exceeds ``most_bytes`` or is a folder, pipe, link or device. Never waits.

    Raises OSError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NEVER_PLAIN:
            return None
        raise
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size > most_bytes:
        os.close(descriptor)
        return None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most_bytes)


def remove_any(path: Path) -> None:
    """Remove a file, folder or link, if it exists; the target of a link stays. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
