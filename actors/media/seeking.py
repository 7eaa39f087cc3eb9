"""Finding a packet of a track again, where decoding may begin: by seeking if that leads to it beyond doubt."""

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import av.error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from av.container import InputContainer
    from av.packet import Packet
    from av.video.stream import VideoStream

__all__ = ["AccessPoint", "packets_from"]

_SEEK_TO_PTS: Final = 0x4000000
"""FFmpeg's flag of formats that seek by presentation time (``AVFMT_SEEK_TO_PTS``)."""


@dataclass(frozen=True, slots=True)
class AccessPoint:
    """A packet where decoding may begin: its place in demux order, and how to find it again.

    Its place and its times identify it (two packets may share a PTS, and an edit list may read one sample twice).
    ``is_unique`` is False where another packet of the track looks the same: then it is found by counting alone.
    ``is_discarded`` is whether an edit list hides it: where a file's own index lies, a seek may come by another edit.
    """

    packet: int
    pos_bytes: int
    pts: int | None
    dts: int | None
    is_unique: bool = True
    is_discarded: bool = False

    @property
    def seek_ticks(self) -> int | None:
        """The timestamp to seek to: the demuxer must not land behind the packet, whichever clock it looks at."""
        return min((ticks for ticks in (self.pts, self.dts) if ticks is not None), default=None)

    @property
    def presented_ticks(self) -> tuple[int, ...]:
        """The timestamps that may lead straight to it where a demuxer seeks by PTS; none if it has no reordering.

        ``seek_ticks`` leads one keyframe too far back there: FFmpeg's mov demuxer takes the reordering off a PTS, and
        once more before it enters an open GOP that the file declares as such.
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
    """Seek; return the packets from ``entry`` on with their numbers, or None where that does not lead to it.

    Args:
        entry: the packet to begin with.
        container: the source, just opened.
        stream: its track.
        demux: yields the track's packets from where the container stands; called after every seek.
    """
    if entry.seek_ticks is None or not entry.is_unique:
        return None
    for ticks in entry.presented_ticks if _seeks_by_pts(container) else ():
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


def _seeks_by_pts(container: "InputContainer") -> bool:
    # Matroska's index has presentation times, though FFmpeg does not say so.
    return bool(container.format.flags & _SEEK_TO_PTS) or container.format.name.startswith("matroska")


def _sought(
    container: "InputContainer",
    stream: "VideoStream",
    ticks: int,
    demux: "Callable[[], Iterator[Packet[VideoStream]]]",
) -> "Iterator[Packet[VideoStream]]":
    try:
        container.seek(ticks, stream=stream)
    except (av.error.FFmpegError, OverflowError):  # a damaged file's times may be more than a timestamp can hold
        return iter(())
    return demux()


def _is_same(packet: "Packet[VideoStream]", entry: AccessPoint) -> bool:
    # After a seek, Matroska may not know the DTS of the first packets yet, raw MPEG video may count other times, and
    # MPEG program streams may give part of a picture.
    knows_dts = packet.dts is not None and entry.dts is not None
    return (
        (packet.dts == entry.dts if knows_dts else packet.pts is not None)
        and (packet.pos, packet.pts) == (entry.pos_bytes, entry.pts)
        and packet.is_keyframe
        and packet.is_discard == entry.is_discarded
    )
