"""Moves packets of the other tracks from the source's clock to the output's clock. Their bytes stay the same.

- All times move by one constant, so late starts and gaps are kept.
- If the source's ticks are coarser than samples (Matroska, FLV), sound with a known packet length returns to its sample
  grid, within a tick of the stated time.
- A packet without times follows the previous one. If a clock steps back by over a second, or leaps by over six hours
  (33 bits that FFmpeg unwrapped wrongly), it was reset, and the next packet follows without a gap.
- Packets that an edit list hides are left out, except those before the first audible packet, which a decoder needs.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor, lcm
from typing import TYPE_CHECKING, Any

from av.packet import Packet, PacketSideData, packet_sidedata_type_from_literal

from ...actors.media.timeline import LONGEST_GAP_S, RESET_S
from ...actors.tracks.subtitles import read_cue, write_cue
from ..request.values import is_ffmpeg_ratio
from ..source.tracks import Track, skipped_samples
from .counted_sound import CountedSound
from .cue_row import CueRow, Shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from av.stream import Stream


UNHEARD_S = Fraction(1, 1000)  #: Sound may move by this much without a warning
_HALF = Fraction(1, 2)
_AC3_FRAME_SAMPLES = 1536
_AC3_SYNC = 0x0B77
_AC3_HEADER_BYTES = 7
_AC3_BSID_MAX = 10
_EAC3_BSID_MAX = 16
_AC3_SIZE_CODES = 38
_RESERVED = 3
_OPUS_FRAME_SAMPLES = (480, 960, 1920, 2880) * 3 + (480, 960) * 2 + (120, 240, 480, 960) * 4
"""Frame lengths by configuration: SILK of three bandwidths, hybrid of two, CELT of four (RFC 6716, table 2)."""
_OPUS_COUNTED = 3  #: The code of packets that state the number of frames in their second byte
_MILLISECOND = Fraction(1, 1000)
_MICROSECOND = Fraction(1, 1_000_000)


@dataclass(frozen=True, slots=True)
class Interval:
    """The part of the source that is kept, and the time that becomes 0, in seconds on the source's clock."""

    origin_s: Fraction
    start_s: Fraction | None = None
    end_s: Fraction | None = None

    def output_s(self, source_s: Fraction) -> Fraction:
        """Return the time in the output for a time in the source."""
        return source_s - self.origin_s

    def touches(self, begin_s: Fraction, end_s: Fraction) -> bool:
        """Return whether any part of [begin, end) is kept; ``begin_s`` may equal ``end_s``."""
        after = self.start_s is None or end_s > self.start_s or begin_s >= self.start_s
        return after and (self.end_s is None or begin_s < self.end_s)

    def keeps_sound(self, begin_s: Fraction, end_s: Fraction, *, may_hide_start: bool) -> bool:
        """Return whether a packet of sound is kept.

        If it begins too early, the output must be able to hide its beginning.
        """
        too_early = self.start_s is not None and not may_hide_start and begin_s < self.start_s
        return not too_early and self.touches(begin_s, end_s)


@dataclass(slots=True)
class Pipe(ABC):
    """Turns packets of a source track into packets of an output stream."""

    track: Track
    output: "Stream"
    interval: Interval
    resets: int = 0  #: how many times the source's clock was reset
    is_empty: bool = True  #: whether the output still has no packet of the track
    _shift_s: Fraction = Fraction(0)
    _clock_s: Fraction | None = None
    _expected_s: Fraction | None = None

    @abstractmethod
    def feed(self, packet: "Packet[Stream]") -> "Iterator[Packet[Stream]]":
        """Take the next packet of the track, and yield the output packets that are complete."""

    def finish(self) -> "Iterator[Packet[Stream]]":
        """Yield the remaining output packets after the track's last packet."""
        return iter(())

    def _times_s(self, packet: "Packet[Stream]") -> tuple[Fraction, Fraction | None, Fraction]:
        """Return a packet's repaired presentation time, decoding time and duration on the source's clock."""
        tick = Fraction(packet.time_base or self.track.time_base)
        duration_s = (packet.duration or 0) * tick
        dts_s = None if packet.dts is None else packet.dts * tick + self._shift_s
        pts_s = dts_s if packet.pts is None else packet.pts * tick + self._shift_s
        if pts_s is None:
            pts_s = Fraction(0) if self._expected_s is None else self._expected_s
        clock_s = pts_s if dts_s is None else dts_s
        if self._clock_s is not None and not -RESET_S <= clock_s - self._clock_s <= LONGEST_GAP_S:
            jump_s = (self._expected_s or self._clock_s) - clock_s
            self.resets += 1
            self._shift_s += jump_s
            pts_s, clock_s = pts_s + jump_s, clock_s + jump_s
            dts_s = None if dts_s is None else dts_s + jump_s
        self._clock_s = clock_s
        self._expected_s = clock_s + duration_s
        return pts_s, dts_s, duration_s

    def _send(self, packet: "Packet[Stream]", pts: int, dts: int, duration: int, tick: Fraction) -> "Packet[Stream]":
        self.is_empty = False
        packet.stream = self.output
        packet.time_base = tick
        packet.pts, packet.dts, packet.duration = pts, dts, duration
        return packet


@dataclass(slots=True)
class AudioPipe(Pipe):
    """Copies sound; its output times are in samples."""

    may_hide_start: bool = True  #: whether an edit list hides the part of the first packet that is before 0
    trims_by_duration: bool = False  #: whether a shorter last packet drops samples at the end (mp4)
    needs_ac3_headers: bool = False  #: whether the muxer refuses packets of AC-3 and E-AC-3 without a header (mp4)
    #: places packets by samples if the container counts samples (PCM in mp4 and mov)
    counted: CountedSound | None = None
    padding_to_shift: int | None = None  #: samples of priming by which the muxer moves the track (Matroska)
    first: int | None = None  #: when the first packet begins in the output, in samples
    hidden: int = 0  #: how many packets after the first audible packet are hidden by an edit list
    moved: int = 0  #: how many packets were moved, because they would audibly overlap the previous packet
    damaged: int = 0  #: how many packets without a header are left out
    begins_damaged: bool = False  #: whether a packet without a header came before all kept packets
    _heard: bool = False
    _last: int | None = None
    _next: int | None = None

    def feed(self, packet: "Packet[Stream]") -> "Iterator[Packet[Stream]]":
        """Take the next packet. If it is kept, yield it with its new times."""
        hidden = packet.is_discard and self._heard
        self._heard = self._heard or not packet.is_discard
        pts_s, _, duration_s = self._times_s(packet)
        self.hidden += hidden
        if not hidden and self.needs_ac3_headers and not has_ac3_header(bytes(packet)):
            self.damaged += 1
            self.begins_damaged = self.begins_damaged or self.first is None
            return
        if hidden or not self.interval.keeps_sound(pts_s, pts_s + duration_s, may_hide_start=self.may_hide_start):
            return
        rate = self._rate
        samples = samples_of(self.track, packet)
        position = self._position(pts_s, duration_s, samples)
        if self.counted is not None:
            yield from self._placed(self.counted, position, packet)
            return
        before = self._last
        if before is not None and position <= before:
            self.moved += before - position > rate * UNHEARD_S
            position = before + 1  # no muxer accepts two packets with the same time
        self._last = position
        self.first = position if self.first is None else self.first
        length = samples if samples and self._coarse else floor(duration_s * rate + _HALF)
        self._next = position + length
        if self.trims_by_duration and not length:
            length = 1 if before is None else position - before  # mp4 does not play a last packet without a duration
        if self.trims_by_duration and self._coarse and samples:
            # Only a length fixed by the codec includes the samples to skip; a length from the container excludes them
            # already.
            length = max(1, length - skipped_samples(packet)[1])
        at, tick = position, Fraction(1, rate)
        if self.padding_to_shift is not None:
            at, tick = matroska_ticks(position, self.padding_to_shift, rate), _MILLISECOND
            length = floor(Fraction(length, rate) / tick + _HALF)
        yield self._send(packet, at, at, length, tick)

    def _placed(self, line: CountedSound, position: int, packet: "Packet[Stream]") -> "Iterator[Packet[Stream]]":
        """Yield a packet at its position in samples, after the silence before it."""
        self.first = position if self.first is None else self.first
        for at, samples, payload in line.place(position, bytes(packet)):
            part: Packet[Stream] = new_packet(payload)
            yield self._send(part, at, at, samples, Fraction(1, self._rate))

    @property
    def _rate(self) -> int:
        return self.track.audio.sample_rate if self.track.audio is not None else 90_000

    @property
    def _coarse(self) -> bool:
        return self.track.time_base * self._rate > 1

    def _position(self, pts_s: Fraction, duration_s: Fraction, samples: int) -> int:
        stated = floor(self.interval.output_s(pts_s) * self._rate + _HALF)
        if not self._coarse:
            return stated
        audio, start_s = self.track.audio, self.track.start_s
        if self._next is None:
            if audio is None or not audio.priming_samples or start_s is None or self.interval.start_s is not None:
                return stated
            return floor(self.interval.output_s(start_s) * self._rate + _HALF) - audio.priming_samples
        tolerance = max(min(self.track.time_base, _MILLISECOND) * self._rate, Fraction(1))
        agrees = samples > 0 and abs(duration_s * self._rate - samples) <= tolerance
        return self._next if agrees and abs(stated - self._next) <= tolerance else stated


@dataclass(slots=True)
class VideoPipe(Pipe):
    """Copies a further video track, beginning with the first keyframe inside the interval."""

    _started: bool = False
    _waiting: "list[tuple[Packet[Stream], Fraction, Fraction]]" = field(default_factory=list)
    """Packets before the first known decoding time, with their presentation time and duration."""

    def feed(self, packet: "Packet[Stream]") -> "Iterator[Packet[Stream]]":
        """Take the next packet, and yield the packets whose decoding times are now known."""
        pts_s, dts_s, duration_s = self._times_s(packet)
        start_s, end_s = self.interval.start_s, self.interval.end_s
        self._started = self._started or start_s is None or (packet.is_keyframe and pts_s >= start_s)
        is_over = end_s is not None and (pts_s if dts_s is None else dts_s) >= end_s
        if not self._started or packet.is_discard or is_over:
            return
        if dts_s is None:
            self._waiting.append((packet, pts_s, duration_s))
            return
        for number, (early, early_pts_s, length_s) in enumerate(self._waiting):
            before_s = (len(self._waiting) - number) * (duration_s or length_s)
            yield self._retimed(early, early_pts_s, min(early_pts_s, dts_s - before_s), length_s)
        self._waiting.clear()
        yield self._retimed(packet, pts_s, dts_s, duration_s)

    def finish(self) -> "Iterator[Packet[Stream]]":
        """Yield the packets of a track without decoding times; each packet is decoded when it is presented."""
        for packet, pts_s, duration_s in self._waiting:
            yield self._retimed(packet, pts_s, pts_s, duration_s)
        self._waiting.clear()

    def _retimed(
        self, packet: "Packet[Stream]", pts_s: Fraction, dts_s: Fraction, duration_s: Fraction
    ) -> "Packet[Stream]":
        tick = _fine_tick(self.track.time_base, self.interval.origin_s)
        pts, dts = (floor(self.interval.output_s(t) / tick + _HALF) for t in (pts_s, dts_s))
        return self._send(packet, pts, dts, floor(duration_s / tick + _HALF), tick)


@dataclass(slots=True)
class CuePipe(Pipe):
    """Copies or converts subtitles and timed data, clipped to the interval."""

    target: str | None = None  #: the codec to which text is converted; None for a copy
    one_at_a_time: bool = False  #: whether a cue ends when the next begins (mp4); converted cues are merged instead
    crowded: int = 0  #: how many cues overlap others or have no duration
    _last: int | None = None
    _until: int = 0
    _row: CueRow = field(default_factory=CueRow)

    def feed(self, packet: "Packet[Stream]") -> "Iterator[Packet[Stream]]":
        """Take the next cue, and yield the part of the cue that is kept, if any."""
        pts_s, _, duration_s = self._times_s(packet)
        if not self.interval.touches(pts_s, pts_s + duration_s):
            return
        begin_s = max(pts_s, self.interval.start_s or pts_s, self.interval.origin_s)
        end_s = max(begin_s, pts_s + duration_s)
        if self.interval.end_s is not None:
            end_s = min(end_s, self.interval.end_s)
        if duration_s and end_s <= begin_s:
            return
        tick = self._tick
        begin, end = (floor(self.interval.output_s(t) / tick + _HALF) for t in (begin_s, end_s))
        if self.target is not None and self.one_at_a_time:
            if text := read_cue(self.track.codec or "", bytes(packet)):
                yield from self._written(self._row.add(Shown(begin, end, text)))
            return
        kept = self._converted(packet) if self.target is not None else packet
        if kept is None:
            return
        self.crowded += self.one_at_a_time and (end <= begin or (self._last is not None and begin < self._until))
        self._until = end
        # Cues may overlap or begin together, but muxers take no cues out of order.
        self._last = begin if self._last is None else max(begin, self._last)
        yield self._send(kept, self._last, self._last, max(0, end - self._last), tick)

    def finish(self) -> "Iterator[Packet[Stream]]":
        """Yield the cues shown after the last cue has begun."""
        yield from self._written(self._row.finish())

    @property
    def _tick(self) -> Fraction:
        return _fine_tick(self.track.time_base, self.interval.origin_s)

    def _written(self, cues: "Iterator[Shown]") -> "Iterator[Packet[Stream]]":
        for cue in cues:
            packet = new_packet(write_cue(self.target or "", cue.text))
            yield self._send(packet, cue.begin, cue.begin, cue.end - cue.begin, self._tick)
        self.crowded = self._row.crowded

    def _converted(self, packet: "Packet[Stream]") -> "Packet[Stream] | None":
        text = read_cue(self.track.codec or "", bytes(packet))
        if not text:
            return None
        return new_packet(write_cue(self.target or "", text))


def new_packet(payload: bytes) -> "Packet[Stream]":
    """Return a packet of ``payload``, marked as a keyframe."""
    packet: Packet[Stream] = Packet(len(payload))
    packet.update(payload)
    packet.is_keyframe = True
    return packet


def samples_of(track: Track, packet: "Packet[Stream]") -> int:
    """Return how many samples come from decoding a packet, if the codec fixes that; otherwise 0."""
    if track.codec == "opus":
        return _opus_samples(bytes(packet))
    if track.codec == "ac3":
        return _AC3_FRAME_SAMPLES
    return track.audio.frame_samples if track.audio is not None else 0


def has_ac3_header(payload: bytes) -> bool:
    """Return whether a packet begins with a header of AC-3 or E-AC-3 (ETSI TS 102 366, 4.4.1 and E.1.3.1)."""
    if len(payload) < _AC3_HEADER_BYTES or int.from_bytes(payload[:2]) != _AC3_SYNC:
        return False
    bsid, rate_code = payload[5] >> 3, payload[4] >> 6
    if bsid <= _AC3_BSID_MAX:
        return rate_code != _RESERVED and payload[4] & 0x3F < _AC3_SIZE_CODES
    frame_type, half_rate_code = payload[2] >> 6, payload[4] >> 4 & 3
    words = int.from_bytes(payload[2:4]) & 0x7FF
    is_rate = rate_code != _RESERVED or half_rate_code != _RESERVED
    return bsid <= _EAC3_BSID_MAX and frame_type != _RESERVED and 2 * (words + 1) >= _AC3_HEADER_BYTES and is_rate


def _opus_samples(payload: bytes) -> int:
    """Return how many samples an Opus packet has, from its first bytes (RFC 6716, 3.1 and 3.2)."""
    if not payload:
        return 0
    configuration, code = payload[0] >> 3, payload[0] & 3
    frame = _OPUS_FRAME_SAMPLES[configuration]
    if code == _OPUS_COUNTED:
        return frame * (payload[1] & 0x3F) if len(payload) > 1 else 0
    return frame if code == 0 else 2 * frame


def matroska_ticks(position: int, padding: int, rate: int) -> int:
    """Return a time in ms for FFmpeg's Matroska muxer, which rounds time and priming separately before adding them."""
    heard_ms = floor(Fraction(1000 * (position + padding), rate) + _HALF)
    return heard_ms - floor(Fraction(1000 * padding, rate) + _HALF)


def skip_samples_data(at_end: int) -> PacketSideData:
    """Return the side data that states how many samples at a packet's end are inaudible."""
    make: Any = PacketSideData  # PyAV's stub lacks the constructor
    data = bytes(4) + at_end.to_bytes(4, "little") + bytes(2)
    entry: PacketSideData = make(packet_sidedata_type_from_literal("skip_samples"), len(data))
    entry.update(data)
    return entry


def _fine_tick(time_base: Fraction, origin_s: Fraction) -> Fraction:
    tick = Fraction(1, lcm(time_base.denominator, origin_s.denominator))
    return tick if is_ffmpeg_ratio(tick) else _MICROSECOND
