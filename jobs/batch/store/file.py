"""Recognizes, reads and restores the file of a batch's database. All calls block."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from ....errors import UsageError
from . import schema

_AGAIN: Final = "then run the same command again."
_CHECK_DISK: Final = f"Check the disk and the space left on it, {_AGAIN}"
_CHECK_PERMISSIONS: Final = f"Check the permissions of the file and its folder, {_AGAIN}"
_DAMAGED: Final = (
    "Restore the database from a copy; or move it away and use --overwrite, which processes all files again."
)
_LOCKED: Final = f"Close the program that holds its lock, {_AGAIN}"
_WHAT_NEXT: Final = {
    sqlite3.SQLITE_FULL: f"Free some space, {_AGAIN}",
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: _CHECK_PERMISSIONS,
    sqlite3.SQLITE_PERM: _CHECK_PERMISSIONS,
    sqlite3.SQLITE_CANTOPEN: _CHECK_PERMISSIONS,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}
_PRIMARY: Final = 0xFF
"""The bits of SQLite's extended result codes that hold the primary code (sqlite.org/rescode.html)."""


class Made(NamedTuple):
    """The files and folders that were created for a new database."""

    file: tuple[int, int] | None
    folders: tuple[Path, ...]  #: the folders created for the file, the innermost first


def application_of(path: Path) -> int | None:
    """Return the application id of a batch's database, or None for an empty file.

    A database without a log is read without creating files beside it.

    Raises UsageError: the file belongs to another program.
    """
    # The file is opened read-only, so that another program's log is not merged into its database. A log may hold all
    # tables, and can be read consistently only under SQLite's locks. Without a log no locks are taken, because they
    # create files.
    how = "mode=ro" if _has_log(path) else "mode=ro&immutable=1"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=30)) as connection:
        if (found := application_in(connection)) not in (None, schema.APPLICATION_ID):
            raise not_a_batchs(path)
    return found


Files: TypeAlias = tuple[tuple[int, int] | None, tuple[int, int] | None]
"""The identities of a database and its log: the device and inode of each, or None for a missing file."""


def files_of(path: Path) -> Files:
    """Return the current identities of a database and its log."""
    return _number(path), _number(_log_of(path))


def put_back(connection: sqlite3.Connection, path: Path) -> None:
    """Restore a database whose files were removed: copy it to a new file from the open connection, then close that."""
    file = path.resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600, exist_ok=False)
    with closing(sqlite3.connect(part)) as new:
        connection.backup(new)
    connection.close()
    # A leftover log belongs to the removed file; SQLite would apply it to the new file.
    for left in (_log_of(path), file.with_name(f"{file.name}-shm")):
        left.unlink(missing_ok=True)
    part.replace(file)


def _number(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _log_of(path: Path) -> Path:
    file = path.resolve()
    return file.with_name(f"{file.name}-wal")


def _has_log(path: Path) -> bool:
    try:
        return _log_of(path).stat().st_size > 0
    except FileNotFoundError:
        return False


def what_next(error: OSError | sqlite3.Error) -> str:
    """Return the next step for a database that cannot be read or written."""
    if isinstance(error, OSError):
        return _CHECK_PERMISSIONS
    return _WHAT_NEXT.get(getattr(error, "sqlite_errorcode", 0) & _PRIMARY, _CHECK_DISK)


def not_a_batchs(path: Path) -> UsageError:
    """Return the error for a database that belongs to another program."""
    return UsageError(f"{path} is not a batch's database", "Choose another --database.")


def application_in(connection: sqlite3.Connection) -> int | None:
    """Return the application id of a file: 0 if it has no id, None if it is empty."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(application) if application or tables else None


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a batch's database for reading.

    The mode is not ``ro``, which would keep the last reader from removing the log.
    """
    connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)
    connection.execute("PRAGMA query_only = ON")
    return connection
