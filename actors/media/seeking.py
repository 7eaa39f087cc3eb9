"""Seeks to a packet where decoding may begin, if a seek leads to exactly this packet."""

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import av.error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream


_SEEK_TO_PTS: Final = 0x4000000
"""``AVFMT_SEEK_TO_PTS``: the format seeks by presentation time."""
_SEEKS_BY_PLACE: Final = ("mpegts",)
"""Formats without an index. FFmpeg can read them from any position, but would search the whole file for a time."""


@dataclass(frozen=True, slots=True)
class AccessPoint:
    """A packet where decoding may begin; its position and times identify it (two packets may share a PTS)."""

    packet: int  # the packet's number in demux order
    pos_bytes: int
    pts: int | None
    dts: int | None
    is_unique: bool = True  # False if another packet of the track looks the same: only counting tells them apart
    is_discarded: bool = False  # whether an edit list hides the packet; another edit may show the same packet
    indexed: tuple[tuple[int, int], ...] = ()  # Matroska's index entries of this and the next packet: (ticks, position)

    @property
    def seek_ticks(self) -> int | None:
        """The timestamp to seek to, so that no demuxer arrives after the packet, whether it compares PTS or DTS."""
        return min((ticks for ticks in (self.pts, self.dts) if ticks is not None), default=None)

    @property
    def presented_ticks(self) -> tuple[int, ...]:
        """The timestamps that may lead straight to the packet if a demuxer seeks by PTS; empty without reordering.

        With reordering, a seek to ``seek_ticks`` lands one keyframe too early. FFmpeg's mov demuxer subtracts the
        reorder delay from the PTS, and subtracts it a second time if the file declares the GOP as open.
        """
        if self.pts is None or self.dts is None or self.pts <= self.dts:
            return ()
        return self.pts, 2 * self.pts - self.dts


def packets_from(
    entry: AccessPoint,
    container: "InputContainer",
    stream: "VideoStream",
    demux: "Callable[[], Iterator[Packet[VideoStream]]]",
) -> "Iterator[tuple[int, Packet[VideoStream]]] | None":
    """Seek; return the numbered packets from ``entry`` on, or None if seeking does not arrive there.

    ``container`` is newly opened; ``demux`` begins at the container's position and is called after every seek.
    """
    if entry.seek_ticks is None or not entry.is_unique:
        return None
    if container.format.name in _SEEKS_BY_PLACE and entry.pos_bytes >= 0:
        packets = _at_place(container, entry.pos_bytes, demux)
        first = next(packets, None)
        if first is not None and _is_same(first, entry):
            return enumerate(chain([first], packets), start=entry.packet)
    # Matroska's index has presentation times, although FFmpeg does not set the flag for that.
    by_pts = container.format.flags & _SEEK_TO_PTS or container.format.name.startswith("matroska")
    for ticks in entry.presented_ticks if by_pts else ():
        packets = _sought(container, stream, ticks, demux)
        first = next(packets, None)
        if first is not None and _is_same(first, entry):
            return enumerate(chain([first], packets), start=entry.packet)
    packets = _sought(container, stream, entry.seek_ticks, demux)
    for packet in packets:
        if _is_same(packet, entry):
            return enumerate(chain([packet], packets), start=entry.packet)
        if packet.dts is not None and entry.dts is not None and packet.dts > entry.dts:
            return None
    return None


def first_packets(
    packets: "Iterator[Packet[VideoStream]]", expected: AccessPoint | None
) -> "Iterator[tuple[int, Packet[VideoStream]]] | None":
    """Return a track's packets with their numbers; None if the first packet is not ``expected``."""
    first = next(packets, None)
    if first is None or (expected is not None and not _is_same(first, expected)):
        return None
    return enumerate(chain([first], packets))


def _at_place(
    container: "InputContainer", pos_bytes: int, demux: "Callable[[], Iterator[Packet[VideoStream]]]"
) -> "Iterator[Packet[VideoStream]]":
    try:
        container.seek(pos_bytes, unsupported_byte_offset=True)
    except (av.error.FFmpegError, OverflowError):
        return iter(())
    return demux()


def _sought(
    container: "InputContainer",
    stream: "VideoStream",
    ticks: int,
    demux: "Callable[[], Iterator[Packet[VideoStream]]]",
) -> "Iterator[Packet[VideoStream]]":
    try:
        container.seek(ticks, stream=stream)
    except (av.error.FFmpegError, OverflowError):  # a damaged file's times may exceed the range of a timestamp
        return iter(())
    return demux()


def _is_same(packet: "Packet[VideoStream]", entry: AccessPoint) -> bool:
    # After a seek, Matroska may not know the DTS of the first packets yet, raw MPEG video may count times differently,
    # and MPEG program streams may return part of a picture.
    knows_dts = packet.dts is not None and entry.dts is not None
    return (
        (packet.dts == entry.dts if knows_dts else packet.pts is not None)
        and (packet.pos, packet.pts) == (entry.pos_bytes, entry.pts)
        and packet.is_keyframe
        and packet.is_discard == entry.is_discarded
    )
