"""How long a Matroska or WebM file says that it and its tracks last: until the last thing that is seen or heard.

FFmpeg's muxer counts what is hidden too: samples that an encoder puts before the first one (CodecDelay), by which it
moves each packet of sound, and those at the end that are not to be heard (DiscardPadding). So the header would state
more than the film lasts. Elements and numbers are those of RFC 9559; the checksums of what changes are made again.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import BinaryIO, Final

_SEGMENT: Final = 0x18538067
_CLUSTER: Final = 0x1F43B675
_INFO: Final = 0x1549A966
_DURATION: Final = 0x4489
_TAGS: Final = 0x1254C367
_TAG: Final = 0x7373
_TARGETS: Final = 0x63C0
_TRACK_UID: Final = 0x63C5
_SIMPLE_TAG: Final = 0x67C8
_TAG_NAME: Final = 0x45A3
_TAG_STRING: Final = 0x4487
_CHECKSUM: Final = 0xBF
_HEAD_BYTES: Final = 12
"""An identifier takes 4 bytes at most, a size 8."""


def state_durations(path: Path, ends_s: Mapping[int, Fraction]) -> None:
    """Write when each track ends, by its number from 1 on, into a finished file of FFmpeg's muxer.

    Raises:
        OSError: the file cannot be read or written.
    """
    if not ends_s:
        return
    patches: dict[int, Callable[[bytearray], None]] = {
        _INFO: lambda info: _state_film(info, max(ends_s.values())),
        _TAGS: lambda tags: _state_tracks(tags, ends_s),
    }
    with path.open("r+b") as file:
        for kind, begin, size in _head(file):
            if kind in patches:
                file.seek(begin)
                content = bytearray(file.read(size))
                patches[kind](content)
                _state_checksum(content)
                file.seek(begin)
                file.write(content)


def _head(file: BinaryIO) -> Iterator[tuple[int, int, int]]:
    """Yield kind, place and size of the segment's elements ahead of its first cluster."""
    at = 0
    while True:
        file.seek(at)
        head = file.read(_HEAD_BYTES)
        if not head:
            return
        kind, size, length = _element(head, 0)
        if kind == _CLUSTER:
            return
        yield kind, at + length, size
        at += length if kind == _SEGMENT else length + size


def _element(data: bytes | bytearray, at: int) -> tuple[int, int, int]:
    """Return an element's identifier, the size of its content, and the length of both numbers."""
    width = 9 - data[at].bit_length()
    size_at = at + width
    size_width = 9 - data[size_at].bit_length()
    stated = int.from_bytes(data[size_at : size_at + size_width])
    return int.from_bytes(data[at:size_at]), stated & ((1 << 7 * size_width) - 1), width + size_width


def _inside(data: bytes | bytearray, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the kind of each element in a part of ``data``, and where its content begins and ends."""
    at = begin
    while at < end:
        kind, size, length = _element(data, at)
        yield kind, at + length, at + length + size
        at += length + size


def _state_film(info: bytearray, end_s: Fraction) -> None:
    for kind, begin, end in _inside(info, 0, len(info)):
        if kind == _DURATION:
            info[begin:end] = struct.pack(">d", _milliseconds(end_s))


def _state_tracks(tags: bytearray, ends_s: Mapping[int, Fraction]) -> None:
    for tag, begin, end in _inside(tags, 0, len(tags)):
        if tag != _TAG:
            continue
        # FFmpeg's muxer, asked for the same bytes each time, numbers tracks from 1 on.
        uids = [int.from_bytes(tags[a:b]) for a, b in _found(tags, begin, end, _TARGETS, _TRACK_UID)]
        ends = [ends_s[uid] for uid in uids if uid in ends_s]
        for kind, first, last in _inside(tags, begin, end):
            if kind == _SIMPLE_TAG and ends:
                _state_track(tags, first, last, ends[0])


def _found(data: bytearray, begin: int, end: int, outer: int, inner: int) -> Iterator[tuple[int, int]]:
    for kind, first, last in _inside(data, begin, end):
        if kind == outer:
            yield from ((a, b) for each, a, b in _inside(data, first, last) if each == inner)


def _state_track(tags: bytearray, begin: int, end: int, end_s: Fraction) -> None:
    """Replace the value of a tag, if it is the track's duration."""
    parts = {kind: (a, b) for kind, a, b in _inside(tags, begin, end)}
    name, value = parts.get(_TAG_NAME), parts.get(_TAG_STRING)
    if name is None or value is None or tags[slice(*name)] != b"DURATION":
        return
    minutes, milliseconds = divmod(_milliseconds(end_s), 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours:02d}:{minutes:02d}:{milliseconds // 1000:02d}.{milliseconds % 1000:03d}000000".encode()
    if len(text) <= value[1] - value[0]:
        tags[slice(*value)] = text.ljust(value[1] - value[0], b"\0")


def _milliseconds(time_s: Fraction) -> int:
    return floor(time_s * 1000 + Fraction(1, 2))


def _state_checksum(content: bytearray) -> None:
    """Make the checksum of a changed element again, where it begins with one."""
    kind, begin, end = next(_inside(content, 0, len(content)), (0, 0, 0))
    if kind == _CHECKSUM:
        content[begin:end] = zlib.crc32(content[end:]).to_bytes(end - begin, "little")
