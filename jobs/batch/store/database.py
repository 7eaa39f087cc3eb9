"""The database of a batch: one SQLite file with every entry's state. docs/batch.md describes its tables.

One process writes, and any number of processes may read. Each transaction is flushed to the disk, which is slow: write
many changes at once. All calls block.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final, Self

from ....errors import OutputInUse, OutputUnwritable, StorageFailed, UsageError
from ...join.owner import RENEWED_EVERY_S, Owner, in_use
from . import schema
from .file import Files, Made, application_in, application_of, files_of, not_a_batchs, put_back, what_next
from .listing import ListedEntry, list_entries
from .schema import (
    BatchEntry,
    Change,
    Content,
    CopyNoted,
    EndedBadly,
    EntryAction,
    FileEnded,
    FileFault,
    FileStarted,
    PutBack,
)
from .states import EntryEvent, EntryState, after, when_listed

_COLUMNS: Final = (
    "entry, source, output, action, overrides, tries, was_in_flight, source_version, source_sha256, source_bytes, "
    "published, output_bytes, error, message, next_step"
)
_PUBLISHED: Final = ("published", "source_bytes", "output_bytes", "frames", "duration_s", "encoder")
_FOUND: Final = ("published", "output_bytes")
_FAULT: Final = ("error", "exit_code", "message", "next_step")
_UPSERT: Final = """
INSERT INTO entries (position, output, source, action, overrides, spec_sha256, source_bytes, listed_run, state)
SELECT position, output, source, action, overrides, spec_sha256, source_bytes, :run, 'waiting' FROM listed WHERE true
ON CONFLICT (output) DO UPDATE SET
    state = when_listed(state, source = excluded.source, spec_sha256 = excluded.spec_sha256,
        :retry OR error IS :in_use),
    was_in_flight = source = excluded.source AND (was_in_flight OR state = 'running'),
    published = CASE WHEN source = excluded.source THEN published END,
    output_bytes = CASE WHEN source = excluded.source THEN output_bytes END,
    tries = 0, position = excluded.position, source = excluded.source, action = excluded.action,
    overrides = excluded.overrides, spec_sha256 = excluded.spec_sha256, listed_run = excluded.listed_run,
    source_bytes = coalesce(excluded.source_bytes, source_bytes)
"""


class BatchDatabase:
    """The database of a batch with the output root ``root``, owned from ``open`` to ``close``. Thread-safe."""

    def __init__(self, path: Path, root: str, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self.run = 0  #: the number of this run, from 1; 0 before the run has begun
        self._root = root
        self._clock = clock
        self._here = Owner.here()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._connection: sqlite3.Connection | None = None
        self._files: Files | None = None
        self._made: Made | None = None

    def open(self) -> Self:
        """Create the file if it is missing, and begin a run.

        Raises:
            OutputInUse: another process owns the file.
            UsageError: the file belongs to another batch or program, or has another version.
            OutputUnwritable: the file cannot be created or written.
            StorageFailed: the disk is full, or failed.
        """
        try:
            self._make_file()
            self._connection = self._connect()
            with self._transaction() as connection:
                self._create(connection)
                run = self._begin_run(connection)
            self._files = files_of(self.path)
        except FileExistsError:
            raise OutputUnwritable(f"{self.path.parent} is not a folder", "Choose another --output.") from None
        except (OSError, sqlite3.Error) as error:
            self._abandon()
            message = f"the batch's database {self.path} cannot be used: {error}"
            step = f"{what_next(error)} Or choose another --database, on a local disk."
            raise OutputUnwritable(message, step) from None
        except BaseException:  # after any error, nothing stays open
            self._abandon()
            raise
        self.run = run
        threading.Thread(target=self._renew, name="codecfleet-batch", daemon=True).start()
        return self

    def close(self) -> None:
        """End the run. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        # If this fails, the next owner finds that this process has ended.
        with suppress(OutputInUse, StorageFailed), self._transaction() as connection:
            connection.execute("UPDATE runs SET ended_s = ? WHERE run = ?", (self._clock(), self.run))
        self._abandon()

    def take_list(self, listed: Iterable[ListedEntry], *, retry_failed: bool) -> int:
        """Set the run's entries, all or none of them, and return their number.

        Raises the errors of ``list_entries``.
        """
        with self._transaction() as connection:
            list_entries(connection, listed, self._root)
            values = {"run": self.run, "retry": retry_failed, "in_use": OutputInUse.__name__}
            connection.execute(_UPSERT, values)
            (count,) = connection.execute("SELECT count(*) FROM listed").fetchone()
            connection.execute("DROP TABLE listed")
        self._made = None
        return int(count)

    def entries(self, state: EntryState, most: int, *, skip: int = 0) -> list[BatchEntry]:
        """Return up to ``most`` of the run's entries in a state, the least tried first, without the first ``skip``."""
        rows = self._rows(
            f"SELECT {_COLUMNS} FROM entries WHERE state = ? AND listed_run = ? "  # noqa: S608 - names of columns
            "ORDER BY tries, position LIMIT ? OFFSET ?",
            (state.value, self.run, most, skip),
        )
        return [_entry(row) for row in rows]

    def spread(self, most: int) -> list[BatchEntry]:
        """Return waiting entries to encode, spread evenly over the list."""
        rows = self._rows(
            f"SELECT {_COLUMNS} FROM (SELECT *, ntile(?) OVER (ORDER BY position) AS part FROM entries "  # noqa: S608
            "WHERE state = 'waiting' AND action = 'transcode' AND listed_run = ?) GROUP BY part",
            (most, self.run),
        )
        return [_entry(row) for row in rows]

    def checked(self, state: EntryState, found: Iterable[tuple[int, EntryEvent]]) -> None:
        """Record the outcome of comparing entries that were in ``state``."""
        rows = [(after(state, happening).value, entry) for entry, happening in found]
        with self._transaction() as connection:
            connection.executemany("UPDATE entries SET state = ? WHERE entry = ?", rows)

    def write(self, changes: Iterable[Change]) -> None:
        """Record changes of entries in one transaction. Raises ValueError: an entry's state does not allow a change."""
        with self._transaction() as connection:
            for change in changes:
                (state,) = connection.execute("SELECT state FROM entries WHERE entry = ?", (change.entry,)).fetchone()
                self._write(connection, EntryState(state), change)

    def counts(self) -> dict[EntryState, int]:
        """Return the number of the run's entries in each state."""
        rows = self._rows("SELECT state, count(*) FROM entries WHERE listed_run = ? GROUP BY state", (self.run,))
        return dict.fromkeys(EntryState, 0) | {EntryState(state): count for state, count in rows}

    def bytes_in(self, state: EntryState) -> tuple[int, int]:
        """Return the total sizes, as far as known, of the inputs and of the outputs of the run's entries in a state."""
        ((source_bytes, output_bytes),) = self._rows(
            "SELECT coalesce(sum(source_bytes), 0), coalesce(sum(output_bytes), 0) FROM entries "
            "WHERE listed_run = ? AND state = ?",
            (self.run, state.value),
        )
        return source_bytes, output_bytes

    def failures(self) -> list[tuple[str, int, int]]:
        """Return (error's class, exit code, entries) of the run's failed entries, the most frequent first."""
        return self._rows(
            "SELECT error, exit_code, count(*) FROM entries WHERE listed_run = ? AND state = 'failed' "
            "GROUP BY error, exit_code ORDER BY count(*) DESC, error",
            (self.run,),
        )

    def failed_files(self, most: int) -> list[tuple[str, FileFault]]:
        """Return up to ``most`` of the run's failed inputs, and why each failed."""
        return [(each.source, each.fault) for each in self.entries(EntryState.FAILED, most) if each.fault is not None]

    def _rows(self, question: str, values: tuple[object, ...]) -> list[Any]:
        with self._transaction() as connection:
            return connection.execute(question, values).fetchall()

    def _write(self, connection: sqlite3.Connection, state: EntryState, change: Change) -> None:
        match change:
            case FileStarted():
                values: dict[str, object] = {"state": after(state, EntryEvent.STARTED), "tries": change.tries}
                values["was_in_flight"] = 0  # set to 1 if the try is stopped, or if the next run finds it killed
                values |= dict(zip(_FOUND, change.found, strict=True)) if change.found else {}
            case CopyNoted():
                values = {"state": state, **dict(zip(_FOUND, change.found, strict=True))}
            case PutBack():
                values = {"state": after(state, EntryEvent.PUT_BACK), "tries": change.tries}
                values |= {"was_in_flight": 1} if change.in_flight else {}
            case FileEnded():
                values = {"state": after(state, EntryEvent.PUBLISHED), **self._outcome(change), **dict.fromkeys(_FAULT)}
                values |= {name: getattr(change, name) for name in _PUBLISHED} | {"result": change.result.value}
                values["was_in_flight"] = 0
                self._put_segments(connection, change)
            case EndedBadly():
                values = {"state": after(state, EntryEvent.FAILED), **self._outcome(change)}
                values |= {name: getattr(change, name) for name in _FAULT}
        values["state"] = EntryState(values["state"]).value
        names = ", ".join(f"{name} = :{name}" for name in values)
        connection.execute(f"UPDATE entries SET {names} WHERE entry = :entry", values | {"entry": change.entry})  # noqa: S608

    def _outcome(self, change: FileEnded | EndedBadly) -> dict[str, object]:
        return {
            "ended_run": self.run,
            "began_s": change.began_s,
            "ended_s": change.ended_s,
            "source_version": change.content and change.content.version,
            "source_sha256": change.content and change.content.sha256,
        }

    def _put_segments(self, connection: sqlite3.Connection, ended: FileEnded) -> None:
        connection.execute("DELETE FROM segments WHERE entry = ?", (ended.entry,))
        connection.executemany(
            "INSERT INTO segments (entry, run, segment, began_s, ended_s, frames, station, decoded_by) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(ended.entry, self.run, *astuple(each)) for each in ended.segments],
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the database for one transaction.

        Raises:
            OutputInUse: another process has taken the database over, because this process seemed dead.
            StorageFailed: the disk is full or failed, or the file is damaged or was replaced.
        """
        with self._lock:
            try:
                connection = self._there()
                connection.execute("BEGIN IMMEDIATE")
                try:
                    self._check_owner(connection)
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:  # after an error of any kind, nothing is half-written
                    if connection.in_transaction:  # on a full disk SQLite has already ended the transaction
                        connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise self._failed(error) from error

    def _failed(self, error: OSError | sqlite3.Error) -> StorageFailed:
        return StorageFailed(f"the batch's database {self.path} cannot be used: {error}", what_next(error))

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=30)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.create_function("when_listed", 4, _when_listed, deterministic=True)
        return connection

    def _there(self) -> sqlite3.Connection:
        """Return the connection; restore the file first if it was removed.

        Raises StorageFailed: the database was closed, or the file was replaced.
        """
        if self._connection is None:
            raise StorageFailed(f"{self.path} is closed", "Run the batch again: it continues where it stopped.")
        if self._files and self._files != (found := files_of(self.path)):
            if found[0] not in (None, self._files[0]):
                message = f"the batch's database {self.path} was replaced by another file"
                raise StorageFailed(message, "Put the batch's own database back, then run the same command again.")
            try:
                put_back(self._connection, self.path)
            except OSError as error:
                raise self._failed(error) from error
            self._connection = self._connect()
            self._connection.execute("UPDATE runs SET renewed_s = ? WHERE run = ?", (self._clock(), self.run))
            self._files = files_of(self.path)
        return self._connection

    def _check_owner(self, connection: sqlite3.Connection) -> None:
        if self.run and connection.execute("SELECT max(run) FROM runs").fetchone() != (self.run,):
            owner = connection.execute("SELECT owner FROM runs ORDER BY run DESC LIMIT 1").fetchone()
            raise in_use(self._root, Owner.read(owner[0].encode()), 0, self._here)

    def _make_file(self) -> None:
        """Create a file that only its owner can read, since addresses may hold secrets; the log inherits the mode."""
        folder = self.path.parent
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            self._made = Made(files_of(self.path)[0], tuple(missing))
            return
        if not self.path.is_file():
            raise OutputUnwritable(
                f"{self.path} is not a file", "Remove what is at this path, or choose another --database."
            )
        application_of(self.path)

    def _create(self, connection: sqlite3.Connection) -> None:
        """Write the tables into a new file, or check that an existing file belongs to this batch."""
        application = application_in(connection)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application is None:
            connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION}")
            for statement in schema.TABLES.split(";"):
                connection.execute(statement)
            connection.execute("INSERT INTO batch VALUES ('root', ?)", (self._root,))
            return
        if application != schema.APPLICATION_ID:
            raise not_a_batchs(self.path)
        if version != schema.SCHEMA_VERSION:
            message = f"{self.path} has schema {version}; this version of codecfleet has {schema.SCHEMA_VERSION}"
            raise UsageError(message, "Use the version that made the database, or choose another --database.")
        (root,) = connection.execute("SELECT value FROM batch WHERE name = 'root'").fetchone()
        if root != self._root:
            raise UsageError(f"{self.path} belongs to the batch that writes to {root}", "Choose another --database.")

    def _begin_run(self, connection: sqlite3.Connection) -> int:
        last = connection.execute("SELECT owner, ended_s, renewed_s FROM runs ORDER BY run DESC LIMIT 1").fetchone()
        now_s = self._clock()
        if last is not None and last[1] is None:
            owner, age_s = Owner.read(last[0].encode()), now_s - last[2]
            if owner is not None and owner.lives(self._here, age_s):
                raise in_use(self._root, owner, age_s, self._here)
        found = connection.execute(
            "INSERT INTO runs (began_s, owner, renewed_s) VALUES (?, ?, ?) RETURNING run",
            (now_s, self._here.content.decode(), now_s),
        ).fetchone()
        return int(found[0])

    def _renew(self) -> None:
        while not self._closed.wait(RENEWED_EVERY_S):
            with suppress(OutputInUse, StorageFailed), self._transaction() as connection:
                connection.execute("UPDATE runs SET renewed_s = ? WHERE run = ?", (self._clock(), self.run))

    def _abandon(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            made, self._made = self._made, None
        if made is not None and files_of(self.path)[0] == made.file:  # the batch was refused
            with suppress(OSError):
                self.path.unlink()
                for folder in made.folders:
                    folder.rmdir()


def _entry(row: tuple[Any, ...]) -> BatchEntry:
    named = dict(zip(_COLUMNS.split(", "), row, strict=True))
    version, sha256 = named.pop("source_version"), named.pop("source_sha256")
    named |= {"action": EntryAction(named["action"]), "was_in_flight": bool(named["was_in_flight"])}
    error, *texts = (named.pop(name) for name in ("error", "message", "next_step"))
    named["fault"] = None if error is None else FileFault(error, *texts)
    return BatchEntry(**named, content=None if version is None else Content(version=version, sha256=sha256))


def _when_listed(state: str, same_input: int, same_spec: int, retry_failed: int) -> str:
    return when_listed(state, same_input=bool(same_input), same_spec=bool(same_spec), retry_failed=bool(retry_failed))
