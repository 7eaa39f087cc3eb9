"""The boxes of mp4 and mov (ISO/IEC 14496-12, 4.2)."""

from collections.abc import Iterator
from typing import Final

from .sections import MOST_SECTIONS, NO_END, Read, Section, first

_HEAD_BYTES: Final = 8
LONG_HEAD_BYTES: Final = 16
"""Of a box with a length of 64 bits."""
LONG: Final = 1
"""What such a box states in place of its length."""


def box_length(head: bytes) -> int | None:
    """Return how long the box with this head says it is; None where the head is cut."""
    if len(head) < _HEAD_BYTES:
        return None
    length = int.from_bytes(head[:4])
    if length != LONG:
        return length
    return None if len(head) < LONG_HEAD_BYTES else int.from_bytes(head[_HEAD_BYTES:LONG_HEAD_BYTES])


def boxes(read: Read, begin: int, end: int | None) -> Iterator[Section]:
    """Yield the boxes from ``begin`` to ``end`` (None: the file's); one that is cut, or has no length, ends there."""
    limit = NO_END if end is None else end
    for _ in range(MOST_SECTIONS):
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
    """Return the first box of the first kind inside a box, the first of the second kind inside that, and so on."""
    for kind in kinds:
        part = None if part is None else first(boxes(read, part.content, part.end), kind)
    return part
