"""Reads header fields that FFmpeg does not report, and corrects fields that it writes wrongly, mostly durations.

Sources: ISO/IEC 14496-12 for mp4 and mov; RFC 9559 for Matroska and WebM. FFmpeg's muxer for Matroska and WebM also
counts samples that are never heard: those that an encoder adds at the start (CodecDelay) and at the end
(DiscardPadding).
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Final

from ..structure import (
    Change,
    Read,
    Section,
    boxes,
    content,
    descendant,
    elements,
    first,
    in_segment,
    tracks_of_movie,
)

_FIELDS_BYTES: Final = 32
"""The size of a header box up to the last field that is read."""
_MOST_EDITS_BYTES: Final = 20 << 16
_INFO: Final = b"\x15\x49\xa9\x66"
_DURATION: Final = b"\x44\x89"
_TAGS: Final = b"\x12\x54\xc3\x67"
_TAG: Final = b"\x73\x73"
_TARGETS: Final = b"\x63\xc0"
_TRACK_UID: Final = b"\x63\xc5"
_SIMPLE_TAG: Final = b"\x67\xc8"
_TAG_NAME: Final = b"\x45\xa3"
_TAG_STRING: Final = b"\x44\x87"


@dataclass(frozen=True, slots=True)
class TrackEnd:
    """The end of a track's edit list on the movie's clock, and the tick of that clock."""

    end_s: Fraction
    tick_s: Fraction


def track_end(read: Read, track_id: int) -> TrackEnd | None:
    """Return when the edit list of a track ends; None if it has no edit list, or the list has no durations."""
    movie = first(boxes(read, 0, None), b"moov")
    timescale = _field(read, descendant(read, movie, b"mvhd"), 12, 20)
    for track in tracks_of_movie(read) if timescale else ():
        if track_number(read, track) == track_id:
            edits = _edits(read, descendant(read, track, b"edts", b"elst"))
            return TrackEnd(Fraction(sum(edits), timescale), Fraction(1, timescale)) if edits and all(edits) else None
    return None


def has_several_descriptions(read: Read) -> bool:
    """Return whether a track has several sample descriptions because its coding changes (ISO/IEC 14496-12, 8.5.2)."""
    tables = (descendant(read, track, b"mdia", b"minf", b"stbl", b"stsd") for track in tracks_of_movie(read))
    return any(_field(read, table, 4, 4) > 1 for table in tables)


def track_number(read: Read, track: Section) -> int:
    """Return the ID that a ``trak`` box states, or 0."""
    return _field(read, descendant(read, track, b"tkhd"), 12, 20)


def media_duration(read: Read, ticks: int) -> Iterator[Change]:
    """Yield the change that corrects the first track's duration, which FFmpeg lengthens by the reorder delay."""
    header = descendant(read, next(tracks_of_movie(read), None), b"mdia", b"mdhd")
    if header is not None:
        place, width = (24, 8) if read(header.content, 1) == b"\1" else (16, 4)
        if int.from_bytes(read(header.content + place, width)) > ticks:
            yield header.content + place, ticks.to_bytes(width)


def _field(read: Read, box: Section | None, *places: int) -> int:
    """Return a 32-bit field of a box; ``places`` are the field's offsets in versions 0 and 1 of the box."""
    fields = b"" if box is None else content(read, box, _FIELDS_BYTES)
    place = places[fields[0] != 0] if fields else 0
    return int.from_bytes(fields[place : place + 4])


def _edits(read: Read, box: Section | None) -> tuple[int, ...]:
    """Return the duration of each edit of an edit list; 0 if the edit lasts as long as the file's fragments."""
    edits = b"" if box is None else content(read, box, _MOST_EDITS_BYTES)
    step, width = (20, 8) if edits[:1] != b"\0" else (12, 4)
    count = min(int.from_bytes(edits[4:8]), max(0, len(edits) - 8) // step)
    return tuple(int.from_bytes(edits[8 + n * step :][:width]) for n in range(count))


def film_durations(read: Read, ends_s: Mapping[int, Fraction]) -> Iterator[Change]:
    """Yield the changes that correct the durations of the film and of its tracks.

    ``ends_s`` has the end of each track by track number; the numbers begin at 1.
    """
    for part in in_segment(read) if ends_s else ():
        if part.kind == _INFO and (stated := first(_inside(read, part), _DURATION)) is not None:
            yield stated.content, struct.pack(">d", _milliseconds(max(ends_s.values())))
        elif part.kind == _TAGS:
            for tag in _inside(read, part, _TAG):
                yield from _track_duration(read, tag, ends_s)


def _track_duration(read: Read, tag: Section, ends_s: Mapping[int, Fraction]) -> Iterator[Change]:
    # In its bit-exact mode, FFmpeg's muxer gives each track its number, counted from 1, as its UID.
    uids = [uid for targets in _inside(read, tag, _TARGETS) for uid in _inside(read, targets, _TRACK_UID)]
    ends = [ends_s[number] for uid in uids if (number := int.from_bytes(_all(read, uid))) in ends_s]
    for simple in _inside(read, tag, _SIMPLE_TAG) if ends else ():
        name, value = (first(_inside(read, simple), kind) for kind in (_TAG_NAME, _TAG_STRING))
        if name is None or value is None or _all(read, name) != b"DURATION":
            continue
        text, length = _duration_words(ends[0]), value.end - value.content
        if len(text) <= length:
            yield value.content, text.ljust(length, b"\0")


def _inside(read: Read, part: Section, *kinds: bytes) -> Iterator[Section]:
    return (each for each in elements(read, part.content, part.end) if not kinds or each.kind in kinds)


def _all(read: Read, part: Section) -> bytes:
    return read(part.content, part.end - part.content)


def _duration_words(time_s: Fraction) -> bytes:
    minutes, milliseconds = divmod(_milliseconds(time_s), 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d}.{milliseconds % 1000:03d}000000".encode()


def _milliseconds(time_s: Fraction) -> int:
    return floor(time_s * 1000 + Fraction(1, 2))
