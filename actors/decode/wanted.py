"""The pictures of a range that the caller needs; a decoder may leave out all other pictures."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..bitstream.references import UnreferencedPackets
from ..media.timeline import TimeShift

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.packet import Packet
    from av.video.stream import VideoStream


@dataclass(frozen=True, slots=True)
class WantedPictures:
    """The wanted pictures, named by their times in a range's ticks."""

    ticks: frozenset[int]
    shifts: tuple[TimeShift, ...] = ()
    tick_divisor: int = 1
    by_packet: bool = False
    """Whether packets may be left out, which requires that each packet shows one whole picture at its own time."""

    def has(self, packet: int | None, pts: int | None) -> bool:
        """Return whether a picture is wanted; ``pts`` is its packet's PTS in the container's ticks."""
        return pts is not None and shifted_ticks(packet, pts, self.shifts, self.tick_divisor) in self.ticks

    def needed(
        self, codec: str, extradata: bytes, packets: "Iterator[tuple[int, Packet[VideoStream]]]"
    ) -> "Iterator[tuple[int, Packet[VideoStream]]]":
        """Yield the packets, except those of unwanted pictures to which no other picture refers."""
        unreferenced = UnreferencedPackets(codec, extradata)
        for number, packet in packets:
            if not unreferenced.holds(packet) or self.has(number, packet.pts):
                yield number, packet


def shifted_ticks(packet: int | None, pts: int, shifts: tuple[TimeShift, ...], tick_divisor: int) -> int:
    """Convert a time from a container's ticks to a range's ticks."""
    if shifts and packet is not None:
        pts += sum(shift.ticks for shift in shifts if shift.first_packet <= packet)
    return tick_divisor * pts
