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
        """Yield the packets up to the last wanted picture's; all packets, if times do not identify packets.

        Packets of unwanted pictures to which no other picture refers are left out.
        """
        if not self.by_packet:
            yield from packets
            return
        unreferenced = UnreferencedPackets(codec, extradata)
        left: set[int | None] = set(self.ticks)
        for number, packet in packets:
            ticks = packet.pts
            if ticks is not None:
                ticks = shifted_ticks(number, ticks, self.shifts, self.tick_divisor)
            if ticks in self.ticks:
                unreferenced.pass_over(packet)
                left.discard(ticks)
            elif unreferenced.holds(packet):
                continue
            yield number, packet
            if not left:
                return


def shifted_ticks(packet: int | None, pts: int, shifts: tuple[TimeShift, ...], tick_divisor: int) -> int:
    """Convert a time from a container's ticks to a range's ticks."""
    if shifts and packet is not None:
        pts += sum(shift.ticks for shift in shifts if shift.first_packet <= packet)
    return tick_divisor * pts
