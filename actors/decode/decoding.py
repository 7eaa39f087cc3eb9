"""Decoding a range of a source's video track: the frames a sequential decode would give, with their times.

One thread decodes, always: the thread count changes what a damaged stream decodes to, and the sequential decode that
defines what is right has one. The machine is filled by segments, not by a decoder's threads.
"""

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import av
import av.error
from av.codec.context import CodecContext
from av.container import InputContainer
from av.stream import Discard
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ...errors import InputUnreadable
from ..media.av_abi import configure_decoder
from ..media.kept_sources import KEPT, OpenSource
from ..media.opening import demux
from ..media.seeking import AccessPoint, packets_from
from ..media.timeline import RepairedTime, TimeShift, TimestampRepair
from .picture_memory import begin_black, is_incomplete

__all__ = [
    "SOFTWARE",
    "AccessPoint",
    "DecodeRange",
    "DecodeTally",
    "Decoded",
    "OpenTrack",
    "PictureDecoder",
    "PictureHash",
    "SoftwareDecoder",
    "decode_range",
    "open_track",
    "picture_hash",
]

if TYPE_CHECKING:
    from av.packet import Packet

    VideoPacket: TypeAlias = Packet[VideoStream]

DIGEST_BYTES = 16


class Decoded(Protocol):
    """A decoded picture, wherever it lies: its time, and what its decoder adds."""

    pts: int | None
    opaque: object


PictureT = TypeVar("PictureT", bound=Decoded)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRange:
    """What to decode, in demux order, and what the index knows about it.

    ``entry`` None decodes from the first packet. ``last_packet`` is the last packet to send before flushing, None
    for the end of the file. ``expected_ticks`` are the sorted times the index promises from ``entry`` on, and
    ``expected_packets`` is how many packets it saw there; None where it did not count.
    """

    source: str
    stream_index: int
    time_base: Fraction
    """The tick that pictures leave with: the source's own, divided by ``tick_divisor``."""
    nominal_ticks: Fraction
    tick_divisor: int = 1
    entry: AccessPoint | None = None
    last_packet: int | None = None
    shifts: tuple[TimeShift, ...] = ()
    expected_ticks: Sequence[int] = ()
    expected_packets: int | None = None
    untimed: bool = False


@dataclass(slots=True)
class DecodeTally:
    """What decoding met on its way. Times are wall seconds.

    ``damaged_ticks`` are the times of the pictures that ``corrupt_frames`` counts: a decoder called them wrong, or
    parts of them were never decoded. ``damaged_packets`` are the packets they came from.
    """

    packets: int = 0
    frames: int = 0
    failed_packets: int = 0
    corrupt_frames: int = 0
    damaged_packets: set[int] = field(default_factory=set)
    damaged_ticks: list[int] = field(default_factory=list)
    first_damaged_packet: int | None = None
    decode_s: float = 0.0
    repaired: RepairedTime = field(default_factory=RepairedTime)

    def note_damage(self, packet: int) -> None:
        """Remember where damage was met first, in demux order."""
        if self.first_damaged_packet is None or packet < self.first_damaged_packet:
            self.first_damaged_packet = packet


@dataclass(frozen=True, slots=True)
class PictureHash:
    """One source picture at one time: what both sides of a cut must agree on."""

    ticks: int
    digest: bytes


def picture_hash(ticks: int, frame: VideoFrame) -> PictureHash:
    """Hash the visible samples of every plane, and the picture's format: padding and metadata do not count."""
    digest = hashlib.blake2b(f"{frame.width}x{frame.height} {frame.format.name}".encode(), digest_size=DIGEST_BYTES)
    for number, plane in enumerate(frame.planes):
        row_bytes = sum((c.bits + 7) // 8 * c.width for c in frame.format.components if c.plane == number)
        view = memoryview(plane)
        # Below 0 where rows lie the other way round, which is as good to be hashed; 0 for a palette, which has no rows.
        pitch_bytes = abs(plane.line_size) or plane.buffer_size
        for offset in range(0, plane.height * pitch_bytes, pitch_bytes):
            digest.update(view[offset : offset + row_bytes])
    return PictureHash(ticks, digest.digest())


class OpenTrack(NamedTuple):
    """A track of an open source, and a context of FFmpeg's decoder for it in which nothing was decoded yet."""

    stream: VideoStream
    context: VideoCodecContext


class PictureDecoder(ABC, Generic[PictureT]):
    """Turns the packets of one range into pictures: the same ones, whichever decoder does it.

    ``name`` is what reports call it. One object may be used by many threads at once.
    """

    name: str

    @abstractmethod
    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, PictureT]]:
        """Yield (number of the packet it came from, picture), in the order of presentation, to the last one.

        A picture's ``pts`` is its packet's. What does not decode is counted in ``tally`` and left out.

        Args:
            track: the track, and a context for this call alone.
            packets: (number in demux order, packet) of the range, the first one a random access point.
            tally: what decoding meets.

        Raises:
            DeviceError: a device does not decode this, or what it gave is not beyond doubt.
        """


class SoftwareDecoder(PictureDecoder[VideoFrame]):
    """FFmpeg's decoders, one thread each."""

    name = "software"

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, VideoFrame]]:
        """Yield the pictures as libavcodec gives them; it never refuses."""
        number = 0
        for number, packet in packets:
            # A fresh list, never a bare int: PyAV keys the table by object identity.
            packet.opaque = [number]
            yield from _tallied(track.context, number, packet, tally)
        yield from _tallied(track.context, number, None, tally)


SOFTWARE = SoftwareDecoder()


def decode_range(
    range_: DecodeRange, tally: DecodeTally, decoder: PictureDecoder[PictureT]
) -> Generator[tuple[int, PictureT]]:
    """Yield (ticks, picture) in presentation order, from the entry through the last packet, flushed.

    What comes includes frames before and after the times the caller wants: it filters. Packets that do not decode are
    counted in ``tally`` and skipped.

    Raises:
        InputError: the source cannot be opened, or has no such track.
        DeviceError: a device's decoder does not decode this, or what it gave is not beyond doubt.
    """
    found = False
    if range_.entry is not None:
        with KEPT.borrow(range_.source, range_.stream_index) as source:
            track = open_track(source.container, range_)
            packets = packets_from(range_.entry, source.container, track.stream, partial(_demux, source, track.stream))
            if packets is not None:
                found = True
                yield from _in_time(decoder.decode(track, _counted(packets, range_, tally), tally), range_, tally)
    if not found:
        with KEPT.borrow(range_.source, range_.stream_index, afresh=True) as source:
            track = open_track(source.container, range_)
            packets = enumerate(_demux(source, track.stream))
            if range_.entry is not None:
                packets = islice(packets, range_.entry.packet, None)
            yield from _in_time(decoder.decode(track, _counted(packets, range_, tally), tally), range_, tally)


def open_track(container: InputContainer, range_: DecodeRange) -> OpenTrack:
    """Return the track, ready to decode alone and as a sequential decode does, with a decoder that has seen nothing.

    Raises:
        InputUnreadable: it is no video, or there is no decoder for it.
    """
    stream = next((each for each in container.streams if each.index == range_.stream_index), None)
    if not isinstance(stream, VideoStream) or stream.codec_context is None:
        message = f"track {range_.stream_index} of {range_.source} is no video that can be decoded"
        raise InputUnreadable(message, "Choose another with --video-track.")
    for other in container.streams:
        if other is not stream:
            other.discard = Discard.all
    context = cast("VideoCodecContext", CodecContext.create(stream.codec_context.codec, "r"))
    configure_decoder(context, stream)
    context.thread_count = 1
    context.copy_opaque = True
    begin_black(context)
    return OpenTrack(stream, context)


def _in_time(
    decoded: Iterator[tuple[int | None, PictureT]], range_: DecodeRange, tally: DecodeTally
) -> Iterator[tuple[int, PictureT]]:
    """Give the decoder's frames their mended times, in presentation order."""
    repair: TimestampRepair[tuple[PictureT, bool]] = TimestampRepair(
        nominal=range_.nominal_ticks, expected=range_.expected_ticks, untimed=range_.untimed, counts=tally.repaired
    )
    for packet, frame in decoded:
        ticks = frame.pts
        if ticks is not None:
            ticks += sum(shift.ticks for shift in range_.shifts if packet is not None and shift.first_packet <= packet)
            ticks *= range_.tick_divisor
        damaged = packet in tally.damaged_packets
        yield from _named(repair.push((frame, damaged), ticks), tally)
    yield from _named(repair.finish(), tally)


def _named(settled: Iterable[tuple[int, tuple[PictureT, bool]]], tally: DecodeTally) -> Iterator[tuple[int, PictureT]]:
    """Pass pictures on, and remember when the damaged ones are shown."""
    for ticks, (picture, damaged) in settled:
        if damaged:
            tally.damaged_ticks.append(ticks)
        yield ticks, picture


def _counted(
    packets: "Iterator[tuple[int, VideoPacket]]", range_: DecodeRange, tally: DecodeTally
) -> "Iterator[tuple[int, VideoPacket]]":
    """Yield the packets of the range, and miss those that the index saw and that do not come."""
    for number, packet in packets:
        if range_.last_packet is not None and number > range_.last_packet:
            break
        tally.packets += 1
        yield number, packet
    if range_.expected_packets is not None and tally.packets < range_.expected_packets:
        # A read that failed, or another file by now: what is missing here, nothing else would miss.
        message = f"{range_.source} ended after {tally.packets} of {range_.expected_packets} packets"
        raise InputUnreadable(message, "Check the disk or the network it lies on, then start the job again.")


def _tallied(
    context: VideoCodecContext, number: int, packet: "VideoPacket | None", tally: DecodeTally
) -> Iterator[tuple[int | None, VideoFrame]]:
    began = time.perf_counter()
    try:
        frames = context.decode(packet)
    except av.error.FFmpegError:
        tally.failed_packets += 1
        tally.note_damage(number)
        frames = []
    tally.decode_s += time.perf_counter() - began
    for frame in frames:
        tally.frames += 1
        origin = frame.opaque[0] if isinstance(frame.opaque, list) else None
        if frame.is_corrupt or is_incomplete(frame):
            came_from = number if origin is None else origin
            tally.corrupt_frames += 1
            tally.damaged_packets.add(came_from)
            tally.note_damage(came_from)
        yield origin, frame


def _demux(source: OpenSource, stream: VideoStream) -> "Iterator[VideoPacket]":
    """Yield the track's packets, and see what may change the container's state for good."""
    try:
        for packet in demux(source.container, stream):
            # FFmpeg says once that a track's configuration changes, and not again after a seek.
            source.is_spoiled = source.is_spoiled or packet.has_sidedata("new_extradata")
            yield packet
    except av.error.FFmpegError:
        # A truncated or broken container ends here, as it does for the index.
        source.is_spoiled = True
