"""Keeps what trials found, so that a machine is not tried again each time it is asked: a cache, never a truth.

One file per subject under ``codecfleet/`` in the user's cache folder, in msgpack. The key is in the file: other
drivers, devices, packages or schemas do not match it. A file that cannot be read is ignored.
"""

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
    """What trials depend on. ``subject`` is a kind of device, or a device's UUID; ``packages`` are "name version"."""

    driver: str
    subject: str
    packages: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """Return the name of the file that would hold them."""
        return f"trials-{hashlib.sha256(repr(self).encode()).hexdigest()[:32]}.msgpack"

    def as_list(self) -> list[Any]:
        """Return it as msgpack reads it back."""
        return [CACHE_SCHEMA, self.driver, self.subject, list(self.packages)]


def cache_folder() -> Path | None:
    """Return where trials are kept: in XDG_CACHE_HOME, else in ``~/.cache``; None for a user without a home."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if named and Path(named).is_absolute():
        return Path(named) / "codecfleet"
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "codecfleet"
    return None


def is_lasting(trials: tuple[Trial, ...]) -> bool:
    """Return whether trials are worth keeping: a failure that can be fixed must be tried again."""
    return bool(trials) and not any(trial.fix for trial in trials)


def load_trials(folder: Path | None, key: CacheKey) -> tuple[Trial, ...] | None:
    """Return what is kept for ``key``, None where there is nothing, or nothing that can be read."""
    if folder is None:
        return None
    try:
        with (folder / key.file_name).open("rb") as file:
            kept = msgpack.unpackb(file.read(FILE_BYTES_MAX), strict_map_key=False)
        if not isinstance(kept, dict) or kept.get("key") != key.as_list():
            return None
        return _adapter().validate_python(kept.get("trials"))
    # msgpack raises the last four for what is cut short, not msgpack at all, or a map whose key is a list.
    except (OSError, ValidationError, ValueError, TypeError, msgpack.UnpackException, RecursionError):
        return None


def save_trials(folder: Path | None, key: CacheKey, trials: tuple[Trial, ...]) -> None:
    """Keep ``trials``, whole or not at all; a folder that cannot be written to keeps nothing."""
    if folder is None:
        return
    packed = msgpack.packb({"key": key.as_list(), "trials": _adapter().dump_python(trials, mode="json")})
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / key.file_name, packed)
