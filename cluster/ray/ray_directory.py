"""The directory of a private Ray's files: only this user can read it, and it is locked until this process ends."""

import fcntl
import os
import shutil
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ...errors import FleetUnavailable
from .ray_environment import is_utf8

_BASE_LENGTH_MAX = 25  # the path of a Unix socket has at most 107 characters; codecfleet and Ray need up to 82 of them
_STALE_AFTER_S = 60.0
_PREFIX = "cf-ray-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _bases() -> list[Path]:
    chosen = os.environ.get("RAY_TMPDIR")
    if chosen:
        return [Path(chosen)]
    return [Path(base) for base in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp"))]  # noqa: S108 - fallbacks


def make_directory() -> tuple[Path, int]:
    """Return a new directory and the descriptor of its lock. Raises FleetUnavailable if no place is suitable."""
    problem = "no temporary directory has a path short enough for Ray's sockets"
    for base in _bases():
        if len(os.fsencode(base)) > _BASE_LENGTH_MAX:
            problem = f"{base} is longer than {_BASE_LENGTH_MAX} characters, which is too long for Ray's sockets"
            continue
        if not is_utf8(str(base)):
            problem = f"{base} is not UTF-8"
            continue
        try:
            directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
            lock = os.open(directory / "lock", _LOCK | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            problem = f"{base} cannot be written: {error.strerror}"
        else:
            return directory, lock
    message = f"the private Ray has no place for its files: {problem}"
    raise FleetUnavailable(message, "Set RAY_TMPDIR to a short path that is writable and has free space.")


def sweep() -> None:
    """Remove the directories of this user's killed drivers, whose locks are free."""
    for base in _bases():
        for directory in base.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                _remove_if_stale(directory)


def _remove_if_stale(directory: Path) -> None:
    """Remove a directory whose driver has ended. Other users' directories are not opened: opening may block."""
    found = directory.lstat()
    is_old = time.time() - found.st_mtime > _STALE_AFTER_S
    if not is_old or found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
        return
    here = os.open(directory, _DIRECTORY)
    try:
        lock = os.open("lock", _LOCK, dir_fd=here)
        try:
            # if the driver is alive, this is a BlockingIOError, which is an OSError
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        finally:
            os.close(lock)
    finally:
        os.close(here)
