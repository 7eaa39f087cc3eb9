"""The location of a source or an output: on this machine, or at an address of an fsspec protocol.

A ``HeldSource`` is also a location: bytes or an open file that only this process can read.
"""

import os
import re
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

from ...errors import CodecfleetError, InputUnreadable, UsageError
from .storage_retry import reason

if TYPE_CHECKING:
    from .headers import FragmentWatch

_WEB: Final = ("http", "https")
LOCAL_PROTOCOLS: Final = (None, "file", "local")
"""fsspec's protocols for files on this machine; None is a plain path."""


_SERIALS: Final = count(1)


class BinaryFile(Protocol):
    """The caller's open file: binary and seekable."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, b"" at the end."""

    def seek(self, offset: int, whence: int = ..., /) -> object:
        """Move to a position."""


SourceData: TypeAlias = bytes | bytearray | memoryview | BinaryFile
_ReadAt: TypeAlias = Callable[[int, int], bytes]


class EndedSource(str):
    """The path of a local file of which only the first ``end_bytes`` are read, because it may still grow.

    It equals only an ``EndedSource`` with the same path and end, so that nothing kept of the longer file is used for
    it.
    """

    __slots__ = ("end_bytes",)

    end_bytes: int

    @classmethod
    def of(cls, path: str | Path, end_bytes: int) -> Self:
        """Return the location of the first ``end_bytes`` of the file at ``path``."""
        ended = cls(path)
        ended.end_bytes = end_bytes
        return ended

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EndedSource) and str(self) == str(other) and self.end_bytes == other.end_bytes

    def __hash__(self) -> int:
        return hash((str(self), self.end_bytes))

    def __reduce__(self) -> tuple[Callable[[str, int], Self], tuple[str, int]]:
        return type(self).of, (str(self), self.end_bytes)


UNKNOWN_BYTES: Final = 1 << 60  #: The size of a file that still grows, as its demuxer sees it


class HeldSource(str):
    """The location of bytes or an open file that the caller holds; ``str`` gives its name for messages.

    Two ``HeldSource`` objects are never equal. Until ``release``, several threads can read the data, each at its own
    position.
    """

    __slots__ = ("_read_at", "_sent", "path", "version")

    path: str  #: the file's path, whose extension FFmpeg looks at; "" if there is none
    version: tuple[int, int, int, int]  #: the version, as for a local file: device, inode, size, time of change
    _read_at: _ReadAt | None  #: None once released
    _sent: memoryview | None  #: the bytes to pickle; None if the source cannot be pickled

    @classmethod
    def of(cls, data: object, name: str = "") -> Self | None:
        """Return the location of an object with the buffer protocol or of a file; None for any other object.

        ``name`` is the file's name in messages, "" for its class and path.

        Raises UsageError: the object's bytes are not contiguous, or the file is not binary or not seekable.
        """
        try:
            view = memoryview(data)  # type: ignore[arg-type]
        except TypeError:
            return cls._of_file(data, name) if callable(getattr(data, "read", None)) else None
        kind = type(data).__name__
        if not view.c_contiguous:
            raise UsageError(f"the bytes of this {kind} are not contiguous", "Copy them: bytes(data).")
        view = view.cast("B")
        return cls._made(kind, view.nbytes, lambda at, size: bytes(view[at : at + size]), sent=view)

    @classmethod
    def _of_file(cls, file: Any, name: str) -> Self:  # noqa: ANN401 - any object with read and seek
        path = getattr(file, "name", "")
        path = path if isinstance(path, str) else ""
        return cls._made(type(file).__name__, _size_bytes(file), _serial(file), path=path, name=name)

    @classmethod
    def _made(
        cls,
        kind: str,
        size_bytes: int,
        read_at: _ReadAt,
        *,
        path: str = "",
        name: str = "",
        sent: memoryview | None = None,
    ) -> Self:
        held = cls(name or (f"<{kind} {path}>" if path else f"<{kind} of {size_bytes:,}>"))
        held.path, held.version = path, (-1, next(_SERIALS), size_bytes, 0)
        held._read_at, held._sent = read_at, sent
        return held

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``position``. Raises InputUnreadable."""
        read_at = self._read_at
        if read_at is None:
            raise InputUnreadable(f"{self} was released when its frames were closed", "Open it again.")
        try:
            data = read_at(position, size)
        except CodecfleetError:
            raise
        except Exception as error:  # a caller's file may raise any error
            raise InputUnreadable(f"{self} cannot be read: {reason(error)}", "Keep the file open.") from error
        return data

    def release(self) -> None:
        """Stop using the caller's data; later reads fail. Idempotent."""
        self._read_at = self._sent = None

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> tuple[Callable[[bytes], Self | None], tuple[bytes]]:
        if self._sent is None:
            message = f"{self} can only be read in the process that created it"
            raise UsageError(message, "Pickle the file's path instead, or its content as bytes.")
        data = self._sent.obj
        return type(self).of, (data if isinstance(data, bytes) else bytes(self._sent),)


def release(url: str) -> None:
    """Release a ``HeldSource``; other locations hold nothing. Idempotent."""
    if isinstance(url, HeldSource):
        url.release()


def _size_bytes(file: Any) -> int:  # noqa: ANN401 - any object with read and seek
    """Return a file's size. Raises UsageError: the file is not binary, or not seekable."""
    kind, how = type(file).__name__, "Read the whole file, and give the bytes: frames(file.read())."
    try:
        can_seek = getattr(file, "seekable", lambda: True)()
        found = file.seek(0, os.SEEK_END) if can_seek else 0
        size_bytes = int(file.tell() if found is None else found)
        is_text = isinstance(file.read(0), str)
    except Exception as error:  # a caller's file may raise any error
        raise UsageError(f"this {kind} cannot be read at any position: {reason(error)}", how) from error
    if not can_seek:
        raise UsageError(f"this {kind} cannot seek, and a source is read in several places", how)
    if is_text:
        raise UsageError(f"this {kind} reads text", 'Open the file in binary mode: open(path, "rb").')
    return size_bytes


def _serial(file: Any) -> _ReadAt:  # noqa: ANN401 - any object with read and seek
    """Return a function that reads a file at any position, for one thread at a time because the position is shared."""
    lock = threading.Lock()

    def read_at(position: int, size: int) -> bytes:
        with lock:
            file.seek(position)
            data = file.read(size)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"read() returns {type(data).__name__}, not bytes")
        return bytes(data)

    return read_at


class HeldFile:
    """A held source as FFmpeg reads it; after the first failure it only reports the end, as ``RemoteFile`` does."""

    def __init__(self, source: HeldSource) -> None:
        self._source = source
        self._position = 0
        self._failed = False
        self.watch: FragmentWatch | None = None
        self.name = f"file:{source.path}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the data belong to the caller."""

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes, b"" at the end. Raises InputUnreadable."""
        if self._failed:
            return b""
        self._failed = True
        data = self._source.read_at(self._position, size)
        self._failed = False
        if self.watch is not None:
            self.watch.see(self._position, data)
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position and return it."""
        start = {os.SEEK_CUR: self._position, os.SEEK_END: self._source.version[2]}.get(whence, 0)
        self._position = max(0, start + offset)
        return self._position

    def tell(self) -> int:
        """Return the position of the next read, in bytes."""
        return self._position


def split_protocol(url: str) -> tuple[str | None, str]:
    """Return fsspec's name of a ``url``'s protocol (None for a plain path), and the rest of the ``url``."""
    if "://" not in url and not url.startswith("data:"):
        return None, url
    from fsspec import core

    protocol, rest = core.split_protocol(url)
    return protocol, rest


def is_local(url: str) -> bool:
    """Return whether ``url`` names a file on this machine."""
    return split_protocol(url)[0] in LOCAL_PROTOCOLS


def local_path(url: str) -> Path:
    """Return the path of a local ``url``, with or without its ``file://``."""
    return Path(split_protocol(url)[1])


def without_query(url: str) -> str:
    """Return the part of a web address that names the file; any other ``url`` unchanged."""
    return re.split("[?#]", url, maxsplit=1)[0] if split_protocol(url)[0] in _WEB else url


def name_of(url: str) -> str:
    """Return the file's name: the last part of a path or address, without its query."""
    return without_query(url).rstrip("/").rpartition("/")[2]


def absolute(url: str) -> str:
    """Return an address that names the same file in any working directory."""
    if isinstance(url, HeldSource):
        return url
    return str(local_path(url).absolute()) if is_local(url) else url
