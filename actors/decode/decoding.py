"""Decodes a range of a video track to the same frames and times as a decode of the whole track.

Decoders use one thread, because the number of threads changes the pictures of a damaged stream.
"""

import time
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
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
from ..bitstream.packet_headers import changes_configuration
from ..bitstream.picture_messages import Messages, PictureMessageReader, PictureMessages
from ..media.av_abi import configure_decoder
from ..media.av_stream import decoder_mark, extradata
from ..media.headers import FilePart
from ..media.kept_sources import KEPT, OpenSource
from ..media.location import is_local
from ..media.opening import demux
from ..media.seeking import AccessPoint, first_packets, packets_from
from ..media.stores import Shipment
from ..media.timeline import REORDER_FRAMES, RepairedTime, TimeShift, TimestampRepair
from ..media.values import Colour
from ..surfaces.device_frame import state_colour
from .picture_memory import can_allocate, forget_remains, is_incomplete
from .wanted import WantedPictures, shifted_ticks

if TYPE_CHECKING:
    from av.packet import Packet

    VideoPacket: TypeAlias = Packet[VideoStream]

_LEAST_FREE_BYTES = 64 << 20
_SHOWN_AGAIN = "vp9"
"""The codec whose decoder labels a repeated picture with the packet that coded it.

This decoder delays no picture: each picture belongs to the packet just decoded.
"""
_MOST_BYTES_PER_PIXEL = 16
"""Enough memory per pixel for two pictures, each with four components of 16 bits."""


class Decoded(Protocol):
    """A decoded picture on the host or a device, with its time and the decoder's notes."""

    pts: int | None
    opaque: object


PictureT = TypeVar("PictureT", bound=Decoded)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeRange:
    """The packets to decode, in demux order, and facts about them from the index."""

    source: str
    stream_index: int
    time_base: Fraction
    """The tick of the decoded pictures' times: the source's tick, divided by ``tick_divisor``."""
    nominal_ticks: Fraction
    tick_divisor: int = 1
    entry: AccessPoint | None = None  # the first packet to decode, None for the first of the file
    last_packet: int | None = None  # the packet after which the decoder is flushed, None for the end of the file
    shifts: tuple[TimeShift, ...] = ()
    expected_ticks: Sequence[int] = ()  # times of the index's pictures from ``entry`` on, ascending
    expected_packets: int | None = None  # the number of packets from ``entry`` on, None if the index did not count them
    untimed: bool = False
    held_frames: int = REORDER_FRAMES  # the most pictures that are held back to restore their order
    version: Hashable | None = None  # the required version of the source (``version_anywhere``), None for any version
    shipment: Shipment | None = None  # how other machines read a local source, None if no other machine can
    span_bytes: tuple[int, int] | None = None  # where in the file the packets begin and end, None if unknown
    part: FilePart | None = None  # the only part of a fragmented file that is read, None for the whole file
    max_pixels: int = (1 << 31) - 1  # larger pictures count as damage
    colours: tuple[tuple[int, Colour], ...] = ()
    """(packet, colours) for each change of the colours; these colours override the decoder's.

    Empty if the decoder's colours are right.
    """
    wanted: WantedPictures | None = None  # the only pictures to return, None for all
    messages: Messages | None = None
    """The messages that hold before the range, if messages are to be read (``DecodeTally.messages``); else None."""

    def colour(self, packet: int | None) -> Colour | None:
        """Return the colours of a packet's pictures; None if the decoder's own colours are right."""
        if not self.colours:
            return None
        place = bisect_right(self.colours, -1 if packet is None else packet, key=lambda each: each[0])
        return self.colours[max(0, place - 1)][1]


@dataclass(slots=True)
class DecodeTally:
    """Counts pictures and packets of one decode, and records the damage and the wall time."""

    packets: int = 0
    frames: int = 0
    failed_packets: int = 0
    corrupt_frames: int = 0  # frames that the decoder flagged, or that have parts which were never decoded
    damaged_packets: set[int] = field(default_factory=set)  # the packets of corrupt frames
    damaged_ticks: list[int] = field(default_factory=list)  # the times of corrupt frames
    first_damaged_packet: int | None = None
    decode_s: float = 0.0
    repaired: RepairedTime = field(default_factory=RepairedTime)
    # The messages of the pictures that were yielded, by time in ticks; no entry for pictures without messages.
    messages: dict[int, PictureMessages] = field(default_factory=dict)

    def note_damage(self, packet: int) -> None:
        """Record a damaged packet; only the first in demux order is kept."""
        if self.first_damaged_packet is None or packet < self.first_damaged_packet:
            self.first_damaged_packet = packet


class OpenTrack(NamedTuple):
    """A track of an open source, and a new FFmpeg decoder for the track."""

    stream: VideoStream
    context: VideoCodecContext
    wanted: WantedPictures | None = None  # the only pictures that a decoder must return, None for all


class PictureDecoder(ABC, Generic[PictureT]):
    """Decodes the packets of a range; every decoder yields the same pictures.

    Thread-safe. Reports show ``name``.
    """

    name: str

    @abstractmethod
    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, PictureT]]:
        """Yield (packet number, picture) in presentation order; a picture's ``pts`` is that of its packet.

        ``packets`` are (number in demux order, packet); the first packet must be a random access point. Packets that do
        not decode are counted in ``tally``. Nothing else may use the context of ``track`` during this call.
        ``DeviceError`` if a device cannot decode this track, or its pictures may be wrong.
        """


class SoftwareDecoder(PictureDecoder[VideoFrame]):
    """Decodes with FFmpeg, each track in one thread."""

    name = "software"

    def decode(
        self, track: OpenTrack, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
    ) -> Iterator[tuple[int | None, VideoFrame]]:
        """Yield the wanted pictures, as libavcodec outputs them."""
        wanted = track.wanted
        if wanted is None:
            yield from _decoded(track.context, packets, tally)
            return
        packets = wanted.needed(track.context.name, track.context.extradata or b"", packets)
        for number, frame in _decoded(track.context, packets, tally):
            if wanted.has(number, frame.pts):
                yield number, frame


SOFTWARE = SoftwareDecoder()


def _decoded(
    context: VideoCodecContext, packets: "Iterator[tuple[int, VideoPacket]]", tally: DecodeTally
) -> Iterator[tuple[int | None, VideoFrame]]:
    number = 0
    for number, packet in packets:
        # A new list instead of a bare int, because PyAV finds a packet's ``opaque`` by the object's identity.
        packet.opaque = [number]
        yield from decode_packet(context, number, packet, tally)
    yield from decode_packet(context, number, None, tally)


def decode_range(
    range_: DecodeRange, tally: DecodeTally, decoder: PictureDecoder[PictureT]
) -> Generator[tuple[int, PictureT]]:
    """Yield (ticks, picture) in presentation order, from the entry to the last packet, then flush the decoder.

    Pictures before and after the range's times are included. Packets that do not decode are counted in ``tally``. If
    the range names wanted pictures, only those are yielded, and decoding ends with the last of them.

    ``InputError`` if the source cannot be opened, or has no such track; ``DeviceError`` if a device cannot decode the
    track, or its pictures may be wrong.
    """
    for way in _ways(range_):
        kept = KEPT.borrow(
            range_.source,
            range_.stream_index,
            afresh=way is _Way.COUNT or range_.entry is None,
            expected=range_.version,
            shipment=range_.shipment,
            part=range_.part if way is _Way.PART else None,
        )
        with kept as source:
            source.wanted.span_bytes = range_.span_bytes
            track = open_track(source.container, range_)
            packets = _packets(source, track.stream, range_.entry, counted=way is _Way.COUNT)
            if packets is None:
                continue
            ridden: dict[int | None, PictureMessages] = {}
            if range_.messages is not None:
                packets = _read_messages(packets, track.stream, range_.messages, ridden)
            decoded = decoder.decode(track, _counted(packets, range_, tally), tally)
            yield from _in_time(decoded, range_, tally, ridden)
            return


def open_track(container: InputContainer, range_: DecodeRange) -> OpenTrack:
    """Give the track a new decoder and discard other tracks; return the track. ``InputUnreadable`` if that fails."""
    stream = next((each for each in container.streams if each.index == range_.stream_index), None)
    if not isinstance(stream, VideoStream) or stream.codec_context is None:
        message = f"track {range_.stream_index} of {range_.source} is not video that can be decoded"
        raise InputUnreadable(message, "Choose another with --video-track.")
    for other in container.streams:
        if other is not stream:
            other.discard = Discard.all
    context = cast("VideoCodecContext", CodecContext.create(stream.codec_context.codec, "r"))
    configure_decoder(context, stream)
    configure_exact(context, range_.max_pixels)
    return OpenTrack(stream, context, range_.wanted)


def configure_exact(context: VideoCodecContext, max_pixels: int) -> None:
    """Make an unopened decoder's pictures depend on its packets alone; oversized pictures count as damage."""
    context.thread_count = 1
    context.copy_opaque = True
    context.options = {"max_pixels": str(max_pixels)}
    forget_remains(context)


def _read_messages(
    packets: "Iterator[tuple[int, VideoPacket]]",
    stream: VideoStream,
    held: Messages,
    ridden: dict[int | None, PictureMessages],
) -> "Iterator[tuple[int, VideoPacket]]":
    """Yield the packets, and put their messages into ``ridden``, by the packets' numbers.

    Messages are read from packets, because only software decoders attach them to pictures, and not as the coded bytes.
    """
    reader = PictureMessageReader(stream.codec_context.codec.canonical_name, extradata(stream), held)
    for number, packet in packets:
        if messages := reader.messages(packet):
            ridden[number] = messages
        yield number, packet


def _in_time(
    decoded: Iterator[tuple[int | None, PictureT]],
    range_: DecodeRange,
    tally: DecodeTally,
    ridden: Mapping[int | None, PictureMessages],
) -> Iterator[tuple[int, PictureT]]:
    """Give the decoder's frames their repaired times, in presentation order; ``ridden`` has messages by packet."""
    repair: TimestampRepair[tuple[PictureT, bool, PictureMessages]] = TimestampRepair(
        nominal=range_.nominal_ticks,
        expected=range_.expected_ticks if range_.wanted is None else sorted(range_.wanted.ticks),
        untimed=range_.untimed,
        held_frames=range_.held_frames,
        counts=tally.repaired,
    )
    left = None if range_.wanted is None else set(range_.wanted.ticks)
    for packet, frame in decoded:
        ticks = frame.pts
        if ticks is not None:
            ticks = shifted_ticks(packet, ticks, range_.shifts, range_.tick_divisor)
        if left is not None:
            if ticks not in left:
                continue
            left.discard(ticks)
        if (colour := range_.colour(packet)) is not None:
            state_colour(frame, colour)
        damaged = packet in tally.damaged_packets
        yield from _named(repair.push((frame, damaged, ridden.get(packet, {})), ticks), tally)
        if left is not None and not left:
            break
    yield from _named(repair.finish(), tally)


def _named(
    settled: Iterable[tuple[int, tuple[PictureT, bool, PictureMessages]]], tally: DecodeTally
) -> Iterator[tuple[int, PictureT]]:
    for ticks, (picture, damaged, messages) in settled:
        if damaged:
            tally.damaged_ticks.append(ticks)
        if messages:
            tally.messages[ticks] = messages
        yield ticks, picture


def _counted(
    packets: "Iterator[tuple[int, VideoPacket]]", range_: DecodeRange, tally: DecodeTally
) -> "Iterator[tuple[int, VideoPacket]]":
    for number, packet in packets:
        tally.packets += 1
        yield number, packet
        if range_.last_packet is not None and number >= range_.last_packet:
            break  # a request for another packet would read more of a remote source
    if range_.expected_packets is not None and tally.packets < range_.expected_packets:
        # A read failed, or the file was replaced; no other check would notice.
        message = f"{range_.source} ended after {tally.packets} of {range_.expected_packets} packets"
        raise InputUnreadable(message, "Check the disk or network that holds the source, then start the job again.")


def decode_packet(
    context: VideoCodecContext, number: int, packet: "VideoPacket | None", tally: DecodeTally
) -> Iterator[tuple[int | None, VideoFrame]]:
    """Decode a packet (None flushes the decoder); yield (packet number, picture) for each picture."""
    began = time.perf_counter()
    try:
        frames = context.decode(packet)
    except av.error.FFmpegError:
        _raise_if_memory_is_short(context.width * context.height)
        tally.failed_packets += 1
        tally.note_damage(number)
        frames = []
    tally.decode_s += time.perf_counter() - began
    for frame in frames:
        tally.frames += 1
        coded = frame.opaque[0] if isinstance(frame.opaque, list) else None
        shown = number if context.name == _SHOWN_AGAIN else coded
        if frame.is_corrupt or is_incomplete(frame):
            tally.corrupt_frames += 1
            tally.damaged_packets.add(number if shown is None else shown)
            tally.note_damage(number if coded is None else coded)
        yield shown, frame


class _Way(Enum):
    """The ways to find the packets of a range."""

    PART = auto()  #: reads a part of the file that is proven to have all packets
    SEEK = auto()  #: seeks to the entry; fails if the seek arrives elsewhere
    COUNT = auto()  #: reads from the first packet on


def _ways(range_: DecodeRange) -> Iterator[_Way]:
    """Yield the ways to try, in order; the last way always works."""
    if range_.part is not None and (range_.shipment is not None or not is_local(range_.source)):
        yield _Way.PART
    if range_.entry is not None:
        yield _Way.SEEK
    yield _Way.COUNT


def _packets(
    source: OpenSource, stream: VideoStream, entry: AccessPoint | None, *, counted: bool
) -> "Iterator[tuple[int, VideoPacket]] | None":
    """Return the numbered packets from ``entry`` on; None if the seek or the part of the file misses ``entry``."""
    demuxed = partial(_demux, source, stream)
    if counted:
        return islice(enumerate(demuxed()), entry.packet if entry else 0, None)
    part = source.wanted.part
    if part is not None and decoder_mark(stream) != part.mark:
        return None
    if entry is None:
        return first_packets(demuxed(), None if part is None else part.first)
    source.lead_to(entry)
    return packets_from(entry, source.container, stream, demuxed)


def _demux(source: OpenSource, stream: VideoStream) -> "Iterator[VideoPacket]":
    """Demux the track's packets; record whether the container's state may have changed permanently."""
    try:
        for packet in demux(source.container, stream):
            # FFmpeg reports a changed configuration of a track only once, and not again after a seek.
            source.is_spoiled = source.is_spoiled or changes_configuration(packet)
            yield packet
    except av.error.FFmpegError:
        _raise_if_memory_is_short()
        # A truncated or broken container ends here, as it did when the index was built.
        source.is_spoiled = True


def _raise_if_memory_is_short(pixels: int = 0) -> None:
    """Raise ``MemoryError`` if FFmpeg ran out of memory, which FFmpeg reports as invalid data."""
    needed_bytes = _LEAST_FREE_BYTES + _MOST_BYTES_PER_PIXEL * pixels
    if not can_allocate(needed_bytes):
        raise MemoryError(f"{needed_bytes} bytes of memory cannot be allocated")
