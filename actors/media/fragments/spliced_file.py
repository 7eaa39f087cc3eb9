"""A remote file of which a demuxer sees only a part: its head, a box to skip, and one range."""

import os

from ..structure import Readable
from .part import FILLER_BYTES, FilePart


class SplicedFile:
    """Reads ``part`` of a file. The bytes after the filler's head can still be read by their position."""

    def __init__(self, file: Readable, part: FilePart) -> None:
        self._file = file
        self._filler = part.filler
        self._filler_at = part.skipped_bytes[0]
        self._end = part.end_bytes

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes, nothing at the end of the part. Raises StorageFailed."""
        position = self._file.tell()
        if self._end is not None:
            size = max(0, min(size, self._end - position))
        if not size or not self._filler or position >= self._filler_at + FILLER_BYTES:
            return self._file.read(size) if size else b""
        if position < self._filler_at:
            return self._file.read(min(size, self._filler_at - position))
        begin = position - self._filler_at
        head = self._filler[begin : begin + size]
        self._file.seek(position + len(head))
        return head

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place; return it. Raises StorageFailed."""
        if whence == os.SEEK_END and self._end is not None:
            return self._file.seek(self._end + offset)
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the place."""
        return self._file.tell()
