"""Reads the files of a track as one file."""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import accumulate
from os import SEEK_CUR, SEEK_END, SEEK_SET
from pathlib import Path
from typing import IO, Self


class JoinedFiles:
    """Reads files as if they were one, as a player appends segments to a header. Only one of them is open at a time."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._begins = [0, *accumulate(path.stat().st_size for path in paths)]
        self._at = 0
        self._number = -1
        self._file: IO[bytes] | None = None
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def tell(self) -> int:
        """Return the position of the next read, in bytes."""
        return self._at

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """Move to a position and return it."""
        self._at = offset + {SEEK_SET: 0, SEEK_CUR: self._at, SEEK_END: self._begins[-1]}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes, or all remaining bytes if ``size`` is negative; b"" at the end."""
        left = self._begins[-1] - self._at
        wanted, found = left if size < 0 else min(size, left), bytearray()
        while len(found) < wanted:
            data = self._read_one(wanted - len(found))
            if not data:
                break
            found += data
            self._at += len(data)
        return bytes(found)

    def _read_one(self, size: int) -> bytes:
        number = bisect_right(self._begins, self._at) - 1
        if number != self._number or self._file is None:
            self._opened.close()
            self._file = self._opened.enter_context(self._paths[number].open("rb"))
            self._number = number
        self._file.seek(self._at - self._begins[number])
        return self._file.read(size)
