"""Publishes a folder in one step: it is checked before any work, filled under a temporary name, then renamed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from ...actors.media.location import is_local, local_path
from ...actors.media.whole_file import sync
from ...errors import OutputExists, OutputUnwritable
from .publish import check_folder_of
from .spool import storage_error

REPLACED: Final = "replaced"  #: The temporary name of the old folder; it is one of the names that ``Spool`` removes
Listed: TypeAlias = Callable[[Path], frozenset[str]]
"""Returns the names in a folder that an earlier run wrote; nothing if that is unknown."""


def check_folder(output: str, listed: Listed, *, overwrite: bool) -> None:
    """Check that the folder can be created or replaced.

    Raises:
        OutputExists: the name is taken, and may not be replaced.
        OutputUnwritable: the folder is not on this machine, or cannot be created or read.
    """
    if not is_local(output):
        message = f"{output} cannot be written: only a local folder can be published in one step"
        raise OutputUnwritable(message, "Write to a local folder, then copy the folder to that address.")
    path = local_path(output)
    check_folder_of(path)
    if not os.path.lexists(path):
        return
    try:
        _check_replaceable(path, listed)
        is_empty = not any(path.iterdir())
    except OSError as error:
        message = f"the folder {path} cannot be read: {error.strerror}"
        raise OutputUnwritable(message, "Choose another name, or change its permissions.") from None
    if not overwrite and not is_empty:
        raise OutputExists(
            f"{path} exists already",
            "Use --overwrite (overwrite=True in Python) to replace it, or choose another name.",
        )


def _check_replaceable(path: Path, listed: Listed) -> None:
    """Check that a folder can be replaced, because it holds only files that an earlier run listed."""
    advice = "Choose another name."
    if path.is_symlink() or not path.is_dir():
        raise OutputExists(f"{path} exists already, and is not a folder", advice)
    if path.is_mount():
        raise OutputExists(
            f"{path} is a mount point, which cannot be replaced", "Use a new folder inside the mount point."
        )
    known = listed(path)
    others = sorted(each.name for each in path.iterdir() if each.name not in known)
    if others:
        raise OutputExists(f"{path} holds {others[0]}, which is not from an earlier run", advice)


def publish_folder(finished: Path, output: str, listed: Listed, *, overwrite: bool) -> None:
    """Rename a finished folder to its final name; a folder with that name is moved out of the way.

    Raises OutputExists: the name was taken meanwhile; StorageFailed.
    """
    path = local_path(output)
    try:
        for each in (*finished.rglob("*"), finished):
            sync(each)
        if overwrite and path.exists():
            _check_replaceable(path, listed)
            _exchange(finished, path)
        else:
            finished.rename(path)
    except OSError as error:
        if os.path.lexists(path):
            raise OutputExists(f"{path} exists already", "Choose another name.") from None
        raise storage_error(error, path) from error


def _exchange(finished: Path, path: Path) -> None:
    replaced = finished.parent / REPLACED
    path.rename(replaced)
    try:
        finished.rename(path)
    except OSError:
        replaced.rename(path)
        raise
