"""Fields of mp4 and mov boxes that FFmpeg does not report, or writes differently (ISO/IEC 14496-12)."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ..structure import Change, Read, Section, boxes, content, descendant, first, tracks_of_movie

_FIELDS_BYTES: Final = 32
"""The size of a header box up to the last field that is read."""
_MOST_EDITS_BYTES: Final = 20 << 16


@dataclass(frozen=True, slots=True)
class TrackEnd:
    """The end of a track's edit list on the movie's clock, and the tick of that clock."""

    end_s: Fraction
    tick_s: Fraction


def track_end(read: Read, track_id: int) -> TrackEnd | None:
    """Return when the edit list of a track ends; None if it has none, or one without durations."""
    movie = first(boxes(read, 0, None), b"moov")
    timescale = _field(read, descendant(read, movie, b"mvhd"), 12, 20)
    for track in tracks_of_movie(read) if timescale else ():
        if track_number(read, track) == track_id:
            edits = _edits(read, descendant(read, track, b"edts", b"elst"))
            return TrackEnd(Fraction(sum(edits), timescale), Fraction(1, timescale)) if edits and all(edits) else None
    return None


def has_several_descriptions(read: Read) -> bool:
    """Return whether a track has several sample descriptions because its coding changes (8.5.2)."""
    tables = (descendant(read, track, b"mdia", b"minf", b"stbl", b"stsd") for track in tracks_of_movie(read))
    return any(_field(read, table, 4, 4) > 1 for table in tables)


def track_number(read: Read, track: Section) -> int:
    """Return the ID that a ``trak`` box states; 0 if it states none."""
    return _field(read, descendant(read, track, b"tkhd"), 12, 20)


def media_duration(read: Read, ticks: int) -> Iterator[Change]:
    """Yield the change that corrects the first track's duration, which FFmpeg lengthens by the reorder delay."""
    header = descendant(read, next(tracks_of_movie(read), None), b"mdia", b"mdhd")
    if header is not None:
        place, width = (24, 8) if read(header.content, 1) == b"\1" else (16, 4)
        if int.from_bytes(read(header.content + place, width)) > ticks:
            yield header.content + place, ticks.to_bytes(width)


def _field(read: Read, box: Section | None, *places: int) -> int:
    """Return the 32-bit field that is at the first of ``places`` in version 0 of a box, at the second in version 1."""
    fields = b"" if box is None else content(read, box, _FIELDS_BYTES)
    place = places[fields[0] != 0] if fields else 0
    return int.from_bytes(fields[place : place + 4])


def _edits(read: Read, box: Section | None) -> tuple[int, ...]:
    """Return the duration of each edit of an edit list; 0 means the duration of the fragments."""
    edits = b"" if box is None else content(read, box, _MOST_EDITS_BYTES)
    step, width = (20, 8) if edits[:1] != b"\0" else (12, 4)
    count = min(int.from_bytes(edits[4:8]), max(0, len(edits) - 8) // step)
    return tuple(int.from_bytes(edits[8 + n * step :][:width]) for n in range(count))
