"""Caches trials: one JSON file for each key, in the user's cache folder. Unreadable files are ignored."""

import hashlib
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from ....actors.media.whole_file import write_whole
from ..report.engines import Trial

CACHE_SCHEMA: Final = 3


@cache
def _adapter() -> TypeAdapter[tuple[Trial, ...]]:
    return TypeAdapter(tuple[Trial, ...])


def trials_file(folder: Path | None, *depends_on: str) -> Path | None:
    """Return the file in a cache folder for trials whose results depend on these names and versions."""
    key = hashlib.sha256(repr((CACHE_SCHEMA, depends_on)).encode()).hexdigest()
    return None if folder is None else folder / f"trials-{key[:32]}.json"


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


def load_trials(file: Path | None) -> tuple[Trial, ...] | None:
    """Return the cached trials; None if there are none, or if the file cannot be read."""
    try:
        return None if file is None else _adapter().validate_json(file.read_bytes()) or None
    except (OSError, ValidationError):
        return None


def save_trials(file: Path | None, trials: tuple[Trial, ...]) -> None:
    """Cache ``trials`` atomically; if the folder is not writable, nothing is cached."""
    if file is None:
        return
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, _adapter().dump_json(trials))
