"""Checks the output's name before any work, and gives that name only to a complete, proven file or folder."""

import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from ...actors.media.location import is_local, local_path, split_protocol
from ...actors.media.storage_retry import is_busy, try_again
from ...actors.media.stores import open_store
from ...actors.media.whole_file import sync
from ...errors import CodecfleetError, OutputExists, OutputUnwritable, RequestError, StorageFailed, UsageError
from .spool import storage_error

if TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem

WORK_SUFFIX: Final = ".codecfleet"  #: The end of the names of work folders
_MARK_DIGITS: Final = 12
#: The longest name on Linux, minus the part that is added to the name
_NAME_BYTES: Final = 255 - len(WORK_SUFFIX) - _MARK_DIGITS - 2
_READ_ONLY = frozenset({"data", "github", "http", "https"})  #: Schemes of stores to which fsspec cannot write
REPLACED: Final = "replaced"  #: The temporary name of the old folder; it is one of the names that ``Spool`` removes
Listed: TypeAlias = Callable[[Path], frozenset[str]]
"""Returns the files that an earlier run wrote into a folder, relative to this folder; an empty set if unknown."""


def check_output(source: str, output: str, *, overwrite: bool) -> None:
    """Check, before any work, that the output can be created.

    Raises:
        UsageError: output and input are the same file.
        OutputExists: the name is taken, and ``overwrite`` is not given.
        OutputUnwritable: the output is a folder, or the folder for it is missing or cannot be written.
        StorageFailed: the output's store does not answer now.
    """
    if not is_local(output):
        _check_remote(source, output, overwrite=overwrite)
        return
    path = local_path(output)
    try:
        _check_name(source, path, overwrite=overwrite)
    except (OSError, ValueError) as error:
        message = f"{path} cannot be written: {getattr(error, 'strerror', None) or error}"
        raise OutputUnwritable(message, "Choose another name or folder.") from None
    check_folder_of(path)


def check_folder_of(path: Path) -> None:
    """Check that a file can be created at a path. Raises OutputUnwritable: the folder is missing or read-only."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise OutputUnwritable(f"there is no folder {path.parent}", "Create it first.")
    if not os.access(folder, os.W_OK):
        message = f"{folder} is read-only"
        raise OutputUnwritable(message, "Choose another output folder or change its permissions.")


def work_folder(output: str) -> Path:
    """Return the folder for unfinished work: hidden beside a local output; temporary for a remote output."""
    if is_local(output):
        path = local_path(output).absolute()
        return path.parent / f".{_shortened(path.name, output)}{WORK_SUFFIX}"
    return Path(tempfile.gettempdir()) / f"codecfleet-{os.geteuid()}-{_mark(output)}{WORK_SUFFIX}"


def work_name(output: str) -> str:
    """Return the name for the work on an output, in a folder for the work on many outputs."""
    name = output.rstrip("/").rpartition("/")[2]
    return f"{_shortened(name, output)}.{_mark(output)}{WORK_SUFFIX}"


def _shortened(name: str, output: str) -> str:
    """Return a name that is unique to the output and short enough for additions."""
    encoded = os.fsencode(name)
    if len(encoded) <= _NAME_BYTES:
        return name
    return f"{os.fsdecode(encoded[: _NAME_BYTES - _MARK_DIGITS - 1])}.{_mark(output)}"


def _mark(output: str) -> str:
    return hashlib.sha256(os.fsencode(output)).hexdigest()[:_MARK_DIGITS]


def publish(finished: Path, output: str, *, overwrite: bool) -> None:
    """Give a finished file its final name, atomically.

    Raises:
        OutputExists: the name was taken meanwhile, and ``overwrite`` is not given.
        OutputUnwritable: the store forbids writing.
        StorageFailed: the file system or the store failed.
    """
    if not is_local(output):
        _publish_remote(finished, output, overwrite=overwrite)
        return
    path = local_path(output)
    try:
        sync(finished)
        if overwrite:
            finished.replace(path)
        else:
            # A hard link fails if the name is taken; a rename would silently replace another program's new file.
            try:
                path.hardlink_to(finished)
            except FileExistsError:
                raise
            except OSError:
                if os.path.lexists(path):
                    raise FileExistsError from None
                finished.replace(path)
            else:
                finished.unlink()
    except FileExistsError:
        raise _exists(str(path)) from None
    except OSError as error:
        raise storage_error(error, path) from error


def _check_name(source: str, path: Path, *, overwrite: bool) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()
    if path.is_dir():
        raise OutputUnwritable(f"{path} is a folder", "Give the name of a file in that folder.")
    if is_local(source) and path.exists() and local_path(source).exists() and path.samefile(local_path(source)):
        raise UsageError(f"output and input are the same file: {path}", "Choose another output.")
    if os.path.lexists(path) and not overwrite:  # a dangling link also takes the name
        raise _exists(str(path))
    if path.exists() and not path.is_file():
        message = f"{path} is a pipe or a device, and is not replaced"
        raise OutputUnwritable(message, "Choose another name.")


def _check_remote(source: str, output: str, *, overwrite: bool) -> None:
    if split_protocol(output)[0] in _READ_ONLY:
        message = f"{output} cannot be written: that store can only be read"
        raise OutputUnwritable(message, "Write to a local file, or to a writable store.")
    try:
        store, path = open_store(output)
        taken = try_again(lambda: store.exists(path))
        same = taken and not is_local(source) and open_store(source) == (store, path)
    except Exception as error:  # each kind of store raises different errors
        raise _refused(output, error) from error
    if same:
        raise UsageError(f"output and input are the same: {output}", "Choose another output.")
    if taken and not overwrite:
        raise _exists(output)
    try:
        try_again(lambda: _begin_and_discard(store, path))
    except Exception as error:  # each kind of store raises different errors
        raise _refused(output, error) from error


def _begin_and_discard(store: "AbstractFileSystem", path: str) -> None:
    """Begin an upload beside ``path`` and discard it, to detect a missing or read-only bucket before any work.

    This is done only for object stores, where an incomplete upload is never visible.
    """
    from fsspec.spec import AbstractBufferedFile

    trial = f"{path}.{secrets.token_hex(4)}.trial"
    file = None
    try:
        with suppress(Exception):  # some stores cannot begin a file without completing it
            file = store.open(trial, "wb", autocommit=False)
        if isinstance(file, AbstractBufferedFile):
            file.write(b"\0")
            file.flush(force=True)
    finally:
        with suppress(Exception):  # a store may forbid the clean-up, or not support it
            if isinstance(file, AbstractBufferedFile):
                file.discard()
                file.close()
            if store.exists(trial):
                store.rm_file(trial)


def _exists(output: str) -> RequestError:
    message = f"{output} exists already"
    return OutputExists(message, "Use --overwrite (overwrite=True in Python) to replace it, or choose another name.")


def _refused(output: str, error: Exception) -> CodecfleetError:
    """Return the error for an output that cannot be written, or for a store that does not answer now."""
    if not is_busy(error):
        return _unwritable(output, error)
    return StorageFailed(f"{output} cannot be written now: {error}", "Start again when the store answers.")


def _unwritable(output: str, error: Exception) -> RequestError:
    protocol = split_protocol(output)[0]
    message = f"{output} cannot be written: {error}"
    return OutputUnwritable(message, f"Check the address, the credentials, and that fsspec can write {protocol}.")


def _publish_remote(finished: Path, output: str, *, overwrite: bool) -> None:
    try:
        store, path = open_store(output)
        taken = not overwrite and store.exists(path)
        # The whole file is uploaded in one call: after an error, closing an open file would publish a truncated file.
        if not taken:
            try_again(lambda: store.put_file(str(finished), path))
    except (NotImplementedError, PermissionError) as error:
        raise _unwritable(output, error) from error
    except Exception as error:  # each kind of store raises different errors
        message = f"{output} could not be written: {error}"
        raise StorageFailed(message, "Check the connection and the space left there, then start again.") from error
    if taken:
        raise _exists(output)


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
        raise _exists(str(path))


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
    folders = {str(parent) for name in known for parent in Path(name).parents}
    found = ((str(each.relative_to(path)), each.is_dir() and not each.is_symlink()) for each in path.rglob("*"))
    refuse_others(str(path), (name for name, is_folder in found if name not in (folders if is_folder else known)))


def refuse_others(output: str, others: Iterable[str]) -> None:
    """Raise OutputExists, with the first of ``others``: the files in a folder that no earlier run has written."""
    if (first := min(others, default=None)) is not None:
        raise OutputExists(f"{output} holds {first}, which is not from an earlier run", "Choose another name.")


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
