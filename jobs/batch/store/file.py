"""The file of a batch's database: whose it is, and opening it for questions. All calls block."""

import sqlite3
from contextlib import closing
from pathlib import Path

from ....errors import UsageError
from . import schema


def application_of(path: Path) -> int | None:
    """Return the number by which a batch's database is known; None for an empty file. Nothing appears beside it.

    Raises:
        UsageError: it is another program's.
        sqlite3.Error: it cannot be read.
    """
    # Another's log must not be written into its file, which who may only read never does. A log may hold all the
    # tables, and only under the locks are they whole. Without one not even the locks are touched, since that makes
    # files appear.
    how = "mode=ro" if _has_log(path) else "mode=ro&immutable=1"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=30)) as connection:
        if (found := application_in(connection)) not in (None, schema.APPLICATION_ID):
            raise not_a_batchs(path)
    return found


def _has_log(path: Path) -> bool:
    """Return whether changes lie beside the file that are not in it yet."""
    file = path.resolve()
    try:
        return file.with_name(f"{file.name}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def not_a_batchs(path: Path) -> UsageError:
    """Return the error of a database that is another program's."""
    return UsageError(f"{path} is not a batch's database", "Choose another --database.")


def application_in(connection: sqlite3.Connection) -> int | None:
    """Return the number of the program that a file belongs to, 0 where it says none; None for an empty file."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(application) if application or tables else None


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open a batch's database for questions only.

    Not as ``mode=ro``: the last one to close a database removes the files of its log, if it may write.
    """
    connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)
    connection.execute("PRAGMA query_only = ON")
    return connection
