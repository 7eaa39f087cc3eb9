"""Detects from a file's own structure that it was cut short, which FFmpeg does not report."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...actors.media.headers import HeaderWatch
from ...actors.media.opening import open_bytes
from ...actors.media.structure import HEADER, NO_END, SEGMENT, Read, elements, reader_of

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet

_MOST_PARTS: Final = 1 << 16  #: The most tags or frames that are read; a file with more has an unknown end
_FLV_HEAD_BYTES: Final = 11
_IVF_HEAD_BYTES: Final = 12
_SYNC: Final = 0x47
#: For each packet length, the distance from a sync byte to the packet's end, modulo this length
_TRANSPORT_TAILS: Final = {188: 0, 192: 188, 204: 0}


@dataclass(slots=True)
class PacketEnds:
    """Facts about a file's end, collected from its packets."""

    first_bytes: int = 0  #: The offset of the first packet
    last_bytes: int = 0  #: The largest offset of a packet
    is_damaged: bool = False  #: Whether the demuxer marked the last packet as incomplete
    is_broken: bool = False  #: Whether the container could not be read to its end

    def see(self, packet: "Packet[Any]") -> None:
        """Take the next packet."""
        position = packet.pos or 0
        if position > self.last_bytes:
            self.last_bytes = position
            self.first_bytes = self.first_bytes or position
        self.is_damaged = packet.is_corrupt


def is_cut_short(source: str, container: "InputContainer", watch: HeaderWatch, seen: PacketEnds) -> bool:
    """Return whether a file is shorter than its format says.

    ``watch`` has the headers read while the file was opened; ``seen`` has the facts that the file's packets show.

    Raises InputError: the file cannot be read again; StorageFailed: the store does not answer.
    """
    muxer, size_bytes = container.format.name.split(",", maxsplit=1)[0], container.size
    if seen.is_broken or seen.is_damaged or size_bytes <= 0:
        return seen.is_broken or seen.is_damaged
    if muxer == "mov":
        return watch.ends_in_table(size_bytes) or _samples_end(container) > size_bytes
    if muxer == "matroska":
        end = _matroska_end(watch.read)
    elif muxer in _ENDS:
        with open_bytes(source) as file:
            end = _ENDS[muxer](reader_of(file), size_bytes, seen)
    else:
        return False
    return end is not None and end > size_bytes


def _samples_end(container: "InputContainer") -> int:
    """Return where the last sample of an mp4 or mov should end according to its tables; 0 if there are no samples."""
    last = [stream.index_entries[-1] for stream in container.streams if len(stream.index_entries)]
    return max((entry.pos + entry.size for entry in last), default=0)


def _matroska_end(read: Read) -> int | None:
    """Return where the Matroska segment ends; None if its length is unknown, as in live streams."""
    for part in elements(read, 0, None):
        if part.kind != HEADER:
            return part.end if part.kind == SEGMENT and part.end != NO_END else None
    return None


def _avi_end(read: Read, size_bytes: int, _: PacketEnds) -> int | None:
    position = end = 0
    while position + _IVF_HEAD_BYTES <= size_bytes:
        head = read(position, _IVF_HEAD_BYTES)
        if head[:4] != b"RIFF" or head[8:] not in (b"AVI ", b"AVIX"):
            break
        end = position + 8 + int.from_bytes(head[4:8], "little")
        position = end + end % 2
    return end


def _flv_end(read: Read, size_bytes: int, seen: PacketEnds) -> int | None:
    return _last_end(read, size_bytes, seen.last_bytes, lambda head: (_FLV_HEAD_BYTES + int.from_bytes(head[1:4]), 4))


def _ivf_end(read: Read, size_bytes: int, seen: PacketEnds) -> int | None:
    return _last_end(
        read, size_bytes, seen.last_bytes, lambda head: (_IVF_HEAD_BYTES + int.from_bytes(head[:4], "little"), 0)
    )


def _last_end(read: Read, size_bytes: int, position: int, lengths: Callable[[bytes], tuple[int, int]]) -> int | None:
    """Return where the last record of a chain ends; None if there are too many records.

    ``lengths`` maps the head of a record to the record's length and the gap after it.
    """
    end = position
    for _ in range(_MOST_PARTS):
        if position + _FLV_HEAD_BYTES > size_bytes:
            return end
        own, gap = lengths(read(position, _FLV_HEAD_BYTES))
        end, position = position + own, position + own + gap
    return None


def _transport_end(read: Read, size_bytes: int, seen: PacketEnds) -> int | None:
    """Return the end of the file's last packet, complete or not; None if the packet length is unknown."""
    head = read(seen.first_bytes, 3 * max(_TRANSPORT_TAILS))
    for length, tail in _TRANSPORT_TAILS.items():
        for offset in range(len(head) - 2 * length):
            if all(head[offset + n * length] == _SYNC for n in range(3)):
                beyond = (size_bytes - seen.first_bytes - offset - tail) % length
                return size_bytes + (length - beyond) % length
            if offset >= length:
                break
    return None


_ENDS: Final[dict[str, Callable[[Read, int, PacketEnds], int | None]]] = {
    "avi": _avi_end,
    "flv": _flv_end,
    "ivf": _ivf_end,
    "mpegts": _transport_end,
}
