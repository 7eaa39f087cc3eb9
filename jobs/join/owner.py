"""Gives a work folder to one job at a time, so that two jobs never write the same output.

On one machine a file lock decides which job owns the folder; the kernel releases the lock when its holder dies. A
shared file system may have no locks between machines. So the locked file is also a lease, which the owner renews.
"""

import fcntl
import json
import os
import secrets
import shutil
import socket
import stat
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from ...errors import OutputInUse, OutputUnwritable
from .plain_files import content_of, remove_any

OWNER_FILE: Final = "owner"
RENEWED_EVERY_S: Final = 15
#: A lease has ended if it was not renewed for this long: four times the interval between renewals
LEASE_S: Final = 60
_MOST_BYTES: Final = 4096  #: The largest size of an owner file
_ENDED: Final = ("Z", "X")  #: The states of ended processes in proc(5)


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that owns a work folder."""

    host: str
    boot: str  #: the host's boot id
    pid: int
    began: str  #: when the process started, in the kernel's ticks
    token: str  #: unique for each job of a process

    @classmethod
    def here(cls) -> Self:
        """Make an owner, which has a new token, for this process."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return cls(socket.gethostname(), boot, os.getpid(), _began(os.getpid()), secrets.token_hex(8))

    @classmethod
    def of(cls, folder: Path) -> Self | None:
        """Return the owner that a folder names, or None. Raises OSError: the folder cannot be read."""
        return cls.read(content_of(folder / OWNER_FILE, _MOST_BYTES) or b"")

    @classmethod
    def read(cls, content: bytes) -> Self | None:
        """Return the owner that an owner file names, or None."""
        try:
            return cls(**json.loads(content))
        except (TypeError, ValueError):
            return None

    def lives(self, here: "Owner", age_s: float) -> bool:
        """Return whether the owner is alive, as far as ``here`` can tell.

        The owner's lease was renewed ``age_s`` ago.
        """
        if self.boot == here.boot:
            return _began(self.pid) == self.began != ""
        return age_s < LEASE_S

    @property
    def content(self) -> bytes:
        """The content of a file that names this owner."""
        return json.dumps(asdict(self)).encode()


def still_holds(other: Owner | None, here: Owner, *, lives: bool, locks_work: bool) -> bool:
    """Return whether the owner that a folder names still owns the folder. This process must have locked the folder.

    If the file system has locks (``locks_work``), no other owner on this machine can be alive, since it would hold the
    lock.
    """
    return other is not None and lives and not (locks_work and other.boot == here.boot)


def in_use(what: str, owner: Owner | None, age_s: float, here: Owner) -> OutputInUse:
    """Return the error for a folder or an output that another job owns."""
    if owner is None:
        return OutputInUse(f"another job writes {what}", "Wait until that job has ended, or choose another output.")
    message = f"another job writes {what}: process {owner.pid} on {owner.host}"
    if owner.boot == here.boot:
        return OutputInUse(message, "Wait until that process has ended, end it, or choose another output.")
    wait_s = max(1, round(LEASE_S - age_s))
    return OutputInUse(
        message, f"If that process has died, try again in {wait_s} s; otherwise wait, or choose another output."
    )


def _began(pid: int) -> str:
    """Return when a process started (proc(5): field 22 of stat); "" if there is no such process, or it is a zombie."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return "" if state in _ENDED else fields[18]
    except (OSError, IndexError, ValueError):
        return ""


class FolderOwner:
    """Owns one folder, from ``acquire`` to ``release``; any thread may call both."""

    def __init__(self, folder: Path, what: str) -> None:
        self._folder = folder
        self._what = what
        self._here = Owner.here()
        self._file: int | None = None
        self._released = threading.Event()

    def acquire(self) -> None:
        """Create the folder if it is missing, and own it.

        Raises:
            OutputInUse: another job owns the folder.
            OutputUnwritable: the path is not a folder, or belongs to another user.
            OSError: the folder cannot be created or written.
        """
        is_new = False
        while self._file is None:
            with suppress(FileExistsError):
                self._folder.mkdir(mode=0o700)
                is_new = True
            _check_ours(self._folder)
            with suppress(FileNotFoundError):  # the folder's former owner has just removed it
                self._file = self._locked()
        try:
            self._write()
        except OSError:
            self.release()
            if is_new:  # on any error, for example a full disk
                shutil.rmtree(self._folder, ignore_errors=True)
            raise
        threading.Thread(target=self._renew, name="codecfleet-lease", daemon=True).start()

    def holds(self) -> bool:
        """Return whether the folder still names this owner; another job may have taken it during a suspension."""
        with suppress(OSError):
            return Owner.of(self._folder) == self._here
        return False

    def remove(self) -> None:
        """Remove the owned folder if it is empty; never raises."""
        for path in (*self._folder.glob(f"{OWNER_FILE}.*"), self._folder / OWNER_FILE):
            with suppress(OSError):
                path.unlink()
        with suppress(OSError):
            self._folder.rmdir()

    def release(self) -> None:
        """Release the folder, even if it no longer exists. Idempotent."""
        self._released.set()
        if self._file is not None:
            with suppress(OSError):
                os.ftruncate(self._file, 0)
            with suppress(OSError):
                os.close(self._file)
            self._file = None

    def _locked(self) -> int | None:
        """Return the locked owner file; None if the file was replaced before it was locked."""
        path = self._folder / OWNER_FILE
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            remove_any(path)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            locks_work = self._lock(file)
            is_there = path.stat().st_ino == os.fstat(file).st_ino
            if is_there:
                self._check_lease(file, locks_work=locks_work)
        except BaseException:  # on any error, the file is closed
            os.close(file)
            raise
        if is_there:
            return file
        os.close(file)
        return None

    def _check_lease(self, file: int, *, locks_work: bool) -> None:
        other = Owner.read(os.pread(file, _MOST_BYTES, 0))
        if other is None:
            return
        age_s = self._age_s(file)
        if still_holds(other, self._here, lives=other.lives(self._here, age_s), locks_work=locks_work):
            raise in_use(self._what, other, age_s, self._here)

    def _lock(self, file: int) -> bool:
        """Lock the file, and return whether its file system has locks."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise in_use(self._what, Owner.read(os.pread(file, _MOST_BYTES, 0)), 0, self._here) from None
        except OSError:
            return False
        return True

    def _age_s(self, file: int) -> float:
        """Return how long ago the lease was renewed, by the file system's clock."""
        renewed_s = os.fstat(file).st_mtime
        probe = self._folder / f"{OWNER_FILE}.{self._here.token}"
        probe.touch()
        try:
            return probe.stat().st_mtime - renewed_s
        finally:
            probe.unlink(missing_ok=True)

    def _write(self) -> None:
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, self._here.content, 0)

    def _renew(self) -> None:
        path = self._folder / OWNER_FILE
        while not self._released.wait(RENEWED_EVERY_S):
            if self.holds():
                with suppress(OSError):
                    os.utime(path)


def _check_ours(folder: Path) -> None:
    """Refuse a folder that another user created where anyone may write, for example in the temporary folder."""
    found, above = folder.lstat(), folder.parent.stat()
    is_shared = bool(above.st_mode & stat.S_ISVTX)
    if not stat.S_ISDIR(found.st_mode) or (is_shared and found.st_uid != os.geteuid()):
        message = f"{folder} is in the way: it is not this user's work folder"
        raise OutputUnwritable(message, "Remove what is at this path, or choose another output.")
