"""What the boxes of mp4 and mov state that FFmpeg does not say, or writes otherwise (ISO/IEC 14496-12)."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final, TypeAlias

from .spliced_file import Readable
from .watch import box_length

_MOST_BOXES: Final = 1 << 16
"""How many boxes of one span are looked through."""
_HEAD_BYTES, _LONG_HEAD_BYTES = 8, 16
_Span: TypeAlias = tuple[int, int]
"""Where something begins and ends in a file."""
_NOWHERE: Final = 0, 0


@dataclass(frozen=True, slots=True)
class TrackEnd:
    """When the edit list of a track is over, on the movie's clock, and that clock's tick."""

    end_s: Fraction
    tick_s: Fraction


def track_end(file: Readable, size_bytes: int, track_id: int) -> TrackEnd | None:
    """Return when the edit list of a track is over; None where there is none that says."""
    movie = _child(file, (0, size_bytes), b"moov")
    header = _child(file, movie, b"mvhd")
    timescale = _field(file, header, 12, 20)
    for kind, track in boxes_in(file, movie):
        if kind == b"trak" and _field(file, _child(file, track, b"tkhd"), 12, 20) == track_id and timescale:
            edits = _edits(file, _child(file, _child(file, track, b"edts"), b"elst"))
            return TrackEnd(Fraction(sum(edits), timescale), Fraction(1, timescale)) if edits and all(edits) else None
    return None


def state_media_duration(path: Path, ticks: int) -> None:
    """Write into the header of the first track of mp4 or mov how long its samples last together.

    FFmpeg's muxer adds to that where every picture is decoded before it is shown.

    Raises:
        OSError: the file cannot be read or written.
    """
    with path.open("r+b") as file:
        span = 0, path.stat().st_size
        for kind in (b"moov", b"trak", b"mdia", b"mdhd"):
            span = _child(file, span, kind)
        if span == _NOWHERE:
            return
        file.seek(span[0])
        place, width = (24, 8) if file.read(1) == b"\1" else (16, 4)
        file.seek(span[0] + place)
        if int.from_bytes(file.read(width)) > ticks:
            file.seek(span[0] + place)
            file.write(ticks.to_bytes(width))


def _child(file: Readable, span: _Span, wanted: bytes) -> _Span:
    """Return the content of the first box of a kind in a span; an empty span where there is none."""
    return next((content for kind, content in boxes_in(file, span) if kind == wanted), _NOWHERE)


def boxes_in(file: Readable, span: _Span) -> Iterator[tuple[bytes, _Span]]:
    """Yield the kind of each box in a span, and where its content lies (ISO/IEC 14496-12, 4.2)."""
    begin, end = span
    for _ in range(_MOST_BOXES):
        if begin + _HEAD_BYTES > end:
            return
        file.seek(begin)
        head = file.read(_LONG_HEAD_BYTES)
        length = box_length(head)
        length = end - begin if length == 0 else length
        if length is None or length < _HEAD_BYTES:
            return
        content = begin + (_LONG_HEAD_BYTES if head[:4] == b"\0\0\0\1" else _HEAD_BYTES)
        yield head[4:8], (content, min(begin + length, end))
        begin += length


def _field(file: Readable, span: _Span, *places: int) -> int:
    """Return the 32 bits that lie at the first of ``places`` in version 0 of a box, at the second in version 1."""
    file.seek(span[0])
    content = file.read(min(span[1] - span[0], 32))
    place = places[content[0] != 0] if content else 0
    return int.from_bytes(content[place : place + 4])


def _edits(file: Readable, span: _Span) -> tuple[int, ...]:
    """Return how long each edit of an edit list lasts; 0 is as long as the fragments do."""
    file.seek(span[0])
    content = file.read(min(span[1] - span[0], 20 * _MOST_BOXES))
    step, width = (20, 8) if content[:1] != b"\0" else (12, 4)
    count = min(int.from_bytes(content[4:8]), max(0, len(content) - 8) // step)
    return tuple(int.from_bytes(content[8 + n * step :][:width]) for n in range(count))
