"""Publishes the folder of a ladder: a local folder in one step, a folder in a store with its manifests last.

First, a record of the request and the files is written into the work folder. If the run is killed after that, or nobody
hears of its end, the next run of the same request may replace these files.
"""

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from ...actors.media.location import is_local
from ...actors.media.stores import open_store
from ...actors.media.whole_file import write_whole
from ...errors import CodecfleetError, OutputExists, StorageFailed
from ..join.plain_files import content_of
from ..join.publish import check_folder, check_output, publish, publish_folder, refuse_others
from ..join.spool import PUBLISHED, storage_error
from ..package.names import MANIFEST, MASTER
from .report import INDEX

_LAST: Final = (MANIFEST, MASTER)
"""The files that a player opens first. A store is not written in one step, so these come after all other files."""
_RECORD_BYTES: Final = 1 << 26  #: The largest size of a record
_AT_ONCE: Final = 8  #: How many files are sent to a store at the same time


@dataclass(frozen=True, slots=True)
class LadderFolder:
    """Where a ladder is published."""

    output: str
    overwrite: bool
    request: str  #: the request, as ``request_text`` returns it
    recorded: frozenset[str]  #: the files that an earlier run of this request began to publish

    def check(self, source: str) -> None:
        """Check, before any work, that the folder can be written.

        Raises:
            OutputExists: the folder may not be replaced, or holds files that no ladder has written.
            OutputUnwritable: the folder cannot be written.
            StorageFailed: the store does not answer now.
        """
        if is_local(self.output):
            check_folder(self.output, self._listed, overwrite=self._may_replace)
            return
        check_output(source, _url(self.output, MASTER), overwrite=True)
        found = files_in(self.output)
        if found and not self._may_replace:
            message = f"{self.output} already holds {min(found)}"
            raise OutputExists(message, "Use --overwrite to replace an earlier ladder, or choose another name.")
        refuse_others(self.output, found - self._listed_in_store())

    def publish(self, folder: Path, files: tuple[str, ...], work: Path) -> None:
        """Publish a finished folder, which has these files; ``work`` gets the record.

        Raises OutputExists: the name was taken meanwhile; StorageFailed.
        """
        try:
            write_whole(work / PUBLISHED, json.dumps({"request": self.request, "files": files}).encode())
        except OSError as error:
            raise storage_error(error, work) from error
        if is_local(self.output):
            publish_folder(folder, self.output, self._listed, overwrite=self._may_replace)
            return
        replaced = self._listed_in_store() if self._may_replace else frozenset[str]()
        _remove(self.output, replaced & frozenset(_LAST))  # so that no player gets tracks of two ladders

        def send(name: str) -> None:
            publish(folder / name, _url(self.output, name), overwrite=True)

        _each(send, (name for name in files if name not in _LAST))
        for name in _LAST:
            send(name)
        _remove(self.output, replaced - frozenset(files))

    @property
    def _may_replace(self) -> bool:
        return self.overwrite or bool(self.recorded)

    def _listed(self, path: Path) -> frozenset[str]:
        with suppress(OSError):
            return self.recorded | _listed_by((path / INDEX).read_bytes())
        return self.recorded

    def _listed_in_store(self) -> frozenset[str]:
        store, path = open_store(_url(self.output, INDEX))
        with suppress(Exception):  # each kind of store raises different errors; without a report, no files are known
            return self.recorded | _listed_by(store.cat_file(path))
        return self.recorded


def recorded_files(work: Path, request: str) -> frozenset[str]:
    """Return the files that an earlier run of a request has begun to publish; empty if ``work`` records none."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        stated = json.loads(content_of(work / PUBLISHED, _RECORD_BYTES) or b"")
        return frozenset(map(str, stated["files"])) if stated["request"] == request else frozenset()
    return frozenset()


def _listed_by(index: bytes) -> frozenset[str]:
    """Return the files that a ladder's report lists; empty if it cannot be read."""
    with suppress(ValueError, TypeError, KeyError):
        return frozenset(map(str, json.loads(index)["files"]))
    return frozenset()


def files_in(output: str) -> frozenset[str]:
    """Return the names of the files in a folder of a store. Raises StorageFailed."""
    store, root = open_store(output)
    try:
        found = store.find(root)
    except FileNotFoundError:
        return frozenset()
    except Exception as error:  # each kind of store raises different errors
        raise StorageFailed(f"{output} cannot be listed: {error}", "Check the address and the credentials.") from error
    return frozenset(str(PurePosixPath(each).relative_to(root)) for each in found)


def _remove(output: str, names: Iterable[str]) -> None:
    def remove(name: str) -> None:
        store, path = open_store(_url(output, name))
        try:
            if store.exists(path):
                store.rm_file(path)
        except Exception as error:  # each kind of store raises different errors
            message = f"{name} in {output} could not be removed: {error}"
            raise StorageFailed(message, "Check the connection, then start again.") from error

    _each(remove, names)


def _each(act: Callable[[str], None], names: Iterable[str]) -> None:
    """Act on several files at a time. After an error start no more, wait for the others, and raise the first error."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        errors: list[CodecfleetError] = []

        def attempt(name: str) -> None:
            if not errors:
                try:
                    act(name)
                except CodecfleetError as error:
                    errors.append(error)

        list(threads.map(attempt, names))
    if errors:
        raise errors[0]


def _url(output: str, name: str) -> str:
    return f"{output.rstrip('/')}/{name}"
