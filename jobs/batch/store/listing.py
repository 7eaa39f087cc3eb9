"""Checks the list of a new run in a temporary table, and refuses outputs that collide. Callers open the transaction."""

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
    """An entry in the list of a new run."""

    output: str
    source: str
    action: EntryAction
    overrides: str
    spec_sha256: str
    source_bytes: int | None
    copy: str | None = None  #: the name that a copy of the input would have, if it differs from the output's name
    place: str = ""  #: where the input was named, for errors: for example ``file:line`` of a list


def list_entries(connection: sqlite3.Connection, listed: Iterable[ListedEntry], root: str) -> None:
    """Fill the table ``listed``, but leave out inputs that are outputs of other entries, since a folder may hold both.

    Raises UsageError: two inputs may have the same output, or an output would replace its input.
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
    """Return whether an input is the output of another input in an earlier run.

    Raises UsageError: the input would be replaced by its own output.
    """
    if listed.source != f"{below}{listed.output}":
        return False
    made = "SELECT 1 FROM entries WHERE output = ? AND source <> ?"
    if connection.execute(made, (listed.output, listed.source)).fetchone() is None:
        message = f"{listed.source} would be replaced by its own output"
        message = f"{listed.place}: {message}" if listed.place else message
        raise UsageError(message, "Choose another --output, or an --output-template such as {dir}/{stem}.new.{ext}.")
    return True


def _add(connection: sqlite3.Connection, chunk: list[ListedEntry]) -> None:
    """Add rows. Raises UsageError: an output is listed twice, with different inputs or options."""
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
            raise UsageError(message, "Put more fields into --output-template, such as {dir}; or leave one input out.")
        if spec != each.spec_sha256:
            message = f"{source} is listed twice, with different options, to become {each.output}"
            raise UsageError(message, "Remove one of the two entries, or give one of them another output.")


def _refuse_shared_copies(connection: sqlite3.Connection, below: str) -> None:
    """Refuse an input whose copy would have the name of another input, or of another input's output or copy."""
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
        message = f"{source} may be copied to {name}: that name belongs to {other}, or to the output or copy of {other}"
        raise UsageError(message, "Give outputs names that differ in more than the extension; or leave one input out.")
