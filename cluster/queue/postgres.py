"""A queue in a PostgreSQL database, for drivers and programs of many machines."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...errors import QueueUnavailable, Unsupported, UsageError
from .schema import SCHEMA, tables
from .store import JobStore, Transaction, storable

if TYPE_CHECKING:
    from psycopg import Connection

_LOCK: Final = 0x63664A51
"""The advisory lock that makes transactions exclusive, as SQLite's are."""
_IDENTITY: Final = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
_NOW: Final = "extract(epoch FROM clock_timestamp())::float8"
ANSWER_S: Final = 10
"""How long the server may take to accept a connection, to run a statement, or to grant the lock."""
HELD_S: Final = 5
"""How long a program that hangs in a transaction may block other programs, which wait for ``ANSWER_S``."""
SILENT_S: Final = 15
"""A transaction is abandoned after this long, because a frozen server or a broken network never answers."""
_SETTINGS: Final[dict[str, Any]] = {
    "client_encoding": "UTF8",
    "connect_timeout": ANSWER_S,
    "tcp_user_timeout": 1000 * ANSWER_S,
    "options": f"-c statement_timeout={ANSWER_S}s -c idle_in_transaction_session_timeout={HELD_S}s",
}


@dataclass(frozen=True, slots=True)
class _Transaction:
    connection: "Connection"
    now_s: float

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        found = self.connection.execute(statement.replace("?", "%s"), [storable(value) for value in values])
        return [] if found.description is None else found.fetchall()


@contextmanager
def _time_limited(connection: "Connection") -> Iterator[None]:
    """Shut the connection down after ``SILENT_S``, because a frozen server does not enforce its own limits."""

    def shut_down() -> None:
        with suppress(OSError):
            copied.shutdown(socket.SHUT_RDWR)

    with socket.socket(fileno=os.dup(connection.fileno())) as copied:
        timer = threading.Timer(SILENT_S, shut_down)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class PostgresStore(JobStore):
    """The queue in the database at a ``postgresql://`` URL; ``now`` is the SQL expression of its clock."""

    def __init__(self, url: str, *, now: str = _NOW) -> None:
        self._url = url
        self._now = now
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    def close(self) -> None:
        with self._lock:
            self._drop()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        try:
            import psycopg
        except ImportError:
            message = "a queue in PostgreSQL needs the package psycopg"
            raise Unsupported(message, 'Install it: pip install "codecfleet[postgres]".') from None
        with self._lock:
            try:
                connection = self._connected()
                with _time_limited(connection), connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                    ((now_s,),) = connection.execute(f"SELECT {self._now}").fetchall()
                    yield _Transaction(connection, now_s)
            except psycopg.Error as error:
                self._drop()
                raise self._failed(error) from error

    def _connected(self) -> "Connection":
        import psycopg

        if self._connection is None:
            # No prepared statements, because a connection pooler may not support them.
            connection = psycopg.connect(self._url, autocommit=True, prepare_threshold=None, **_SETTINGS)
            try:
                with _time_limited(connection):
                    self._begin(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _begin(self, connection: "Connection") -> None:
        """Create the tables of a new database. Raises UsageError: its encoding, or its queue's version, is wrong."""
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            message = f"the database at {self._url} has the encoding {encoding}; a queue needs UTF8"
            raise UsageError(message, "Name another one: CREATE DATABASE films ENCODING 'UTF8' TEMPLATE template0.")
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            for statement in tables(_IDENTITY):
                connection.execute(statement)
            noted = "INSERT INTO codecfleet_facts VALUES ('schema', %s) ON CONFLICT DO NOTHING"
            connection.execute(noted, (str(SCHEMA),))
            found = connection.execute("SELECT value FROM codecfleet_facts WHERE name = 'schema'").fetchone()
            if found != (str(SCHEMA),):  # the error undoes what this transaction has created
                message = f"the database at {self._url} has a queue of another version of codecfleet"
                raise UsageError(message, "Name another database: jobs queued in this one must be submitted again.")

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # the connection is broken already
                self._connection.close()
        self._connection = None

    def _failed(self, error: Exception) -> QueueUnavailable:
        reason = " ".join(str(error).split())
        message = f"the queue at {self._url} failed: {reason}"
        return QueueUnavailable(message, "Check that its server runs, can be reached and lets you in; then try again.")
