"""Walks over boxes and elements, and changes to finished files."""

import zlib
from io import BytesIO
from pathlib import Path

from codecfleet.actors.media.structure import NO_END, boxes, change_finished, elements, reader_of

SEGMENT, INFO, VOID, CLUSTER = b"\x18\x53\x80\x67", b"\x15\x49\xa9\x66", b"\xec", b"\x1f\x43\xb6\x75"


def kinds_of(data: bytes, end: int | None = None) -> list[tuple[bytes, int, int]]:
    """Return kind, content and end of each box."""
    return [(box.kind, box.content, box.end) for box in boxes(reader_of(BytesIO(data)), 0, end)]


def test_boxes_with_short_long_and_no_lengths() -> None:
    """A length takes 32 or 64 bits; a box without a length is the last, and ends with its parent."""
    data = b"\0\0\0\x0aftypab" + b"\0\0\0\1free" + (17).to_bytes(8) + b"x" + b"\0\0\0\0mdat" + b"yyyy"
    assert kinds_of(data, len(data)) == [(b"ftyp", 8, 10), (b"free", 26, 27), (b"mdat", 35, 39)]
    assert kinds_of(data)[-1] == (b"mdat", 35, NO_END)


def test_boxes_that_are_cut_or_damaged() -> None:
    """A box that is too long for its parent is shortened; a length that is too small ends the walk."""
    assert kinds_of(b"\0\0\0\x40moovabcd", 12) == [(b"moov", 8, 12)]
    assert kinds_of(b"\0\0\0\4moov\0\0\0\x08free") == []
    assert kinds_of(b"\0\0\0\1moov\0\0") == []


def test_elements_of_known_and_unknown_length() -> None:
    """An element of unknown length is the last one; a truncated head is no element."""
    data = VOID + b"\x81x" + VOID + b"\x40\x02yz" + SEGMENT + b"\xff" + VOID + b"\x80"
    found = [(part.kind, part.content, part.end) for part in elements(reader_of(BytesIO(data)), 0, None)]
    assert found == [(VOID, 2, 3), (VOID, 6, 8), (SEGMENT, 13, NO_END)]
    assert list(elements(reader_of(BytesIO(SEGMENT + b"\x01\0\0")), 0, None)) == []


def test_a_changed_element_gets_its_checksum_again(tmp_path: Path) -> None:
    """A finished file is changed in place, and the checksum of the changed element is updated."""
    path, inside = tmp_path / "film.mkv", VOID + b"\x84abcd"
    info = INFO + b"\x8c" + b"\xbf\x84\0\0\0\0" + inside
    other = INFO + b"\x8c" + b"\xbf\x84\1\2\3\4" + inside
    path.write_bytes(SEGMENT + b"\xff" + info + other + CLUSTER + b"\x80")
    at = path.read_bytes().index(b"abcd")
    change_finished(path, [lambda _: [(at, b"wxyz")]])
    changed = VOID + b"\x84wxyz"
    stated = zlib.crc32(changed).to_bytes(4, "little")
    assert path.read_bytes() == (
        SEGMENT + b"\xff" + INFO + b"\x8c" + b"\xbf\x84" + stated + changed + other + CLUSTER + b"\x80"
    )
