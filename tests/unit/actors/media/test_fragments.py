"""The fragments that are found while a file is opened, and the part of the file that a demuxer sees."""

import os
import struct
from array import array
from dataclasses import dataclass, field
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.media.headers import FILLER_BYTES, FilePart, Fragments, FragmentWatch, SplicedFile, watch
from codecfleet.actors.media.seeking import AccessPoint

FIRST = AccessPoint(packet=0, pos_bytes=0, pts=0, dts=0)
HEAD, CHUNK = 200, 32


def box(kind: bytes, length: int, *, is_long: bool = False) -> bytes:
    """Return a box of this length, its head included."""
    head = struct.pack(">I4sQ", 1, kind, length) if is_long else struct.pack(">I4s", length, kind)
    return head.ljust(length, b"\x55")


def film(*lengths: int, styp: bool = False, tail: bytes = b"") -> tuple[bytes, list[int]]:
    """Return a fragmented file whose tables and data have these lengths, and where its fragments begin."""
    pieces = [box(b"ftyp", 20) + box(b"moov", HEAD - 20)]
    for number, length in enumerate(lengths):
        before = box(b"styp", 24) if styp else b""
        pieces.append(before + box(b"moof", 40) + box(b"mdat", length, is_long=number % 2 == 1))
    return b"".join(pieces) + tail, list(accumulate(map(len, pieces)))[:-1]


def opened(content: bytes, probed_bytes: int, tail: bytes = b"") -> FragmentWatch:
    """Return a watch that saw FFmpeg open a file: the head of each box, the file's end, and then packets."""
    watching = FragmentWatch()
    position = 0
    while position < len(content) - len(tail):
        watching.see(position, content[position : position + CHUNK])
        length = struct.unpack_from(">I", content, position)[0]
        position += struct.unpack_from(">Q", content, position + 8)[0] if length == 1 else length
    if tail:
        watching.see(len(content) - 4, content[-4:])
    for place in range(HEAD + 48, probed_bytes, CHUNK):
        watching.see(place, content[place : min(place + CHUNK, probed_bytes)])
    return watching


@pytest.mark.parametrize("styp", [False, True])
def test_fragments_are_found_as_the_file_is_opened(styp: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A fragment begins at the first box that belongs to it; the watch knows up to where packets were read."""
    content, starts = film(300, 301, 302, styp=styp)
    found = opened(content, 500).fragments(len(content), b"mark")
    assert found == Fragments(array("q", starts), 500, b"mark")


def test_an_index_at_the_end_need_not_be_looked_at() -> None:
    """FFmpeg stops before an ``mfra`` if it already has another index."""
    tail = box(b"mfra", 60)[:-4] + (60).to_bytes(4)
    content, starts = film(300, 301, 302, tail=tail)
    found = opened(content, 500, tail).fragments(len(content), b"")
    assert found is not None
    assert list(found.starts_bytes) == starts


@pytest.mark.parametrize("missing", ["end", "packets", "fragments"])
def test_what_is_not_certain_is_not_said(missing: str) -> None:
    """Fragments are unknown if the file's end was not read, if packets were not read, or if there are none."""
    content, _ = film(300, 301, 302)
    if missing == "fragments":
        content = box(b"ftyp", 20) + box(b"moov", 400) + box(b"mdat", 900)
    watching = opened(content, 0 if missing == "packets" else 500)
    assert watching.fragments(len(content) + (missing == "end"), b"") is None


@given(st.lists(st.binary(max_size=60), max_size=20), st.data())
def test_nothing_that_is_read_breaks_a_watch(chunks: list[bytes], data: st.DataObject) -> None:
    """A watch survives a damaged file, whatever the file states."""
    watching = FragmentWatch()
    for chunk in chunks:
        watching.see(data.draw(st.integers(0, 200)), chunk)
    found = watching.fragments(200, b"")
    assert found is None or list(found.starts_bytes) == sorted(set(found.starts_bytes))


def test_a_file_of_too_many_boxes_is_read_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of boxes kept per file is limited."""
    content, _ = film(*[300] * 5)
    assert opened(content, 500).fragments(len(content), b"")
    monkeypatch.setattr(watch, "MOST_BOXES", 6)
    assert opened(content, 500).fragments(len(content), b"") is None


starts = st.lists(st.integers(24, 1 << 40), min_size=2, max_size=12, unique=True).map(sorted)


@given(starts, st.data())
def test_a_part_has_the_head_and_the_span(starts: list[int], data: st.DataObject) -> None:
    """Only whole fragments after the probed bytes are left out, and no fragment of the span."""
    head_bytes = data.draw(st.integers(0, starts[-1]))
    begin = data.draw(st.integers(starts[0], starts[-1] + 99))
    end = data.draw(st.integers(begin + 1, starts[-1] + 100))
    part = Fragments(array("q", starts), head_bytes, b"").part((begin, end), FIRST)
    if part is None:
        return
    from_bytes, to_bytes = part.skipped_bytes
    assert {from_bytes, to_bytes} <= set(starts)
    assert from_bytes >= head_bytes
    assert to_bytes == from_bytes or (to_bytes - from_bytes >= FILLER_BYTES and to_bytes <= begin)
    assert part.end_bytes is None or (part.end_bytes in starts and part.end_bytes >= max(end, to_bytes))


def test_a_part_is_small() -> None:
    """A part of a hundred fragments holds only the head and the fragments of its span."""
    places = array("q", range(1000, 101_000, 1000))
    part = Fragments(places, 1500, b"mark").part((50_010, 52_500), FIRST)
    assert part == FilePart((2000, 50_000), 53_000, FIRST, b"mark")
    assert part.filler == struct.pack(">I4sQ", 1, b"skip", 48_000)


@dataclass
class FakeFile:
    """A file in memory that records which bytes are read."""

    content: bytes
    at: int = 0
    taken: set[int] = field(default_factory=set)

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes."""
        data = self.content[self.at : self.at + size]
        self.taken.update(range(self.at, self.at + len(data)))
        self.at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        self.at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: len(self.content)}[whence]
        return self.at

    def tell(self) -> int:
        """Return the place."""
        return self.at


def boxes_of(file: SplicedFile, chunk: int) -> list[tuple[int, bytes]]:
    """Walk over a file's boxes as a demuxer does; return their positions and kinds."""
    found, position, end = [], 0, file.seek(0, os.SEEK_END)
    while position < end:
        file.seek(position)
        head = b""
        while len(head) < FILLER_BYTES:
            head += file.read(min(chunk, FILLER_BYTES - len(head)))
        length, kind = struct.unpack_from(">I4s", head)
        found.append((position, kind))
        position += struct.unpack_from(">Q", head, 8)[0] if length == 1 else length
    return found


@pytest.mark.parametrize("chunk", [1, 5, 16])
def test_a_demuxer_sees_the_part_at_its_place(chunk: int) -> None:
    """Boxes keep their positions; the skipped bytes are one box, which is not read; the file ends with the part."""
    content, places = film(*[300] * 6)
    part = FilePart((places[1], places[3]), places[5], FIRST, b"")
    file = FakeFile(content)
    walked = boxes_of(SplicedFile(file, part), chunk)
    data = [place + 40 for place in places]
    assert walked == [
        (0, b"ftyp"),
        (20, b"moov"),
        (places[0], b"moof"),
        (data[0], b"mdat"),
        (places[1], b"skip"),
        *[pair for n in (3, 4) for pair in ((places[n], b"moof"), (data[n], b"mdat"))],
    ]
    assert not file.taken & set(range(places[1], places[3]))


def test_nothing_is_read_past_a_part() -> None:
    """The part ends the file; everything before its end is the file's own content."""
    content, places = film(300, 300)
    file = SplicedFile(FakeFile(content), FilePart((places[1], places[1]), places[1], FIRST, b""))
    assert file.seek(-4, os.SEEK_END) == places[1] - 4
    assert file.read(100) == content[places[1] - 4 : places[1]]
    assert file.read(100) == b""
