"""Reads a fragmented mp4 in part: the header, and the fragments of one range.

FFmpeg reads every fragment's table when it opens a file, so here FFmpeg sees the earlier fragments as one box to skip.
"""

import os
import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..seeking import AccessPoint
from ..structure import LONG, LONG_HEAD_BYTES, Readable

if TYPE_CHECKING:
    from array import array

FILLER_BYTES: Final = LONG_HEAD_BYTES
"""The size of the filler that replaces skipped fragments: the head of a box with a 64-bit length."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """The part of a file that a demuxer sees."""

    skipped_bytes: tuple[int, int]
    end_bytes: int | None  # None means the file's end
    first: AccessPoint  # the track's first packet in the part, or the packet where reading begins
    mark: bytes  # the track's ``decoder_mark``

    @property
    def span_bytes(self) -> tuple[int, int] | None:
        """The byte range after the skipped bytes; None if the range extends to the end of the file."""
        return None if self.end_bytes is None else (self.skipped_bytes[1], self.end_bytes)

    @property
    def filler(self) -> bytes:
        """The head of the box that replaces the skipped bytes; b"" if nothing is skipped."""
        begin, end = self.skipped_bytes
        return struct.pack(">I4sQ", LONG, b"skip", end - begin) if end > begin else b""


@dataclass(frozen=True, slots=True)
class Fragments:
    """The positions of a file's fragments, ascending. FFmpeg read the first ``head_bytes`` to know the tracks."""

    starts_bytes: "array[int]"
    head_bytes: int
    mark: bytes

    def part(self, span_bytes: tuple[int, int], first: AccessPoint) -> FilePart | None:
        """Return the part that has the head and the packets in ``span_bytes``; None if a part would save nothing."""
        starts = self.starts_bytes
        head = bisect_left(starts, self.head_bytes)
        if head == len(starts):
            return None
        begin = max(bisect_right(starts, span_bytes[0]) - 1, head)
        end = max(bisect_left(starts, span_bytes[1]), head)
        skipped = starts[head], starts[begin]
        if skipped[1] - skipped[0] < FILLER_BYTES:
            skipped = starts[head], starts[head]
        end_bytes = starts[end] if end < len(starts) else None
        return (
            None if skipped[0] == skipped[1] and end_bytes is None else FilePart(skipped, end_bytes, first, self.mark)
        )


class SplicedFile:
    """Reads ``part`` of a file. The bytes that the filler replaces can still be read at their positions."""

    def __init__(self, file: Readable, part: FilePart) -> None:
        self._file = file
        self._filler = part.filler
        self._filler_at = part.skipped_bytes[0]
        self._end = part.end_bytes

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes, b"" at the end of the part. Raises StorageFailed."""
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
        """Move to a position and return it. Raises StorageFailed."""
        if whence == os.SEEK_END and self._end is not None:
            return self._file.seek(self._end + offset)
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position of the next read, in bytes."""
        return self._file.tell()
