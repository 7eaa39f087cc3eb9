"""A queue in one SQLite file, for the programs of one machine."""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...errors import QueueUnavailable, UsageError
from .schema import SCHEMA, tables
from .store import JobStore, Transaction, storable

BUSY_S: Final = 10.0
"""How long a transaction waits for other programs' transactions."""
_LOOK_S: Final = 0.02
_APPLICATION: Final = 0x63664A51  #: SQLite's application id in the header of a queue's file: "cfJQ"
_CONTENT: Final = (
    "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), "
    "(SELECT count(*) FROM sqlite_master)"
)
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class _Transaction:
    connection: sqlite3.Connection
    now_s: float

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, [storable(value) for value in values]).fetchall()


class SqliteStore(JobStore):
    """The queue in the file ``path``; ``makes`` says whether a missing file is created.

    Its clock shows seconds since 1970, but never jumps while the machine is up: at the first use after each boot, the
    file records the difference between the wall clock and the time since the boot. ``clock`` replaces this clock.
    """

    def __init__(
        self, path: Path, *, makes: bool = True, busy_s: float = BUSY_S, clock: Callable[[], float] | None = None
    ) -> None:
        self.path = path
        self._makes = makes
        self._busy_s = busy_s
        self._clock = clock
        self._booted_s = 0.0  # when the machine was booted, on the store's clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # device and inode of the open file

    def close(self) -> None:
        with self._lock:
            self._drop()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self._lock:
            try:
                connection = self._connected()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield _Transaction(connection, self._now_s())
                    connection.execute("COMMIT")
                except BaseException:  # after any error, nothing is half-written
                    if connection.in_transaction:  # on a full disk, SQLite has ended the transaction already
                        connection.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, OSError) as error:
                self._drop()
                raise self._failed(error) from error

    def _now_s(self) -> float:
        return self._booted_s + time.clock_gettime(time.CLOCK_BOOTTIME) if self._clock is None else self._clock()

    def _connected(self) -> sqlite3.Connection:
        """Return the connection to the file that is now at the path."""
        with suppress(FileNotFoundError):
            found = self.path.stat()
            if self._connection is not None and (found.st_dev, found.st_ino) == self._file:
                return self._connection
        self._drop()
        self._make_file()
        found = self.path.stat()
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=self._busy_s)
        try:
            self._begin(connection)
        except BaseException:
            connection.close()
            raise
        self._connection, self._file = connection, (found.st_dev, found.st_ino)
        return connection

    def _make_file(self) -> None:
        """Create a file that only its owner can read: commands may hold secrets. SQLite's log inherits the mode."""
        if self.path.exists():
            return
        if not self._makes:
            raise UsageError(f"there is no queue {self.path}", "`codecfleet submit` creates it; or check --queue.")
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Create the tables of a new file, and set the store's clock. Raises UsageError: the file is not a queue."""
        # Read the three values in one statement, because another program may be creating the tables.
        application, schema, others = connection.execute(_CONTENT).fetchone()
        if (application, schema) != (_APPLICATION, SCHEMA) and (application or schema or others):
            message = f"{self.path} is not a queue of this version of codecfleet"
            step = "Name another file, or move this one away: jobs queued in it must be submitted again."
            raise UsageError(message, step)
        self._write_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        for statement in tables("INTEGER PRIMARY KEY AUTOINCREMENT"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
        self._booted_s = self._agreed_boot(connection)
        connection.execute("COMMIT")

    def _write_ahead(self, connection: sqlite3.Connection) -> None:
        """Use a write-ahead log; retry while another program creates the same file, for which SQLite does not wait."""
        until_s = time.monotonic() + self._busy_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until_s:
                    raise
                time.sleep(_LOOK_S)
            else:
                return

    def _agreed_boot(self, connection: sqlite3.Connection) -> float:
        """Return when the machine was booted, as the first program after the boot has recorded it."""
        boot = _BOOT.read_text(encoding="ascii").strip()
        facts = dict(connection.execute("SELECT name, value FROM codecfleet_facts").fetchall())
        if facts.get("boot") == boot:
            return float(facts["booted_s"])
        booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        noted = [("boot", boot), ("booted_s", repr(booted_s))]
        connection.executemany("INSERT OR REPLACE INTO codecfleet_facts VALUES (?, ?)", noted)
        if self._clock is None:
            # No driver has survived the boot.
            connection.execute("UPDATE codecfleet_jobs SET lease_ends_s = 0 WHERE state = 'running'")
        return booted_s

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = self._file = None

    def _failed(self, error: sqlite3.Error | OSError) -> QueueUnavailable:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            message = f"the queue {self.path} is busy: another program has held it for {self._busy_s:g} s"
            return QueueUnavailable(message, "Try again; if that does not help, end the program that holds it.")
        if code == sqlite3.SQLITE_FULL:
            return QueueUnavailable(f"the disk of the queue {self.path} is full", "Free space, then try again.")
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            message = f"the queue {self.path} cannot be read: {error}"
            return QueueUnavailable(message, "Move the file away, or restore it from a copy; then try again.")
        message = f"the queue {self.path} cannot be used: {error}"
        return QueueUnavailable(message, "Check its folder and its permissions, or name another file with --queue.")
