"""Corrects the durations that FFmpeg's muxer writes into Matroska and WebM files (elements of RFC 9559).

The muxer also counts samples that are never heard: an encoder's first ones (CodecDelay), and the last (DiscardPadding).
"""

import struct
from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import floor
from typing import Final

from ..structure import Change, Read, Section, elements, first, in_segment

_INFO: Final = b"\x15\x49\xa9\x66"
_DURATION: Final = b"\x44\x89"
_TAGS: Final = b"\x12\x54\xc3\x67"
_TAG: Final = b"\x73\x73"
_TARGETS: Final = b"\x63\xc0"
_TRACK_UID: Final = b"\x63\xc5"
_SIMPLE_TAG: Final = b"\x67\xc8"
_TAG_NAME: Final = b"\x45\xa3"
_TAG_STRING: Final = b"\x44\x87"


def film_durations(read: Read, ends_s: Mapping[int, Fraction]) -> Iterator[Change]:
    """Yield the changes that correct the durations of the film and its tracks; ``ends_s`` is by number, from 1 on."""
    for part in in_segment(read) if ends_s else ():
        if part.kind == _INFO and (stated := first(_inside(read, part), _DURATION)) is not None:
            yield stated.content, struct.pack(">d", _milliseconds(max(ends_s.values())))
        elif part.kind == _TAGS:
            for tag in _inside(read, part, _TAG):
                yield from _track_duration(read, tag, ends_s)


def _track_duration(read: Read, tag: Section, ends_s: Mapping[int, Fraction]) -> Iterator[Change]:
    # FFmpeg's muxer, asked for the same bytes each time, numbers tracks from 1 on.
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
