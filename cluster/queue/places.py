"""Where queues are: a file of this machine, or a PostgreSQL database."""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from ...errors import REDACTED, UsageError
from .postgres import PostgresStore
from .sqlite import SqliteStore
from .store import JobStore

_DATABASES = ("postgresql://", "postgres://")
_USER_AND_PASSWORD = re.compile(r"(?<=://)([^:@/?]*):.*@")  # a password may have any character, even unescaped


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
    """Return the file of a queue, None if it is in a database; ``place`` None is this user's queue."""
    if place is None:
        return default_path()
    if place.startswith(_DATABASES):
        return None
    if "://" in place:
        raise UsageError(f"{place} cannot hold a queue", "Name a file, or a database as postgresql://HOST/NAME.")
    return Path(place).absolute()


def queue_option(place: str | None) -> str:
    """Return the option of commands that names a queue again, without a database's password; "" for this user's."""
    if place is None:
        return ""
    shown = _USER_AND_PASSWORD.sub(rf"\1:{REDACTED}@", place) if place.startswith(_DATABASES) else place
    return f" --queue {shlex.quote(shown)}"


def open_store(place: str | None, *, makes: bool) -> JobStore:
    """Return the store at a place; ``makes`` says whether to create a file that was named and is missing."""
    path = queue_file(place)
    store = PostgresStore(str(place)) if path is None else SqliteStore(path, makes=makes or place is None)
    store.option = queue_option(place)
    return store
