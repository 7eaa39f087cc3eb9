"""Where a journal is kept: in a folder on this machine, in a store behind fsspec, or nowhere.

Objects in a store cannot grow, so each record is a separate object. Together the objects have the content of a journal
file.
"""

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, Final, TypeVar

from ...actors.media.location import split_protocol
from ...actors.media.stores import open_store
from ...actors.media.whole_file import sync
from ...errors import StorageFailed
from ..join.owner import OWNER_FILE, RENEWED_EVERY_S, Owner, in_use, still_holds
from ..join.plain_files import content_of, remove_any
from ..join.spool import JOURNAL_FILE, PAYLOAD_PREFIX, storage_error

ResultT = TypeVar("ResultT")

_RECORD: Final = "record-"
_MOST_BYTES: Final = 1 << 30  #: The largest journal, which is enough for 300 hours of film at 60 pictures per second
_BUCKETS: Final = frozenset({"abfs", "abfss", "adl", "az", "gcs", "gs", "s3", "s3a"})
"""Protocols of stores with keys in a bucket; there, making a folder would create the bucket."""


class Store:
    """The records and payloads of one job.

    This base class is for jobs without a journal and stores nothing. The calls of its subclasses raise StorageFailed.
    """

    keeps = False  #: whether records and payloads are stored

    def read(self) -> bytes:
        """Return the whole journal; empty if no journal is stored."""
        return b""

    def append(self, record: bytes, *, is_durable: bool) -> None:
        """Add a whole record or nothing. A durable record survives a power loss, with all records before it."""

    def truncate(self, records: Sequence[bytes]) -> None:
        """Keep only the first ``records`` records."""

    def put(self, payload: Path) -> None:
        """Store a payload: a file of the job's spool."""

    def fetch(self, payload: Path) -> None:
        """Copy a stored payload back into its file in the spool."""

    def sweep(self, payloads: Collection[str]) -> None:
        """Remove all payloads except the given ones."""

    def has_payloads(self) -> bool:
        """Return whether there is a payload: a journal without one records only what is published."""
        return False

    def remove(self) -> None:
        """Remove everything; never raises."""


class FolderStore(Store):
    """A folder on this machine, which also holds the spool's payloads, so nothing is copied."""

    keeps = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / JOURNAL_FILE

    def read(self) -> bytes:
        try:
            return content_of(self._path, _MOST_BYTES) or b""
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise storage_error(error, self._path) from error

    def append(self, record: bytes, *, is_durable: bool) -> None:
        try:
            with self._path.open("ab", buffering=0) as file:
                before = file.tell()
                try:
                    self._write(file, record, is_durable=is_durable)
                except OSError:
                    file.truncate(before)
                    raise
        except OSError as error:
            raise storage_error(error, self._path) from error

    def _write(self, file: FileIO, record: bytes, *, is_durable: bool) -> None:
        if file.write(record) != len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if is_durable:
            sync(self._path)
            sync(self._folder)

    def truncate(self, records: Sequence[bytes]) -> None:
        try:
            if not records:
                remove_any(self._path)
                return
            with self._path.open("ab") as file:
                file.truncate(sum(map(len, records)))
        except OSError as error:
            raise storage_error(error, self._path) from error

    def sweep(self, payloads: Collection[str]) -> None:
        try:
            for path in self._folder.glob(f"{PAYLOAD_PREFIX}*"):
                if path.name not in payloads:
                    remove_any(path)
        except OSError as error:
            raise storage_error(error, self._folder) from error

    def has_payloads(self) -> bool:
        return any(self._folder.glob(f"{PAYLOAD_PREFIX}*"))

    def remove(self) -> None:
        with suppress(StorageFailed):
            self.sweep(())
        with suppress(OSError):
            remove_any(self._path)


class ObjectStore(Store):
    """A place that fsspec reaches, with an object for each record and payload."""

    keeps = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._files, self._root = _opened(url)
        self._records = 0

    def read(self) -> bytes:
        found: list[bytes] = []
        for name in self._names():
            if name == self._record(len(found)):
                found.append(self._call(self._files.cat_file, f"{self._root}/{name}"))
        self._records = len(found)
        return b"".join(found)

    def append(self, record: bytes, *, is_durable: bool) -> None:
        del is_durable
        self._call(self._files.pipe_file, f"{self._root}/{self._record(self._records)}", record)
        self._records += 1

    def truncate(self, records: Sequence[bytes]) -> None:
        for name in self._names():
            if name.startswith(_RECORD) and name >= self._record(len(records)):
                self._call(self._files.rm_file, f"{self._root}/{name}")
        self._records = len(records)

    def put(self, payload: Path) -> None:
        self._call(self._files.put_file, str(payload), f"{self._root}/{payload.name}")

    def fetch(self, payload: Path) -> None:
        with suppress(StorageFailed):
            self._call(self._files.get_file, f"{self._root}/{payload.name}", str(payload))

    def sweep(self, payloads: Collection[str]) -> None:
        for name in self._names():
            if name.startswith(PAYLOAD_PREFIX) and name not in payloads:
                self._call(self._files.rm_file, f"{self._root}/{name}")

    def has_payloads(self) -> bool:
        return any(name.startswith(PAYLOAD_PREFIX) for name in self._names())

    def remove(self) -> None:
        with suppress(StorageFailed):
            for name in self._names():
                if name.startswith((_RECORD, PAYLOAD_PREFIX, OWNER_FILE)):
                    self._call(self._files.rm_file, f"{self._root}/{name}")
        with suppress(StorageFailed):
            self._call(self._files.rmdir, self._root)

    def content(self, name: str) -> bytes:
        """Return an object's content; b"" if the object does not exist."""
        if name not in self._names():
            return b""
        content: bytes = self._call(self._files.cat_file, f"{self._root}/{name}")
        return content

    @property
    def size_bytes(self) -> int:
        """The size of all objects."""
        return int(self._call(self._files.du, self._root))

    def write(self, name: str, content: bytes) -> None:
        """Write or replace the object ``name``."""
        self._call(self._files.pipe_file, f"{self._root}/{name}", content)

    def _names(self) -> list[str]:
        self._files.invalidate_cache()
        try:
            listed = self._files.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        except Exception as error:  # each kind of store raises different errors
            raise _failed(self._url, error) from error
        return sorted(path.rstrip("/").rpartition("/")[2] for path in listed)

    def _call(self, method: Callable[..., ResultT], *arguments: object) -> ResultT:
        try:
            return method(*arguments)
        except Exception as error:  # each kind of store raises different errors
            raise _failed(self._url, error) from error

    @staticmethod
    def _record(number: int) -> str:
        return f"{_RECORD}{number:08d}"


class StoreLease:
    """Owns the work in a store, from ``acquire`` to ``release``. ``what`` names the output in errors.

    A store has no locks, so an object names the owner, who renews the object. If two jobs begin at the same moment, one
    of them reads back the other job's name and stops. Without read-after-write consistency both jobs may begin, and the
    first to publish wins. The clocks of machines that share a store must agree within seconds.
    """

    def __init__(self, store: ObjectStore, what: str) -> None:
        self._store = store
        self._what = what
        self._here = Owner.here()
        self._released = threading.Event()
        self._writing = threading.Lock()

    def acquire(self) -> None:
        """Take ownership. Raises OutputInUse: another job owns the work; StorageFailed: the store does not answer."""
        other, renewed_s = read_owner(self._store)
        age_s = time.time() - renewed_s
        lives = other is not None and other.lives(self._here, age_s)
        if still_holds(other, self._here, lives=lives, locks_work=False):
            raise in_use(self._what, other, age_s, self._here)
        self._write()
        if not self.holds():
            raise in_use(self._what, read_owner(self._store)[0], 0, self._here)
        threading.Thread(target=self._renew, name="codecfleet-lease", daemon=True).start()

    def holds(self) -> bool:
        """Return whether this owner still has the work; True if the store does not answer."""
        try:
            return read_owner(self._store)[0] == self._here
        except StorageFailed:
            return True

    def release(self) -> None:
        """Release the work. Idempotent. Never raises."""
        if not self._released.is_set():
            self._released.set()
            with self._writing, suppress(StorageFailed):
                if self.holds():
                    self._store.write(OWNER_FILE, b"")

    def _write(self) -> None:
        stated = json.loads(self._here.content) | {"renewed_s": time.time()}
        self._store.write(OWNER_FILE, json.dumps(stated).encode())

    def _renew(self) -> None:
        while not self._released.wait(RENEWED_EVERY_S):
            self._renew_once()

    def _renew_once(self) -> None:
        with self._writing, suppress(StorageFailed):
            if not self._released.is_set() and self.holds():
                self._write()


def read_owner(store: ObjectStore) -> tuple[Owner | None, float]:
    """Return the last recorded owner of the work in a store, and when the ownership was last renewed.

    The time is in seconds since 1970. The result is (None, 0) if no owner can be read.
    """
    with suppress(KeyError, TypeError, ValueError):
        stated = json.loads(store.content(OWNER_FILE))
        renewed_s = float(stated.pop("renewed_s"))
        return Owner.read(json.dumps(stated).encode()), renewed_s
    return None, 0.0


def _opened(url: str) -> tuple[Any, str]:
    try:
        files, root = open_store(url)
        # No folder is created: objects need none, and a misspelt name would create a bucket.
        if split_protocol(url)[0] not in _BUCKETS:
            files.makedirs(root, exist_ok=True)
    except Exception as error:  # each kind of store raises different errors
        raise _failed(url, error) from error
    return files, root.rstrip("/")


def _failed(url: str, error: Exception) -> StorageFailed:
    message = f"the work location {url} failed: {error}"
    return StorageFailed(message, "Check the connection, the credentials and the space left there, then start again.")
