"""Counts every packet of a source in one pass, independently of its header."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import av.error

from ...actors.bitstream.access_points import nal_units
from ...actors.media.av_stream import extradata
from ...actors.media.headers import HeaderWatch
from ...actors.media.opening import demux, open_source
from ..source.file_ends import PacketEnds, is_cut_short
from ..source.sound_life import SoundFormat, SoundLives

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Stream


_MICROSECOND = Fraction(1, 1_000_000)
_SPS_TYPES = {"h264": 7, "hevc": 33}


@dataclass(slots=True)
class PacketTally:
    """Numbers counted over the packets of one track."""

    header_frames: int = 0  # how many packets the header promises; 0 if it promises no number
    packets: int = 0
    size_bytes: int = 0
    first_s: Fraction | None = None  # the earliest time of a packet, on the source's clock
    end_s: Fraction | None = None
    side_data: set[str] = field(default_factory=set)  # kinds, by FFmpeg's names
    sequence_changes: int = 0  # how many times the sequence parameter sets changed at an H.264 or HEVC keyframe
    formats: tuple[SoundFormat, ...] = ()  # the formats of the track's sound, in order; () if the format never changes
    _sequence: frozenset[bytes] = frozenset()

    @property
    def duration_s(self) -> Fraction | None:
        """The time from the first packet to the end of the last packet."""
        return None if self.first_s is None or self.end_s is None else self.end_s - self.first_s

    def note_sequence(self, sets: frozenset[bytes]) -> None:
        """Take the sequence parameter sets in a packet; most packets have none."""
        if sets and self._sequence and sets != self._sequence:
            self.sequence_changes += 1
        self._sequence = sets or self._sequence


@dataclass(slots=True)
class SourceTally:
    """Numbers counted over all packets, and the duration in the header."""

    header_duration_s: Fraction | None = None
    size_bytes: int = 0
    broken: str | None = None  # why reading stopped before the end; None if the end was reached
    is_cut_short: bool = False  # whether the file is shorter than its own structure says
    tracks: dict[int, PacketTally] = field(default_factory=dict)


def tally_packets(source: str) -> SourceTally:
    """Read every packet of ``source`` once. Raises InputError if the source cannot be opened."""
    watch, ends = HeaderWatch(), PacketEnds()
    with open_source(source, watch=watch) as container:
        duration = container.duration
        found = SourceTally(
            header_duration_s=None if duration is None else duration * _MICROSECOND, size_bytes=max(0, container.size)
        )
        for stream in container.streams:
            found.tracks[stream.index] = PacketTally(header_frames=stream.frames)
        _read(container, found, ends)
        found.is_cut_short = is_cut_short(source, container, watch, ends)
        return found


def _read(container: "InputContainer", found: SourceTally, ends: PacketEnds) -> None:
    lives = SoundLives(container, all_packets=True)
    headers = {stream.index: extradata(stream) for stream in container.streams}
    try:
        for packet in demux(container):
            tally = found.tracks.setdefault(packet.stream_index, PacketTally())
            ends.see(packet)
            _count(tally, packet)
            lives.see(packet)
            tally.note_sequence(_sequence_sets(packet, packet.stream, headers.get(packet.stream_index, b"")))
    except av.error.FFmpegError as error:
        found.broken = error.strerror or str(error)
        ends.is_broken = True
    for index, tally in found.tracks.items():
        tally.formats = lives.formats(index)


def _count(tally: PacketTally, packet: "Packet[Stream]") -> None:
    tally.packets += 1
    tally.size_bytes += packet.size
    tally.side_data.update(entry.data_type for entry in packet.iter_sidedata())
    if packet.pts is None or packet.is_discard:
        return
    start_s = packet.pts * Fraction(packet.time_base)
    end_s = start_s + (packet.duration or 0) * Fraction(packet.time_base)
    tally.first_s = start_s if tally.first_s is None else min(tally.first_s, start_s)
    tally.end_s = end_s if tally.end_s is None else max(tally.end_s, end_s)


def _sequence_sets(packet: "Packet[Stream]", stream: "Stream", header: bytes) -> frozenset[bytes]:
    context = stream.codec_context
    if stream.type != "video" or context is None or not packet.is_keyframe:
        return frozenset()
    codec = context.codec.canonical_name
    if codec not in _SPS_TYPES:
        return frozenset()
    hevc = codec == "hevc"
    units = nal_units(bytes(packet), header, hevc=hevc)
    return frozenset(unit for unit in units if ((unit[0] >> 1) & 63 if hevc else unit[0] & 31) == _SPS_TYPES[codec])
