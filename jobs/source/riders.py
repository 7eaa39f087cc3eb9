"""Finds side data of a track's pictures, and when it starts: captions or HDR10+ may begin in mid-stream."""

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from ...actors.bitstream.picture_messages import Messages, PictureMessageReader
from ...actors.bitstream.riders import (
    BLOCK_ADDITION,
    HDR10_PLUS,
    HDR10_PLUS_WINDOWS,
    SIDE_DATA,
    RiderReader,
    registered_kinds,
)
from ...actors.decode.describe import Rider
from .index import MISSING, TrackIndex

if TYPE_CHECKING:
    from collections.abc import Mapping

    from av.packet import Packet, PacketSideData
    from av.video.stream import VideoStream


_WINDOWS_AT = 2
"""The offset, in FFmpeg's ``AVDynamicHDRPlus``, of the byte that states the number of windows."""


@dataclass(slots=True)
class _Span:
    """The first and last packet with one kind of side data, as numbers and as times in the source's own ticks."""

    first: int
    last: int
    first_pts: int | None
    last_pts: int | None


class Riders:
    """Collects the side data of a track's packets, in demux order."""

    def __init__(self, codec: str, extradata: bytes) -> None:
        self._codec = codec
        self._reader = RiderReader(codec, extradata)
        self._messages = PictureMessageReader(codec, extradata)
        self.held_messages: list[tuple[int, Messages]] = []  # as in ``StreamExtras``
        self._packets = 0
        self._spans: dict[str, _Span] = {}

    def ridden(self, index: TrackIndex) -> tuple[Rider, ...]:
        """Return the first and last time of each kind of side data, in the order of appearance."""
        found = [
            Rider(kind, *(_relative_s(index, packet) for packet in (span.first, span.last)))
            for kind, span in self._spans.items()
        ]
        return tuple(sorted(found, key=lambda rider: (rider.first_s or 0, rider.kind)))

    def see(self, packet: "Packet[VideoStream]", beside: "Mapping[str, PacketSideData]") -> None:
        """Take the next packet and its side data."""
        for kind, entry in beside.items():
            self._see_beside(kind, entry, packet.pts)
        kinds = self._reader.kinds(memoryview(packet)) if self._reader.reads else set()
        held = self._messages.held
        if HDR10_PLUS in kinds or (held and packet.is_keyframe):
            held = self._messages.messages(packet).get(HDR10_PLUS, ())
            if held and HDR10_PLUS not in kinds:
                self.held_messages.append((self._packets, held))
        kinds -= {HDR10_PLUS, HDR10_PLUS_WINDOWS}
        kinds.update(kind for message in held for kind in registered_kinds(message.payload))
        for kind in () if packet.is_discard else kinds:
            self._note(kind, packet.pts)
        self._packets += 1

    def _see_beside(self, data_type: str, entry: "PacketSideData", pts: int | None) -> None:
        if data_type == "new_extradata":
            self._reader = RiderReader(self._codec, bytes(entry))
            self._messages = PictureMessageReader(self._codec, bytes(entry), self._messages.held)
        kind = self._reader.added(bytes(entry)) if data_type == BLOCK_ADDITION else SIDE_DATA.get(data_type)
        if kind is not None:
            self._note(kind, pts)
        if kind == HDR10_PLUS and bytes(entry)[_WINDOWS_AT] > 1:
            self._note(HDR10_PLUS_WINDOWS, pts)

    def _note(self, kind: str, pts: int | None) -> None:
        span = self._spans.get(kind)
        if span is None:
            self._spans[kind] = _Span(self._packets, self._packets, pts, pts)
            return
        if pts is not None and span.first_pts is not None and pts < span.first_pts:
            span.first, span.first_pts = self._packets, pts
        if pts is None or span.last_pts is None or pts > span.last_pts:
            span.last, span.last_pts = self._packets, pts


def _relative_s(index: TrackIndex, packet: int) -> Fraction | None:
    """Return the time from the first picture to a packet's picture; None if the packet has no time."""
    ticks = int(index.pts[packet])
    return None if ticks == MISSING else (ticks - index.first_ticks) * index.time_base
