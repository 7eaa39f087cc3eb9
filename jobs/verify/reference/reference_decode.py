"""One sequential decode of a video track, and the time of each picture.

This is a second implementation of docs/timeline.md, on whole lists, so a mistake in either implementation shows as a
difference.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate, groupby, pairwise
from math import ceil
from typing import Self, cast

import av.error
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ....actors.decode.describe import nominal_frame_rate
from ....actors.decode.picture_memory import forget_remains
from ....actors.media.opening import open_source
from ....errors import NoVideoTrack
from ..streams import is_decodable, video_tracks
from .hdr10plus import MessageReader

RESET_S = 1  # a decoding clock that steps back by more than this was reset; smaller steps are disorder
LEAP_S = 6 * 3600  # a leap ahead by more than this is also a reset, which FFmpeg took for a wrap of the 33-bit clock
WINDOW_FRAMES = 16  # how many pictures are held back for sorting: the largest picture buffer of H.264 and HEVC
DENOMINATOR_MAX = 10**9  # a tick, in seconds, is divided at most until its denominator is this
_BEFORE_ALL = -(1 << 80)


def whole_ticks(nominal: Fraction) -> int:
    """Return the ticks that a repair adds for a frame's ``nominal`` duration, rounded half to even, but at least 1."""
    return max(1, round(nominal))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The presentation time of every frame of a track, in ticks of ``time_base``."""

    order: tuple[int, ...]  # the frames in presentation order, by their places in the decoder's output
    times: tuple[int, ...]  # the times of the frames in ``order``, repaired and strictly increasing
    time_base: Fraction = Fraction(1)  # the source's tick, or a part of it, in seconds
    resets: int = 0  # how many times the decoding clock was reset
    missing: int = 0  # frames without a PTS
    disordered: int = 0  # how many frames come after a frame that is shown later
    repeated: int = 0
    # the time from which a requested start and end are counted: the first time of a presented packet, decodable or not
    zero: int = 0
    packets: tuple[int, ...] = ()  # the times of all presented packets, in order
    nominal: Fraction = Fraction(1)  # a frame's nominal duration


class ResetClock:
    """Rule R1: the offset that undoes all resets of the decoding clock so far."""

    def __init__(self, nominal: Fraction, time_base: Fraction) -> None:
        self._step_ticks = whole_ticks(nominal)
        self._back_ticks = int(RESET_S / time_base)
        self._ahead_ticks = int(LEAP_S / time_base)
        self._previous: int | None = None
        self.offset = 0
        self.resets = 0

    def advance(self, dts: int | None) -> int:
        """Take the next packet's DTS in demux order, and return the ticks to add to its timestamps to undo resets.

        Pass None for packets that an edit list hides and for packets without a DTS. A PTS cannot replace the DTS,
        because the PTS is ahead by the reorder delay (many seconds at a low frame rate).
        """
        if dts is None:
            return self.offset
        if self._previous is not None and not -self._back_ticks <= dts - self._previous <= self._ahead_ticks:
            self.offset += self._previous + self._step_ticks - dts
            self.resets += 1
        self._previous = dts
        return self.offset


def divisor_of(times: Sequence[int], time_base: Fraction) -> int:
    """Return the divisor of the source's tick in rule R4, so that frames with equal times fit before the next time.

    ``times`` are the times of the presented packets, repaired by R1. Each of the frames with equal times needs a tick
    of its own before the next time; the tick's denominator is at most 10^9.
    """
    groups = [(time, len(list(same))) for time, same in groupby(sorted(times))]
    wanted = [Fraction(count, after - time) for (time, count), (after, _) in pairwise(groups)]
    finest = DENOMINATOR_MAX // time_base.denominator
    return max(1, min(ceil(max(wanted, default=1)), finest))


def repair(stamps: Sequence[int | None], nominal: Fraction, *, divisor: int = 1) -> Timeline:
    """Return the presentation time of each frame of a track, by rules R2, R3 and R4 over all of the decoder's output.

    ``stamps``, repaired by R1, and ``nominal`` are in the source's ticks. The result is in units of
    1/``divisor`` of a tick.
    """
    nominal *= divisor
    filled = _filled([None if stamp is None else stamp * divisor for stamp in stamps], nominal)
    order = sorted(range(len(filled)), key=filled.__getitem__)
    return Timeline(
        order=tuple(order),
        times=tuple(_spread([filled[frame] for frame in order], nominal)),
        missing=sum(stamp is None for stamp in stamps),
        disordered=sum(time < latest for time, latest in zip(filled, accumulate(filled, max), strict=True)),
        repeated=len(filled) - len(set(filled)),
        nominal=nominal,
    )


def _filled(times: Sequence[int | None], nominal: Fraction) -> list[int]:
    """Apply rule R2.

    A frame without a time follows the previous frame; frames before the first time end at that time.
    """
    first = next((place for place, time in enumerate(times) if time is not None), None)
    if first is None:
        return [round(place * nominal) for place in range(len(times))]
    step = whole_ticks(nominal)
    filled = [(times[first] or 0) - (first - place) * step for place in range(first)]
    for time in times[first:]:
        filled.append(filled[-1] + step if time is None else time)
    return filled


def _spread(times: Sequence[int], nominal: Fraction) -> list[int]:
    """Apply rule R4 to sorted times: frames with the same time are spread up to the next, so that no two are equal."""
    groups = [(time, len(list(same))) for time, same in groupby(times)]
    followings: list[int | None] = [*(time for time, _ in groups[1:]), None]
    step_ticks = max(1, int(nominal))
    settled: list[int] = []
    for (time, count), following in zip(groups, followings, strict=False):
        for place in range(count):
            if following is not None and following - time >= count:
                ticks = time + place * (following - time) // count
            else:
                ticks = time + place * step_ticks
            settled.append(max(ticks, settled[-1] + 1) if settled else ticks)
    return settled


@dataclass(slots=True)
class SequentialDecode:
    """One sequential decode of a video track. Iterate once to get the frames in the order of the decoder's output.

    ``frame.opaque`` is a list of rule R1's offset and the HDR10+ messages that ``MessageReader`` found for the frame.
    ``damaged_packets`` counts the packets that failed to decode. All fields are final once the iteration has ended.
    """

    container: InputContainer
    stream: VideoStream
    nominal: Fraction  # a frame's duration in ticks
    pts: list[int | None] = field(default_factory=list)  # each frame's time as the decoder states it
    stamps: list[int | None] = field(default_factory=list)  # the decoder's times, repaired by rule R1
    packet_times: list[int] = field(default_factory=list)
    packets_presented: int = 0
    damaged_packets: int = 0
    resets: int = 0
    earliest: VideoFrame | None = None  # the first decoded frame, even if only a later part is wanted

    @property
    def time_base(self) -> Fraction:
        """The length of the source's tick in seconds."""
        return Fraction(self.stream.time_base or 1)

    def __iter__(self) -> Iterator[VideoFrame]:
        clock = ResetClock(self.nominal, self.time_base)
        context = self.stream.codec_context
        reader = MessageReader(context.codec.canonical_name, context.extradata or b"")
        for packet in self._packets():
            is_presented = packet.size and not packet.is_discard
            offset = clock.advance(packet.dts if is_presented else None)
            if is_presented:
                self.packets_presented += 1
                self.packet_times += [] if packet.pts is None else [packet.pts + offset]
            self.resets = clock.resets
            # A list, because PyAV looks opaque values up by identity, and equal numbers may be one object.
            packet.opaque = noted = [offset, reader.read(bytes(packet))]
            for frame in self._decoded(packet):
                # VP9 delays no picture, so the packet just read is the picture's own. If a picture is shown again, PyAV
                # would name the earlier packet that coded it.
                origin = noted if self.stream.codec_context.name == "vp9" else frame.opaque
                self.pts.append(frame.pts)
                moved = origin[0] if isinstance(origin, list) else offset
                self.stamps.append(None if frame.pts is None else frame.pts + moved)
                self.earliest = self.earliest or frame
                yield frame

    def _packets(self) -> "Iterator[Packet[VideoStream]]":
        try:
            # PyAV raises an error at the end if FFmpeg has found tracks that were missing at the start.
            with suppress(IndexError):
                yield from self.container.demux(self.stream)
        except av.error.FFmpegError:
            # Unreadable data ends the track like the end of the file, so the decoder is still flushed.
            self.damaged_packets += 1
            last = cast("Packet[VideoStream]", Packet(0))
            last.stream = self.stream
            yield last

    def _decoded(self, packet: "Packet[VideoStream]") -> list[VideoFrame]:
        try:
            return list(packet.decode())
        except av.error.FFmpegError:
            self.damaged_packets += 1
            return []

    def timeline(self) -> Timeline:
        """Return the repaired timeline of the frames decoded so far."""
        divisor = divisor_of(self.packet_times, self.time_base)
        timeline = repair(self.stamps, self.nominal, divisor=divisor)
        promised = sorted(time * divisor for time in self.packet_times)
        return replace(
            timeline,
            time_base=self.time_base / divisor,
            resets=self.resets,
            zero=promised[0] if promised else 0,
            packets=tuple(promised or [round(place * timeline.nominal) for place in range(self.packets_presented)]),
        )


@contextmanager
def open_track(source: str, video_track: int = 0) -> Iterator[SequentialDecode]:
    """Open a path or URL to decode a video track from start to end in one thread.

    Raises InputError; NoVideoTrack: there is no such track, or no decoder for it.
    """
    with open_source(source) as container:
        stream = _video_stream(container, source, video_track)
        for other in container.streams:
            if other.index != stream.index:
                other.discard = Discard.all
        # The pictures that a damaged stream gives depend on the number of threads.
        stream.codec_context.thread_count = 1
        stream.codec_context.copy_opaque = True
        # A damaged picture must not depend on which earlier pictures are still held.
        forget_remains(stream.codec_context)
        rate = nominal_frame_rate(stream.guessed_rate, stream.average_rate, stream.base_rate)
        yield SequentialDecode(container, stream, 1 / (rate * Fraction(stream.time_base or 1)))


def _video_stream(container: InputContainer, source: str, video_track: int) -> VideoStream:
    tracks = video_tracks(container)
    if video_track >= len(tracks):
        message = f"{source} has no video track {video_track}; it has {len(tracks)}"
        raise NoVideoTrack(message, "Name a file and a track that have pictures; tracks count from 0.")
    if not is_decodable(tracks[video_track]):
        message = f"FFmpeg cannot decode video track {video_track} of {source}"
        raise NoVideoTrack(message, "Name another track.")
    return tracks[video_track]


def read_timeline(source: str, video_track: int = 0) -> Timeline:
    """Decode a track once, without keeping pictures, and return the time of each frame."""
    with open_track(source, video_track) as decode:
        for _ in decode:
            pass
        return decode.timeline()


def in_presentation_order(decode: SequentialDecode) -> Iterator[tuple[int, VideoFrame]]:
    """Yield a track's frames as they are presented, sorted within ``WINDOW_FRAMES``, while it is decoded.

    Each frame comes with its place in the decoder's output. If the window is too small or the first times are missing,
    the order may differ from ``timeline().order``. Then decode again with ``in_known_order``.
    """
    waiting: list[tuple[int, int, VideoFrame]] = []
    latest: int | None = None
    for place, frame in enumerate(decode):
        time = decode.stamps[place]
        if time is None and latest is not None:
            time = latest + whole_ticks(decode.nominal)
        latest = time
        # Frames before the first known time stay first, in the decoder's order.
        heapq.heappush(waiting, (_BEFORE_ALL if time is None else time, place, frame))
        if len(waiting) > WINDOW_FRAMES:
            yield heapq.heappop(waiting)[1:]
    while waiting:
        yield heapq.heappop(waiting)[1:]


def in_known_order(decode: SequentialDecode, order: Sequence[int]) -> Iterator[tuple[int, VideoFrame]]:
    """Yield the frames of ``order``, which has places in the decoder's output, and drop all other frames.

    A frame that ``order`` repeats is yielded each time. The more disordered the track, the more pictures are held.
    Decoding stops after the last wanted frame.
    """
    wanted = set(order)
    waiting: dict[int, VideoFrame] = {}
    position = 0
    for place, frame in enumerate(decode):
        if place in wanted:
            waiting[place] = frame
        while position < len(order) and order[position] in waiting:
            yield order[position], waiting[order[position]]
            position += 1
            if order[position - 1] not in order[position : position + 1]:
                del waiting[order[position - 1]]
        if position == len(order):
            return


@dataclass(frozen=True, slots=True)
class ComparedPart:
    """The part of a track that is compared."""

    order: tuple[int, ...]  # the places of the part's frames in the decoder's output, with repeats
    times: tuple[int, ...]  # the times of the part's frames, in ticks of ``time_base``
    time_base: Fraction
    zero_s: Fraction  # when the first frame is shown, on the source's clock
    # the time from the part's first frame in the source to the part's last; None for the whole track
    length_s: Fraction | None
    begin_s: Fraction = Fraction(0)  # the time from the track's first frame to the first frame of the part
    last_s: Fraction | None = None  # the duration of the last frame; None if the source does not state it

    @classmethod
    def whole(cls, timeline: Timeline) -> Self:
        """Return the whole of a track as a part."""
        zero_s = (timeline.times[0] if timeline.times else 0) * timeline.time_base
        return cls(timeline.order, timeline.times, timeline.time_base, zero_s, None)

    def time_s(self, number: int) -> Fraction | None:
        """Return when a frame is shown, on the source's clock; None past the last frame."""
        if number >= len(self.times):
            return None
        return self.zero_s + (self.times[number] - self.times[0]) * self.time_base


def at_rate(
    timeline: Timeline, part: ComparedPart, fps: Fraction, start_s: Fraction | None, end_s: Fraction | None
) -> ComparedPart:
    """Return the part of a track from ``start_s`` to ``end_s``, at ``fps`` pictures per second."""
    base = part.time_base
    wanted = max(timeline.packets[0] + ceil((start_s or 0) / base), timeline.times[0])
    first = timeline.packets[min(bisect_left(timeline.packets, wanted), len(timeline.packets) - 1)]
    end = timeline.packets[-1] + max(1, round(timeline.nominal if part.last_s is None else part.last_s / base))
    if end_s is not None:
        end = min(end, timeline.packets[0] + ceil(end_s / base))
    step = 1 / (fps * base)
    lead = min(step, timeline.nominal) / 2
    order: list[int] = []
    while not order or first + len(order) * step + lead < end:
        chosen = first + len(order) * step + lead
        order.append(part.order[max(0, bisect_right(part.times, chosen) - 1)])
    begin_s = part.begin_s + first * base - part.zero_s
    return ComparedPart(tuple(order), tuple(range(len(order))), 1 / fps, first * base, part.length_s, begin_s)
