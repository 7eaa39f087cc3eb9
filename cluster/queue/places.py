"""Where queues are: a file of this machine, or a PostgreSQL database."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from ...errors import UsageError
from .postgres import PostgresStore
from .sqlite import SqliteStore
from .store import JobStore
from .values import DATABASES, without_password


def default_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of this user's queue. Raises UsageError: the user has no home."""
    named = environment.get("XDG_STATE_HOME", "")
    if named and Path(named).is_absolute():  # relative paths must be ignored: XDG Base Directory Specification 0.8
        return Path(named) / "codecfleet" / "queue.sqlite"
    try:
        return Path.home() / ".local" / "state" / "codecfleet" / "queue.sqlite"
    except RuntimeError:
        raise UsageError("this user has no home folder for a queue", "Name a file with --queue.") from None


def queue_file(place: str | None) -> Path | None:
    """Return the file of a queue; None if the queue is in a database. ``place`` None is this user's queue."""
    if place is None:
        return default_path()
    if place.startswith(DATABASES):
        return None
    if "://" in place:
        raise UsageError(f"{place} cannot hold a queue", "Name a file, or a database as postgresql://HOST/NAME.")
    return Path(place).absolute()


def queue_option(place: str | None) -> str:
    """Return the command-line option that names a queue, without a database's password; "" for this user's queue."""
    return "" if place is None else f" --queue {shlex.quote(without_password(place))}"


def open_store(place: str | None, *, makes: bool) -> JobStore:
    """Return the store at a place; ``makes`` says whether a named file is created if it is missing."""
    path = queue_file(place)
    store = PostgresStore(str(place)) if path is None else SqliteStore(path, makes=makes or place is None)
    store.option = queue_option(place)
    return store
