"""What a new run lists, in a table of its own until its outputs are known not to collide.

All calls are part of a transaction of the database's.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from ....errors import UsageError
from .schema import LISTED, EntryAction

_ROWS_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """An entry as a new run lists it."""

    output: str
    source: str
    action: EntryAction
    overrides: str
    spec_sha256: str
    source_bytes: int | None
    copy: str | None = None
    """The name of its input's copy, where it may be copied, under another name than its output's."""
    place: str = ""  #: What named it, for errors: the line of a list


def list_entries(connection: sqlite3.Connection, listed: Iterable[ListedEntry], root: str) -> None:
    """Fill the table ``listed``. What ``listed`` raises goes through.

    An input that is the output of another entry is left out: a folder may hold both.

    Raises:
        UsageError: two inputs have one output, or might have; or an input is its own.
    """
    below = f"{root.rstrip('/')}/"
    connection.execute("DROP TABLE IF EXISTS temp.listed")
    connection.execute(LISTED)
    rows = iter(listed)
    while chunk := list(islice(rows, _ROWS_AT_ONCE)):
        _add(connection, [each for each in chunk if not _is_made(connection, each, below)])
    connection.execute(
        "DELETE FROM listed WHERE source IN (SELECT ? || output FROM entries "
        "UNION SELECT ? || published FROM entries WHERE source <> ? || published "
        "UNION SELECT ? || output FROM listed)",
        (below,) * 4,
    )
    _refuse_shared_copies(connection, below)


def _is_made(connection: sqlite3.Connection, listed: ListedEntry, below: str) -> bool:
    """Return whether an input under its own output's name is an output that an earlier run made of another input."""
    if listed.source != f"{below}{listed.output}":
        return False
    made = "SELECT 1 FROM entries WHERE output = ? AND source <> ?"
    if connection.execute(made, (listed.output, listed.source)).fetchone() is None:
        message = f"{listed.source} would be replaced by its own output"
        message = f"{listed.place}: {message}" if listed.place else message
        raise UsageError(message, "Choose another --output, or an --output-template such as {dir}/{stem}.new.{ext}.")
    return True


def _add(connection: sqlite3.Connection, chunk: list[ListedEntry]) -> None:
    """Add rows; an output that is listed already must be of the same input, with the same options."""
    rows = [
        (each.output, each.source, each.action.value, each.overrides, each.spec_sha256, each.source_bytes, each.copy)
        for each in chunk
    ]
    added = connection.executemany(
        "INSERT INTO listed (output, source, action, overrides, spec_sha256, source_bytes, copy) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (output) DO NOTHING",
        rows,
    )
    if added.rowcount == len(rows):
        return
    for each in chunk:
        source, spec = connection.execute(
            "SELECT source, spec_sha256 FROM listed WHERE output = ?", (each.output,)
        ).fetchone()
        if source != each.source:
            message = f"{source} and {each.source} would both become {each.output}"
            raise UsageError(message, "Give --output-template more of their names, such as {dir}; or leave one out.")
        if spec != each.spec_sha256:
            message = f"{source} is listed twice, with different options, to become {each.output}"
            raise UsageError(message, "Leave one out, or name its output.")


def _refuse_shared_copies(connection: sqlite3.Connection, below: str) -> None:
    """Refuse an input whose copy would have the name of another input, its output or its copy."""
    found = connection.execute(
        "SELECT copied.source, other.source, copied.copy FROM listed AS copied "
        "JOIN listed AS other ON other.output = copied.copy WHERE copied.copy IS NOT NULL "
        "UNION ALL SELECT copied.source, other.source, copied.copy FROM listed AS copied "
        "JOIN listed AS other ON other.source = ? || copied.copy WHERE copied.copy IS NOT NULL "
        "UNION ALL SELECT min(source), max(source), copy FROM listed WHERE copy IS NOT NULL "
        "GROUP BY copy HAVING count(*) > 1 LIMIT 1",
        (below,),
    ).fetchone()
    if found is not None:
        source, other, name = found
        message = f"{source} may be copied to {name}, where {other}, its output or its copy lies"
        raise UsageError(message, "Give outputs names that differ in more than their extension; or leave one out.")
