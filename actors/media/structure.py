"""The boxes of mp4 (ISO/IEC 14496-12, 4.2) and elements of Matroska (RFC 8794, RFC 9559), and changes to them."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

Read: TypeAlias = Callable[[int, int], bytes]
"""Takes an offset and a size, and returns the bytes; fewer if some are not known or the file ends."""

_MOST_SECTIONS: Final = 1 << 16
"""How many boxes or elements of one parent are examined."""
NO_END: Final = 1 << 63
"""The end of a part without a stated length, if the end of the file is not known."""
_HEAD_BYTES: Final = 8
LONG_HEAD_BYTES: Final = 16
"""The size of the head of a box with a 64-bit length."""
LONG: Final = 1
"""The 32-bit length which says that a 64-bit length follows."""
HEADER: Final = b"\x1a\x45\xdf\xa3"
SEGMENT: Final = b"\x18\x53\x80\x67"
CLUSTER: Final = b"\x1f\x43\xb6\x75"
_CHECKSUM: Final = b"\xbf"
_ELEMENT_HEAD_BYTES: Final = 12
_ID_BYTES, _SIZE_BYTES = range(1, 5), range(1, 9)
Change: TypeAlias = tuple[int, bytes]
"""A position in the file, and the bytes to write there."""


class Section(NamedTuple):
    """A box or an element: its name, and the positions of its beginning, content and end."""

    kind: bytes
    begin: int
    content: int
    end: int


class Readable(Protocol):
    """A file as FFmpeg reads it."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, b"" at the end of the file."""

    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Move to a position and return it."""

    def tell(self) -> int:
        """Return the position of the next read, in bytes."""


def reader_of(file: Readable) -> Read:
    """Return a function that reads an open file."""

    def read(position: int, size: int) -> bytes:
        file.seek(position)
        return file.read(size)

    return read


def first(parts: Iterable[Section], kind: bytes) -> Section | None:
    """Return the first of these parts with this name, or None."""
    return next((part for part in parts if part.kind == kind), None)


def content(read: Read, part: Section, most: int) -> bytes:
    """Return the content of a part, at most ``most`` bytes."""
    return read(part.content, min(part.end - part.content, most))


def box_length(head: bytes) -> int | None:
    """Return the length that the box with this head states; None if the head is truncated."""
    if len(head) < _HEAD_BYTES:
        return None
    length = int.from_bytes(head[:4])
    if length != LONG:
        return length
    return None if len(head) < LONG_HEAD_BYTES else int.from_bytes(head[_HEAD_BYTES:LONG_HEAD_BYTES])


def boxes(read: Read, begin: int, end: int | None) -> Iterator[Section]:
    """Yield the boxes from ``begin`` to ``end`` (None: the file's end); a box without a length extends to ``end``."""
    limit = NO_END if end is None else end
    for _ in range(_MOST_SECTIONS):
        head = read(begin, LONG_HEAD_BYTES) if begin + _HEAD_BYTES <= limit else b""
        length = box_length(head)
        length = limit - begin if length == 0 else length
        if length is None or length < _HEAD_BYTES:
            return
        is_long = int.from_bytes(head[:4]) == LONG
        inside = begin + (LONG_HEAD_BYTES if is_long else _HEAD_BYTES)
        yield Section(head[4:8], begin, inside, min(begin + length, limit))
        begin += length


def tracks_of_movie(read: Read) -> Iterator[Section]:
    """Yield the ``trak`` boxes of a file."""
    movie = first(boxes(read, 0, None), b"moov")
    if movie is not None:
        yield from (part for part in boxes(read, movie.content, movie.end) if part.kind == b"trak")


def descendant(read: Read, part: Section | None, *kinds: bytes) -> Section | None:
    """Return the box at the end of a path: each of ``kinds`` names the first box of that kind in the previous box."""
    for kind in kinds:
        part = None if part is None else first(boxes(read, part.content, part.end), kind)
    return part


def elements(read: Read, begin: int, end: int | None) -> Iterator[Section]:
    """Yield the elements from ``begin`` to ``end`` (None: the file's end); an unknown length means ``NO_END``."""
    for _ in range(_MOST_SECTIONS):
        head = read(begin, _ELEMENT_HEAD_BYTES) if end is None or begin < end else b""
        id_bytes = 9 - head[0].bit_length() if head else 0
        size_bytes = 9 - head[id_bytes].bit_length() if id_bytes < len(head) else 0
        inside = begin + id_bytes + size_bytes
        if id_bytes not in _ID_BYTES or size_bytes not in _SIZE_BYTES or len(head) < id_bytes + size_bytes:
            return
        unknown = (1 << 7 * size_bytes) - 1
        length = int.from_bytes(head[id_bytes : id_bytes + size_bytes]) & unknown
        if length == unknown:
            yield Section(head[:id_bytes], begin, inside, NO_END)
            return
        yield Section(head[:id_bytes], begin, inside, inside + length)
        begin = inside + length


def in_segment(read: Read) -> Iterator[Section]:
    """Yield the elements of a file's segment before its first cluster."""
    segment = first(elements(read, 0, None), SEGMENT)
    for part in () if segment is None else elements(read, segment.content, segment.end):
        if part.kind == CLUSTER:
            return
        yield part


def checksum(read: Read, part: Section) -> tuple[int, bytes] | None:
    """Return the position and correct value of an element's checksum (RFC 8794, 11.3.1), or None."""
    stated = next(elements(read, part.content, part.end), None)
    if stated is None or stated.kind != _CHECKSUM:
        return None
    return stated.content, zlib.crc32(read(stated.end, part.end - stated.end)).to_bytes(4, "little")


def change_finished(path: Path, changes: Iterable[Callable[[Read], Iterable[Change]]]) -> None:
    """Make changes to a finished file, and update Matroska's checksums.

    Each function in ``changes`` reads the unchanged file.
    """
    finds = tuple(changes)
    if not finds:
        return
    with path.open("r+b") as file:
        read = reader_of(file)
        changed = [change for find in finds for change in find(read)]
        for place, data in changed:
            file.seek(place)
            file.write(data)
        touched = (part for part in in_segment(read) if any(part.begin <= place < part.end for place, _ in changed))
        for place, data in filter(None, [checksum(read, part) for part in touched]):
            file.seek(place)
            file.write(data)
