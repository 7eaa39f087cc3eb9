"""File operations around an entry's job: noticing a changed input, making the output's folder, copying.

All calls block.
"""

import errno
import hashlib
import json
import os
import posixpath
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from ...actors.media.location import is_local, local_path, without_query
from ...actors.media.storage_retry import is_transient, reason, try_again
from ...actors.media.stores import open_store, remote_state
from ...errors import (
    CodecfleetError,
    InputNotFound,
    InputUnreadable,
    JournalRefused,
    OutputExists,
    OutputUnwritable,
    StorageFailed,
)
from ..join.proof import file_sha256
from ..join.publish import publish, work_folder
from ..join.spool import Spool, storage_error
from ..request.spec import BatchSpec
from .store.schema import BatchEntry, Content
from .store.states import EntryEvent, EntryState

ResultT = TypeVar("ResultT")

DATABASE_NAME: Final = "codecfleet-batch.sqlite"
#: How many entries are compared at once: many, because a store takes tens of milliseconds to answer
COMPARED_IN_THREADS: Final = 16

_COPY_SUFFIX: Final = ".codecfleet-copy"
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def database_path(batch: BatchSpec) -> Path:
    """Return the path of a batch's database.

    Without a requested path, the database is in the folder of the outputs, or in the current folder if the outputs are
    remote.
    """
    if batch.database is not None:
        return Path(batch.database).absolute()
    return (local_path(batch.output) if is_local(batch.output) else Path()).absolute() / DATABASE_NAME


@dataclass(frozen=True, slots=True)
class SeenInput:
    """An input's version and size when the batch looked at it."""

    content: Content
    size_bytes: int | None


def look_at(source: str, *, hashed: bool) -> SeenInput:
    """Return an input's version and size. The version of a local file is made from its size and its time of change.

    Raises:
        InputNotFound: the input does not exist.
        InputUnreadable: the input is a folder, or this user may not read it.
        StorageFailed: the input's store does not answer.
    """
    size: int | None
    if is_local(source):
        with _reading(source):
            found = local_path(source).stat()
        version, size = json.dumps([found.st_size, found.st_mtime_ns]), found.st_size
    else:
        stated, size = remote_state(source)
        # two inputs without versions count as equal, unless their SHA-256 differ
        version = json.dumps(stated) if stated is not None else ""
    return SeenInput(Content(version=version, sha256=_sha256(source) if hashed else None), size)


def compare(entry: BatchEntry, state: EntryState, root: str, *, hashed: bool) -> EntryEvent:
    """Return FOUND_SAME if an earlier run's result still holds, otherwise FOUND_CHANGED.

    A failure holds while the input is unchanged; a success holds only while the output also has the recorded size.
    """
    try:
        now = look_at(entry.source, hashed=hashed).content
    except CodecfleetError:
        # An entry that failed because its input was missing fails again.
        still_failed = state is EntryState.FAILED_BEFORE and entry.content is None
        return EntryEvent.FOUND_SAME if still_failed else EntryEvent.FOUND_CHANGED
    if entry.content is None or not now.is_that_of(entry.content):
        return EntryEvent.FOUND_CHANGED
    if state is EntryState.FAILED_BEFORE:
        return EntryEvent.FOUND_SAME
    is_there = output_bytes(root, entry.published or entry.output) == entry.output_bytes
    return EntryEvent.FOUND_SAME if is_there else EntryEvent.FOUND_CHANGED


def compare_all(
    entries: Sequence[BatchEntry], state: EntryState, batch: BatchSpec
) -> list[tuple[BatchEntry, EntryEvent]]:
    """Compare entries in threads; return each entry with its event."""
    one = partial(compare, state=state, root=batch.output, hashed=batch.hash_inputs)
    with ThreadPoolExecutor(COMPARED_IN_THREADS) as threads:
        return list(zip(entries, threads.map(one, entries), strict=True))


def make_place(entry: BatchEntry, root: str, output: str, *, overwrite: bool) -> bool:
    """Create the folder of an entry's output; return whether an existing file with the output's name may be replaced.

    A file that the batch itself wrote may be replaced: it comes from a killed run, or its input has changed.

    Raises:
        OutputExists: another file has the name, and ``overwrite`` is not given.
        OutputUnwritable: a link leads the folder out of the root, or the folder cannot be created.
    """
    if is_local(root):
        _make_folder(local_path(root), output)
    return may_replace(entry, root, output, overwrite=overwrite)


def may_replace(entry: BatchEntry, root: str, output: str, *, overwrite: bool) -> bool:
    """Return whether a file under an output's name may be replaced. Raises OutputExists: as in ``make_place``."""
    if overwrite or (entry.was_in_flight and output == entry.output):
        return True
    there = output_bytes(root, output)
    if there is None:
        return False
    if (output, there) != (entry.published, entry.output_bytes):
        message = f"{joined(root, output)} exists already, and this batch did not write it"
        step = "Use --overwrite (overwrite=True in Python) to replace it, or another --output-template."
        raise OutputExists(message, step)
    return True


def _make_folder(root: Path, output: str) -> None:
    folder = (root / output).parent
    try:
        resolved = folder.resolve()
        if not resolved.is_relative_to(root.resolve()):
            message = f"{folder} is a link that leads out of {root}"
            raise OutputUnwritable(message, "Remove the link, or choose another --output.")
        resolved.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # for a link to itself, Python before 3.13 raises RuntimeError
        message = f"the folder {folder} cannot be created: {getattr(error, 'strerror', None) or error}"
        raise OutputUnwritable(message, "Choose another --output, or change the folder's permissions.") from None


def output_bytes(root: str, output: str) -> int | None:
    """Return the size of the file with an output's name; None if the name is free, -1 if it is not a file."""
    place = joined(root, output)
    if is_local(place):
        path = local_path(place)
        if not os.path.lexists(path):
            return None
        return path.stat().st_size if path.is_file() else -1
    try:
        store, path_there = open_store(place)
        store.invalidate_cache(path_there)
        return int(store.info(path_there)["size"])
    except FileNotFoundError:
        return None
    except Exception as error:  # each kind of store raises different errors
        raise StorageFailed(f"{place} cannot be examined: {error}", "Check the connection.") from error


def remove_dead_work(output: str) -> None:
    """Remove a killed try's work folder, unless the job can continue from it.

    Raises OutputInUse: a process owns the folder.
    """
    spool = Spool(work_folder(output), output)
    with suppress(JournalRefused, OutputUnwritable, StorageFailed):
        spool.open()
        spool.remove()


def joined(root: str, output: str) -> str:
    """Return the path or URL of an output below its root."""
    return posixpath.join(root, output)


def with_suffix_of(source: str, output: str) -> str:
    """Return the name of an input's copy: the output's name with the input's extension."""
    suffix = posixpath.splitext(without_query(source))[1]
    stem, own = posixpath.splitext(output)
    return output if own.lower() == suffix.lower() else f"{stem}{suffix}"


def copy_whole(source: str, output: str, *, overwrite: bool) -> int:
    """Copy a file atomically, and return its size.

    Raises:
        InputError: the file cannot be read.
        StorageFailed: the file's store does not answer, or there is no room for the copy.
        OutputExists, OutputUnwritable: as in ``publish``.
    """
    # Every try uses the same name, and first removes the file of an earlier try.
    part = work_folder(output).with_suffix(_COPY_SUFFIX)
    try:
        part.unlink(missing_ok=True)
        # The file must be new, so that a link that another user put into the temporary folder is not followed. In that
        # folder, only this user can read the file.
        part.touch(mode=0o666 if is_local(output) else 0o600, exist_ok=False)
        _fetch(source, part)
        size_bytes = part.stat().st_size
        publish(part, output, overwrite=overwrite)
    except OSError as error:
        raise storage_error(error, part) from error
    finally:
        part.unlink(missing_ok=True)
    return size_bytes


def _fetch(source: str, part: Path) -> None:
    if is_local(source):
        with _reading(source):
            file = local_path(source).open("rb")
        with file, part.open("wb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
    else:
        _from_store(source, lambda store, path: store.get_file(path, str(part)))


def _sha256(source: str) -> str:
    if not is_local(source):
        return _from_store(source, _remote_sha256)
    with _reading(source):
        return file_sha256(local_path(source))


def _remote_sha256(store: Any, path: str) -> str:  # noqa: ANN401 - fsspec publishes no types
    with store.open(path, "rb") as remote:
        return hashlib.file_digest(remote, "sha256").hexdigest()


@contextmanager
def _reading(source: str) -> Iterator[None]:
    """Raise errors in reading a local source as InputError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise InputNotFound(f"there is no file {source}", "Check the path.") from None
    except OSError as error:
        raise InputUnreadable(f"{source} cannot be read: {error.strerror}", "Check its permissions.") from None


def _from_store(source: str, read: Callable[[Any, str], ResultT]) -> ResultT:
    """Call ``read`` with a remote source's store and path, retrying transient errors, and return the result.

    Raises:
        InputNotFound, InputUnreadable: the source is missing or unreadable.
        StorageFailed: its store does not answer.
        OSError: the local disk is full.
    """

    def tried() -> ResultT:
        return read(*open_store(source))

    try:
        return try_again(tried)
    except FileNotFoundError:
        raise InputNotFound(f"there is nothing at {source}", "Check the address.") from None
    except Exception as error:  # each kind of store raises different errors
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise
        message = f"{source} could not be read: {reason(error)}"
        if is_transient(error):
            raise StorageFailed(message, "Check the connection, then start again.") from error
        raise InputUnreadable(message, "Check the address and the credentials.") from error
