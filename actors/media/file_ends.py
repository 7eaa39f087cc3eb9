"""What a file's own structure says of its end: whether it was cut short, and when a track of mp4 or mov is over.

FFmpeg reads a file that was cut short without a word, and does not say how long an edit list makes a track.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import av.error

from .fragments import FragmentWatch, box_length
from .opening import demux, open_bytes, open_source

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet

    from .fragments import Readable

_MOST_PARTS: Final = 1 << 16
"""How many boxes, chunks or tags are looked through; of a file with more it is not known how it ends."""
_HEAD_BYTES, _LONG_HEAD_BYTES = 8, 16
_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"
_FLV_HEAD_BYTES: Final = 11
_IVF_HEAD_BYTES: Final = 12
_SYNC: Final = 0x47
_TRANSPORT_TAILS: Final = {188: 0, 192: 188, 204: 0}
"""By the length of a transport packet, how far behind a sync byte it ends, modulo that length."""


_Span: TypeAlias = tuple[int, int]
"""Where something begins and ends in a file."""


@dataclass(frozen=True, slots=True)
class TrackEnd:
    """When the edit list of a track is over, on the movie's clock, and that clock's tick."""

    end_s: Fraction
    tick_s: Fraction


@dataclass(slots=True)
class PacketEnds:
    """What reading a file's packets shows of its end."""

    first_bytes: int = 0
    """Where the first packet begins that was seen."""
    last_bytes: int = 0
    """Where the one begins that lies last in the file."""
    is_damaged: bool = False
    """Whether the demuxer marks the last packet: it got less of it than the container states."""
    is_broken: bool = False
    """Whether the container could not be read to its end."""

    def see(self, packet: "Packet[Any]") -> None:
        """Take the next packet."""
        position = packet.pos or 0
        self.first_bytes = self.first_bytes or position
        self.last_bytes = max(self.last_bytes, position)
        self.is_damaged = packet.is_corrupt


def is_cut_short(source: str, container: "InputContainer", watch: FragmentWatch, seen: PacketEnds) -> bool:
    """Return whether a file ends before it says; ``watch`` saw it opened, ``seen`` its packets.

    False also where the format does not say.

    Raises:
        InputError: it cannot be read again.
        StorageFailed: its store does not answer.
    """
    muxer, size_bytes = container.format.name.split(",", maxsplit=1)[0], container.size
    if seen.is_broken or seen.is_damaged or size_bytes <= 0:
        return seen.is_broken or seen.is_damaged
    if muxer == "mov":
        return watch.ends_in_table(size_bytes) or _samples_end(container) > size_bytes
    if muxer not in _ENDS:
        return False
    with open_bytes(source) as file:
        end = _ENDS[muxer](file, size_bytes, seen)
    return end is not None and end > size_bytes


def is_whole(source: str) -> bool:
    """Return whether a file ends where it says, by reading every packet of every track; True where it does not say.

    Raises:
        InputError: it cannot be read.
        StorageFailed: its store does not answer.
    """
    watch, seen = FragmentWatch(), PacketEnds()
    with open_source(source, watch=watch) as container:
        try:
            for packet in demux(container):
                seen.see(packet)
        except av.error.FFmpegError:
            seen.is_broken = True
        return not is_cut_short(source, container, watch, seen)


def _samples_end(container: "InputContainer") -> int:
    """Return where in the file the last sample of mp4 or mov should end, by the tables; 0 where there is none."""
    last = [stream.index_entries[-1] for stream in container.streams if len(stream.index_entries)]
    return max((entry.pos + entry.size for entry in last), default=0)


def _matroska_end(file: "Readable", size_bytes: int, _: PacketEnds) -> int | None:
    """Return where the segment ends; None where its length is unknown, as of one that was streamed."""
    position = 0
    while position < size_bytes:
        file.seek(position)
        head = file.read(_LONG_HEAD_BYTES)
        if len(head) < _LONG_HEAD_BYTES or head[:4] not in (_EBML, _SEGMENT) or not head[4]:
            return None
        length = 9 - head[4].bit_length()
        value = int.from_bytes(head[4 : 4 + length]) & ~(1 << 7 * length)
        if value == (1 << 7 * length) - 1:
            return None
        position += 4 + length + value
        if head[:4] == _SEGMENT:
            return position
    return None


def _avi_end(file: "Readable", size_bytes: int, _: PacketEnds) -> int | None:
    """Return where the last of the file's RIFF chunks ends."""
    position = end = 0
    while position + _IVF_HEAD_BYTES <= size_bytes:
        file.seek(position)
        head = file.read(_IVF_HEAD_BYTES)
        if head[:4] != b"RIFF" or head[8:] not in (b"AVI ", b"AVIX"):
            break
        end = position + 8 + int.from_bytes(head[4:8], "little")
        position = end + end % 2
    return end


def _flv_end(file: "Readable", size_bytes: int, seen: PacketEnds) -> int | None:
    return _last_end(file, size_bytes, seen.last_bytes, lambda head: (_FLV_HEAD_BYTES + int.from_bytes(head[1:4]), 4))


def _ivf_end(file: "Readable", size_bytes: int, seen: PacketEnds) -> int | None:
    return _last_end(
        file, size_bytes, seen.last_bytes, lambda head: (_IVF_HEAD_BYTES + int.from_bytes(head[:4], "little"), 0)
    )


def _last_end(
    file: "Readable", size_bytes: int, position: int, lengths: Callable[[bytes], tuple[int, int]]
) -> int | None:
    """Return where the last of a chain of records ends; ``lengths`` has, by its head, its own and what follows it."""
    end = position
    for _ in range(_MOST_PARTS):
        if position + _FLV_HEAD_BYTES > size_bytes:
            return end
        file.seek(position)
        own, gap = lengths(file.read(_FLV_HEAD_BYTES))
        end, position = position + own, position + own + gap
    return None


def _transport_end(file: "Readable", size_bytes: int, seen: PacketEnds) -> int | None:
    """Return the end of the packet that the file ends in, or with; None where the packets' length is not known."""
    file.seek(seen.first_bytes)
    head = file.read(3 * max(_TRANSPORT_TAILS))
    for length, tail in _TRANSPORT_TAILS.items():
        for offset in range(len(head) - 2 * length):
            if all(head[offset + n * length] == _SYNC for n in range(3)):
                beyond = (size_bytes - seen.first_bytes - offset - tail) % length
                return size_bytes + (length - beyond) % length
            if offset >= length:
                break
    return None


_ENDS: Final[dict[str, Callable[["Readable", int, PacketEnds], int | None]]] = {
    "matroska": _matroska_end,
    "avi": _avi_end,
    "flv": _flv_end,
    "ivf": _ivf_end,
    "mpegts": _transport_end,
}


def track_end(source: str, container: "InputContainer", track_id: int) -> TrackEnd | None:
    """Return when the edit list of a track of mp4 or mov is over; None where there is none that says.

    Raises:
        InputError: the file cannot be read again.
        StorageFailed: its store does not answer.
    """
    with open_bytes(source) as file:
        return _track_end(file, container.size, track_id)


def _track_end(file: "Readable", size_bytes: int, track_id: int) -> TrackEnd | None:
    movie = _child(file, (0, size_bytes), b"moov")
    header = _child(file, movie, b"mvhd")
    timescale = _field(file, header, 12, 20)
    for kind, track in boxes(file, movie):
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
        file.seek(span[0])
        place, width = (24, 8) if file.read(1) == b"\1" else (16, 4)
        file.seek(span[0] + place)
        if int.from_bytes(file.read(width)) > ticks:
            file.seek(span[0] + place)
            file.write(ticks.to_bytes(width))


def _child(file: "Readable", span: _Span, wanted: bytes) -> _Span:
    """Return the content of the first box of a kind in a span; an empty span where there is none."""
    return next((content for kind, content in boxes(file, span) if kind == wanted), (0, 0))


def boxes(file: "Readable", span: _Span) -> Iterator[tuple[bytes, _Span]]:
    """Yield the kind of each box in a span, and where its content lies (ISO/IEC 14496-12, 4.2)."""
    begin, end = span
    for _ in range(_MOST_PARTS):
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


def _field(file: "Readable", span: _Span, *places: int) -> int:
    """Return the 32 bits that lie at the first of ``places`` in version 0 of a box, at the second in version 1."""
    file.seek(span[0])
    content = file.read(min(span[1] - span[0], 32))
    place = places[content[0] != 0] if content else 0
    return int.from_bytes(content[place : place + 4])


def _edits(file: "Readable", span: _Span) -> tuple[int, ...]:
    """Return how long each edit of an edit list lasts; 0 is as long as the fragments do."""
    file.seek(span[0])
    content = file.read(min(span[1] - span[0], 20 * _MOST_PARTS))
    step, width = (20, 8) if content[:1] != b"\0" else (12, 4)
    count = min(int.from_bytes(content[4:8]), max(0, len(content) - 8) // step)
    return tuple(int.from_bytes(content[8 + n * step :][:width]) for n in range(count))
