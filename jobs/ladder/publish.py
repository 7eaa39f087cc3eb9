"""Publishes the folder of a ladder: a local one in one step, one in a store with its manifests last."""

import json
from contextlib import suppress
from pathlib import Path

from ...actors.media.location import is_local
from ...actors.media.stores import open_store
from ...errors import StorageFailed
from ..join.publish import check_folder, check_output, publish, publish_folder
from ..package.names import MANIFEST, MASTER
from .report import INDEX

_LAST = (MANIFEST, MASTER)
"""What a player opens. A store is not written in one step, so no player may find these before everything else."""


def check_place(source: str, output: str, *, overwrite: bool) -> None:
    """Check, before any work, that the folder can be written.

    Raises the errors of ``check_folder`` or, for a store, of ``check_output``.
    """
    if is_local(output):
        check_folder(output, listed_package, overwrite=overwrite)
    else:
        check_output(source, _url(output, MASTER), overwrite=overwrite)


def publish_package(folder: Path, files: tuple[str, ...], output: str, *, overwrite: bool) -> None:
    """Publish a finished folder with these files. Raises OutputExists: the name was taken meanwhile; StorageFailed."""
    if is_local(output):
        publish_folder(folder, output, listed_package, overwrite=overwrite)
        return
    if overwrite:
        _forget(output)
    for name in (*(each for each in files if each not in _LAST), *_LAST):
        publish(folder / name, _url(output, name), overwrite=overwrite or name not in _LAST)


def _forget(output: str) -> None:
    """Remove an earlier ladder's manifests, so that no player gets some of its tracks and some of the new ones."""
    try:
        for name in _LAST:
            store, path = open_store(_url(output, name))
            if store.exists(path):
                store.rm_file(path)
    except Exception as error:  # each kind of store raises different errors
        message = f"the manifests in {output} could not be removed: {error}"
        raise StorageFailed(message, "Check the connection, then start again.") from error


def _url(output: str, name: str) -> str:
    return f"{output.rstrip('/')}/{name}"


def listed_package(path: Path) -> frozenset[str]:
    """Return the names in a folder that an earlier ladder wrote into it; nothing if its report cannot be read."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        index = json.loads((path / INDEX).read_text(encoding="utf-8"))
        return frozenset(Path(each).parts[0] for each in index["files"])
    return frozenset()
