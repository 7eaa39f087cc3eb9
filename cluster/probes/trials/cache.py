"""Caches trials: one msgpack file for each key, in the user's cache folder. Unreadable files are ignored."""

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgpack
from pydantic import TypeAdapter, ValidationError

from ....actors.media.whole_file import write_whole
from ..report.engines import Trial

CACHE_SCHEMA: Final = 2
FILE_BYTES_MAX: Final = 1_000_000


@cache
def _adapter() -> TypeAdapter[tuple[Trial, ...]]:
    return TypeAdapter(tuple[Trial, ...])


@dataclass(frozen=True, slots=True)
class CacheKey:
    """The facts on which the results of trials depend."""

    driver: str
    subject: str  #: a kind of device
    packages: tuple[str, ...]  #: "name version" of each package

    @property
    def file_name(self) -> str:
        """The name of the file for trials with this key."""
        return f"trials-{hashlib.sha256(repr(self).encode()).hexdigest()[:32]}.msgpack"

    def as_list(self) -> list[Any]:
        """Return the key and the schema's version, as a cache file contains them."""
        return [CACHE_SCHEMA, self.driver, self.subject, list(self.packages)]


def cache_folder() -> Path | None:
    """Return the cache folder, in XDG_CACHE_HOME or else in ``~/.cache``; None if the user has no home."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if named and Path(named).is_absolute():
        return Path(named) / "codecfleet"
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "codecfleet"
    return None


def is_lasting(trials: tuple[Trial, ...]) -> bool:
    """Whether trials may be cached. Trials with a failure that a user can fix must be repeated."""
    return bool(trials) and not any(trial.fix for trial in trials)


def load_trials(folder: Path | None, key: CacheKey) -> tuple[Trial, ...] | None:
    """Return the cached trials; None if there are none, or if the file cannot be read."""
    if folder is None:
        return None
    try:
        with (folder / key.file_name).open("rb") as file:
            kept = msgpack.unpackb(file.read(FILE_BYTES_MAX), strict_map_key=False)
        if not isinstance(kept, dict) or kept.get("key") != key.as_list():
            return None
        return _adapter().validate_python(kept.get("trials"))
    # msgpack raises the last four if a file is truncated or not msgpack, or has a map with a list as a key.
    except (OSError, ValidationError, ValueError, TypeError, msgpack.UnpackException, RecursionError):
        return None


def save_trials(folder: Path | None, key: CacheKey, trials: tuple[Trial, ...]) -> None:
    """Cache ``trials`` atomically; if the folder is not writable, nothing is cached."""
    if folder is None:
        return
    packed = msgpack.packb({"key": key.as_list(), "trials": _adapter().dump_python(trials, mode="json")})
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / key.file_name, packed)
