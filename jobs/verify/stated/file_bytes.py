"""Bytes of a local or remote file, read where a box or an element is."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from ....actors.media.location import is_local, local_path
from ....actors.media.opening import no_file, open_regular
from ....actors.media.remote_file import RemoteFile, WantedBytes
from ....errors import InputUnreadable

BLOCK_BYTES: Final = 1 << 16


class _Readable(Protocol):
    """A file that is open for reading."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes."""

    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Go to a place; return it."""


class FileBytes:
    """A file's bytes, read in blocks. ``size`` is the file's length in bytes."""

    def __init__(self, file: _Readable) -> None:
        self._file = file
        self.size = file.seek(0, os.SEEK_END)
        self._begin = 0
        self._block = b""

    def read(self, place: int, count: int) -> bytes:
        """Return ``count`` bytes from ``place`` on, fewer at the end of the file."""
        offset = place - self._begin
        if offset < 0 or offset + count > len(self._block):
            self._file.seek(place)
            self._begin, self._block, offset = place, self._whole(max(count, BLOCK_BYTES)), 0
        return self._block[offset : offset + count]

    def _whole(self, count: int) -> bytes:
        parts = []
        while count > 0 and (part := self._file.read(count)):
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


@contextmanager
def open_bytes(url: str) -> Iterator[FileBytes]:
    """Open a path or URL.

    Raises:
        InputError: it cannot be read.
    """
    if not is_local(url):
        with RemoteFile(url, WantedBytes()) as remote:
            yield FileBytes(remote)
        return
    try:
        local = open_regular(local_path(url))
    except (FileNotFoundError, NotADirectoryError):
        raise no_file(local_path(url)) from None
    except OSError as error:
        message = f"{url} cannot be read: {error.strerror}"
        raise InputUnreadable(message, "Check the path and its permissions.") from None
    with local:
        yield FileBytes(local)
