"""Watches what FFmpeg reads while it opens a file: finds where fragments begin, and keeps the header's bytes."""

from array import array
from bisect import bisect_right
from typing import Final

from ..structure import LONG_HEAD_BYTES, box_length
from .fragments import Fragments

MOST_BOXES: Final = 1 << 20
"""The most boxes that are followed; enough for ten hours with a fragment of two boxes for each picture."""
_HEAD_BYTES: Final = 8
_TAIL_BYTES: Final = 4
"""The size of the length field that ends an ``mfra`` box, which is at the end of a file."""
_BEFORE_FRAGMENT: Final = (b"styp", b"sidx", b"emsg", b"prft")
_FRAGMENT: Final = b"moof"
_MOST_BYTES: Final = 1 << 26
"""The most bytes of a header that are kept."""


class FragmentWatch:
    """Follows the reads of a file that is being opened: first each box up to the end of the file, then packets.

    ``fragments`` returns None if FFmpeg skipped boxes, or if its buffer held the whole file when it read packets.
    """

    def __init__(self) -> None:
        self._starts = array("q")
        self._boxes = 0
        self._next_bytes: int | None = 0
        self._start_bytes: int | None = None
        """Where the boxes of the next fragment begin."""
        self._cut = b""
        """The part of a box's head read so far; the next read has the rest."""
        self._ends_in_table = False
        """Whether the last box seen is a fragment's table."""
        self._tail = 0, b""
        self._probed_bytes = 0
        """The position up to which packets were read; 0 before the first packet."""

    def see(self, position: int, data: bytes) -> None:
        """Process ``data``, which FFmpeg read at ``position``."""
        if len(data) == _TAIL_BYTES:
            self._tail = position, data
        before = self._next_bytes
        self._walk(position, data)
        if self._next_bytes != before:
            self._probed_bytes = 0  # FFmpeg is still reading the boxes
        elif self._probed_bytes or position < self._second_bytes:
            self._probed_bytes = max(position + len(data), self._probed_bytes)

    def fragments(self, size_bytes: int, mark: bytes) -> Fragments | None:
        """Return the fragments found in a file of this size; None if it is not certain that all were found."""
        is_known = self._probed_bytes and self._is_whole(size_bytes)
        return Fragments(self._starts, self._probed_bytes, mark) if is_known else None

    def ends_in_table(self, size_bytes: int) -> bool:
        """Return whether a file of this size ends inside a fragment's table, or after a table whose data is missing."""
        return self._ends_in_table and self._next_bytes is not None and self._next_bytes >= size_bytes

    @property
    def _second_bytes(self) -> int:
        """The position of the second fragment, which is after the first packets; 0 if there is none."""
        return self._starts[1] if len(self._starts) > 1 else 0

    def _is_whole(self, size_bytes: int) -> bool:
        """Return whether the last box seen ends the file, or is followed only by an index of fragments."""
        place, length = self._tail
        index_bytes = int.from_bytes(length) if place == size_bytes - _TAIL_BYTES else 0
        return self._next_bytes in (size_bytes, size_bytes - index_bytes)

    def _walk(self, position: int, data: bytes) -> None:
        if self._cut and self._next_bytes is not None and position == self._next_bytes + len(self._cut):
            position, data = self._next_bytes, self._cut + data
        self._cut = b""
        while self._next_bytes is not None and position <= self._next_bytes < position + len(data):
            head = data[self._next_bytes - position :][:LONG_HEAD_BYTES]
            length = box_length(head)
            if length is None:
                self._cut = head
                return
            self._note(self._next_bytes, head[4:_HEAD_BYTES], length)

    def _note(self, position: int, kind: bytes, length: int) -> None:
        if kind in (*_BEFORE_FRAGMENT, _FRAGMENT):
            self._start_bytes = position if self._start_bytes is None else self._start_bytes
        else:
            self._start_bytes = None
        if kind == _FRAGMENT and self._start_bytes is not None and self._start_bytes not in self._starts[-1:]:
            self._starts.append(self._start_bytes)
        self._ends_in_table = kind == _FRAGMENT
        self._boxes += 1
        is_sound = length >= _HEAD_BYTES and self._boxes <= MOST_BOXES
        self._next_bytes = position + length if is_sound else None


class HeaderWatch(FragmentWatch):
    """A watch that also keeps the bytes that are read while a file is opened, which include the header."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[int, bytes] = {}
        self._order: list[int] = []
        self._bytes = 0

    def see(self, position: int, data: bytes) -> None:
        """Process and keep ``data``, which FFmpeg read at ``position``."""
        super().see(position, data)
        if self._bytes + len(data) <= _MOST_BYTES and len(data) > len(self._kept.get(position, b"")):
            self._bytes += len(data)
            self._kept[position] = data

    def read(self, position: int, size: int) -> bytes:
        """Return the bytes that were read at ``position``; fewer if some of them were not read."""
        if len(self._order) != len(self._kept):
            self._order = sorted(self._kept)
        starts, found = self._order, bytearray()
        while len(found) < size:
            at = position + len(found)
            place = bisect_right(starts, at) - 1
            begin = at - starts[place]
            data = self._kept[starts[place]][begin : begin + size - len(found)] if place >= 0 else b""
            if not data:
                break
            found += data
        return bytes(found)
