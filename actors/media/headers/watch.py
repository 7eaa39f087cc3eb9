"""The bytes of a container's header, and the walks over its boxes (ISO/IEC 14496-12) or elements (RFC 8794)."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from ..fragments import FragmentWatch

Read: TypeAlias = Callable[[int, int], bytes]
"""Return what lies at a position, of a size, both in bytes; less where that is not known or the file ends."""

_MOST_BYTES: Final = 1 << 25
"""Of a larger header, what was read later is not kept."""
_MOST_PARTS: Final = 1 << 16
"""How many boxes or elements of one parent are looked at."""
_LONG_HEAD_BYTES: Final = 16
_UNKNOWN_LENGTH: Final = tuple((1 << 7 * size) - 1 for size in range(1, 9))


class Part(NamedTuple):
    """A box or an element: what it is called, and where it, its content and its end lie."""

    kind: bytes
    begin: int
    content: int
    end: int


class HeaderWatch(FragmentWatch):
    """Keeps what is read while a file is opened, besides what it notes of fragments: the header is among it."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[int, bytes] = {}
        self._order: list[int] = []
        self._bytes = 0

    def see(self, position: int, data: bytes) -> None:
        """Take what was read at ``position``."""
        super().see(position, data)
        if self._bytes + len(data) <= _MOST_BYTES and len(data) > len(self._kept.get(position, b"")):
            self._bytes += len(data)
            self._kept[position] = data

    def read(self, position: int, size: int) -> bytes:
        """Return what was read there; less where it was not."""
        if len(self._order) != len(self._kept):
            self._order = sorted(self._kept)
        starts, found = self._order, bytearray()
        while len(found) < size:
            at = position + len(found)
            place = bisect_right(starts, at) - 1
            data = self._kept[starts[place]][at - starts[place] :] if place >= 0 else b""
            if not data:
                break
            found += data[: size - len(found)]
        return bytes(found)


def boxes(read: Read, begin: int, end: int | None) -> Iterator[Part]:
    """Yield the boxes of mp4 or mov from ``begin`` to ``end``, None for the file's, as far as they are known."""
    for _ in range(_MOST_PARTS):
        head = read(begin, _LONG_HEAD_BYTES)
        length, content = int.from_bytes(head[:4]), begin + 8
        if length == 1:
            length, content = int.from_bytes(head[8:]), begin + _LONG_HEAD_BYTES
        if len(head) < 8 or length < content - begin or (end is not None and begin + length > end):  # noqa: PLR2004
            return
        yield Part(head[4:8], begin, content, begin + length)
        begin += length


def elements(read: Read, begin: int, end: int | None) -> Iterator[Part]:
    """Yield the elements of Matroska from ``begin`` to ``end``, as ``boxes`` does; one of unknown length is last."""
    for _ in range(_MOST_PARTS):
        head = read(begin, _LONG_HEAD_BYTES)
        id_bytes = 9 - head[0].bit_length() if head else 0
        size_bytes = 9 - head[id_bytes].bit_length() if id_bytes < len(head) else 0
        content = begin + id_bytes + size_bytes
        if not 1 <= id_bytes <= 4 or not 1 <= size_bytes <= 8 or (end is not None and begin >= end):  # noqa: PLR2004
            return
        length = int.from_bytes(head[id_bytes : id_bytes + size_bytes]) & (1 << 7 * size_bytes) - 1
        is_known = length != _UNKNOWN_LENGTH[size_bytes - 1]
        yield Part(head[:id_bytes], begin, content, content + length if is_known else 1 << 63)
        if not is_known:
            return
        begin = content + length


def first(parts: Iterator[Part], kind: bytes) -> Part | None:
    """Return the first part of a kind, None where there is none."""
    return next((part for part in parts if part.kind == kind), None)
