"""The elements of Matroska and WebM (RFC 8794, RFC 9559)."""

import zlib
from collections.abc import Iterator
from typing import Final

from .sections import MOST_SECTIONS, NO_END, Read, Section, first

HEADER: Final = b"\x1a\x45\xdf\xa3"
SEGMENT: Final = b"\x18\x53\x80\x67"
CLUSTER: Final = b"\x1f\x43\xb6\x75"
_CHECKSUM: Final = b"\xbf"
_HEAD_BYTES: Final = 12
_ID_BYTES, _SIZE_BYTES = range(1, 5), range(1, 9)


def elements(read: Read, begin: int, end: int | None) -> Iterator[Section]:
    """Yield the elements from ``begin`` to ``end`` (None: the file's); one of unknown length ends at ``NO_END``."""
    for _ in range(MOST_SECTIONS):
        head = read(begin, _HEAD_BYTES) if end is None or begin < end else b""
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
    """Yield the elements of a file's segment ahead of its first cluster."""
    segment = first(elements(read, 0, None), SEGMENT)
    for part in () if segment is None else elements(read, segment.content, segment.end):
        if part.kind == CLUSTER:
            return
        yield part


def checksum(read: Read, part: Section) -> tuple[int, bytes] | None:
    """Return where an element's checksum is, and what it should be (RFC 8794, 11.3.1); None where it has none."""
    stated = next(elements(read, part.content, part.end), None)
    if stated is None or stated.kind != _CHECKSUM:
        return None
    return stated.content, zlib.crc32(read(stated.end, part.end - stated.end)).to_bytes(4, "little")
