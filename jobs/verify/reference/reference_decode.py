"""The reference: what one sequential decode of a video track gives, and when each of its pictures is to be shown.

It shares no code with the machinery that cuts, decodes and joins segments: the rules of docs/timeline.md are written
here a second time, over whole lists instead of streams, so that a mistake in one of the two shows as a difference.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate, groupby, pairwise
from math import ceil
from typing import cast

import av.error
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard, Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from ....actors.decode.describe import nominal_frame_rate
from ....actors.decode.picture_memory import forget_remains
from ....actors.media.opening import open_source
from ....errors import NoVideoTrack

RESET_S = 1
"""A decoding clock that steps back by more than this was reset; smaller steps are disorder, and left alone."""

LEAP_S = 6 * 3600
"""One that leaps ahead by more than this was reset too, and FFmpeg took it for a clock that ran through its 33 bits."""

_BEFORE_ALL = -(1 << 80)
WINDOW_FRAMES = 16
"""Pictures held back while they are sorted as they are decoded: the largest picture buffer of H.264 and HEVC."""


DENOMINATOR_MAX = 10**9
"""The finest tick that the source's may be divided into."""


@dataclass(frozen=True, slots=True)
class Nominal:
    """The nominal duration of a frame: ``exact`` in ticks, and ``ticks``, the whole ticks that a repair adds."""

    exact: Fraction

    @property
    def ticks(self) -> int:
        """Whole ticks: rounded half to even, at least 1."""
        return max(1, round(self.exact))


@dataclass(frozen=True, slots=True)
class PacketStamp:
    """The timestamps of a packet, in ticks. ``discarded`` packets yield no picture: an edit list leaves them out."""

    pts: int | None
    dts: int | None
    discarded: bool = False


@dataclass(frozen=True, slots=True)
class FrameStamp:
    """What the decoder said of a frame: its PTS in ticks, and the clock offset of the packet it came from (R1)."""

    pts: int | None
    offset: int = 0

    @property
    def time(self) -> int | None:
        """The PTS on the repaired clock, None where the frame has none."""
        return None if self.pts is None else self.pts + self.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When every frame of a track is to be shown.

    ``order`` lists the frames as presented, by their places in the decoder's output; ``times`` are theirs, repaired and
    strictly increasing, in the source's ticks divided by ``divisor``. The counts say how often each rule acted: clock
    resets, frames without a PTS, frames after a later one, repeated times. ``zero`` is what a requested start and end
    count from: the first time that a presented packet has, whether or not it decodes. ``packets`` are the times that
    all of them promise, in order, and ``nominal`` is a frame's nominal duration.
    """

    order: tuple[int, ...]
    times: tuple[int, ...]
    divisor: int = 1
    resets: int = 0
    missing: int = 0
    disordered: int = 0
    repeated: int = 0
    zero: int = 0
    packets: tuple[int, ...] = ()
    nominal: Fraction = Fraction(1)


class ResetClock:
    """Rule R1 while packets go by: the offset that undoes every reset of the decoding clock so far."""

    def __init__(self, nominal: Nominal, time_base: Fraction) -> None:
        self._step_ticks = nominal.ticks
        self._back_ticks = int(RESET_S / time_base)
        self._ahead_ticks = int(LEAP_S / time_base)
        self._previous: int | None = None
        self.offset = 0
        self.resets = 0

    def advance(self, packet: PacketStamp) -> int:
        """Take the next packet in demux order and return the offset, in ticks, of its timestamps."""
        # A packet without a DTS says nothing about the decoding clock: its PTS runs ahead of it by the reorder delay,
        # which at a low frame rate is many seconds (Matroska leaves the first DTSs of a track out).
        if packet.discarded or packet.dts is None:
            return self.offset
        if self._previous is not None and not -self._back_ticks <= packet.dts - self._previous <= self._ahead_ticks:
            self.offset += self._previous + self._step_ticks - packet.dts
            self.resets += 1
        self._previous = packet.dts
        return self.offset


def divisor_of(times: Sequence[int], time_base: Fraction) -> int:
    """Return by what the source's tick is divided, so that no time that is some frame's own has to move: part of R4.

    ``times`` are those of the presented packets, repaired by R1. Frames that share one need as many ticks as they are,
    up to the next time; a divided tick's denominator is 10^9 at most.
    """
    groups = [(time, len(list(same))) for time, same in groupby(sorted(times))]
    wanted = [Fraction(count, after - time) for (time, count), (after, _) in pairwise(groups)]
    finest = DENOMINATOR_MAX // time_base.denominator
    return max(1, min(ceil(max(wanted, default=1)), finest))


def repair(frames: Sequence[FrameStamp], nominal: Nominal, *, divisor: int = 1, resets: int = 0) -> Timeline:
    """Return when each of a track's frames is to be shown: rules R2, R3 and R4 over the decoder's whole output.

    Stamps and ``nominal`` are in the source's ticks. ``resets`` is only carried into the result.
    """
    nominal = Nominal(nominal.exact * divisor)
    filled = _filled([None if frame.time is None else frame.time * divisor for frame in frames], nominal)
    order = sorted(range(len(filled)), key=filled.__getitem__)
    return Timeline(
        order=tuple(order),
        times=tuple(_spread([filled[frame] for frame in order], nominal)),
        divisor=divisor,
        resets=resets,
        missing=sum(frame.pts is None for frame in frames),
        disordered=sum(time < latest for time, latest in zip(filled, accumulate(filled, max), strict=True)),
        repeated=len(filled) - len(set(filled)),
    )


def _filled(times: Sequence[int | None], nominal: Nominal) -> list[int]:
    """R2: a frame without a time follows the one before it; the first ones lead up to the first known one."""
    first_known = next(((place, time) for place, time in enumerate(times) if time is not None), None)
    if first_known is None:
        return [round(place * nominal.exact) for place in range(len(times))]
    first, anchor = first_known
    filled = [anchor - (first - place) * nominal.ticks for place in range(first)]
    for time in times[first:]:
        filled.append(filled[-1] + nominal.ticks if time is None else time)
    return filled


def _spread(times: Sequence[int], nominal: Nominal) -> list[int]:
    """R4, over sorted times: frames that share a time are spread up to the next one, and no two stay equal."""
    groups = [(time, len(list(same))) for time, same in groupby(times)]
    starts = [time for time, _ in groups]
    followings: list[int | None] = [*starts[1:], None]
    step_ticks = max(1, int(nominal.exact))
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
    """One sequential decode of a video track: iterate it once for the frames, in the decoder's output order.

    ``damaged_packets`` counts the packets that failed to decode. All is final once the iteration has ended.
    """

    container: InputContainer
    stream: VideoStream
    nominal: Nominal
    stamps: list[FrameStamp] = field(default_factory=list)
    packet_times: list[int] = field(default_factory=list)
    packets_presented: int = 0
    damaged_packets: int = 0
    resets: int = 0
    earliest: VideoFrame | None = None
    """The first frame that was decoded, whichever are asked for."""

    @property
    def time_base(self) -> Fraction:
        """Seconds in a tick of the source."""
        return Fraction(self.stream.time_base or 1)

    def __iter__(self) -> Iterator[VideoFrame]:
        clock = ResetClock(self.nominal, self.time_base)
        for packet in self._packets():
            stamp = PacketStamp(packet.pts, packet.dts, packet.is_discard)
            offset = clock.advance(stamp) if packet.size else clock.offset
            if packet.size and not packet.is_discard:
                self.packets_presented += 1
                self.packet_times += [] if packet.pts is None else [packet.pts + offset]
            self.resets = clock.resets
            # A list, never the bare number: PyAV finds opaque values again by their identity, and numbers share it.
            packet.opaque = [offset]
            for frame in self._decoded(packet):
                # VP9 labels a picture that is shown again with the packet that coded it; none is delayed.
                origin = [offset] if self.stream.codec_context.name == "vp9" else frame.opaque
                self.stamps.append(FrameStamp(frame.pts, origin[0] if isinstance(origin, list) else offset))
                self.earliest = self.earliest or frame
                yield frame

    def _packets(self) -> "Iterator[Packet[VideoStream]]":
        try:
            # PyAV ends with an error where FFmpeg has found tracks that were not there when the source was opened.
            with suppress(IndexError):
                yield from self.container.demux(self.stream)
        except av.error.FFmpegError:
            # What cannot be read ends the track, as the end of the file does: the decoder is flushed all the same.
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
        timeline = repair(self.stamps, self.nominal, divisor=divisor, resets=self.resets)
        nominal = self.nominal.exact * divisor
        promised = sorted(time * divisor for time in self.packet_times)
        promised = promised or [round(place * nominal) for place in range(self.packets_presented)]
        zero = promised[0] if self.packet_times else 0
        return replace(timeline, zero=zero, packets=tuple(promised), nominal=nominal)


@contextmanager
def open_track(source: str, video_track: int = 0) -> Iterator[SequentialDecode]:
    """Open ``source`` (path or URL) to decode its video track number ``video_track`` from start to end in one thread.

    Raises:
        InputError: the source cannot be opened or read.
        NoVideoTrack: it has no such track, or no decoder for it.
    """
    with open_source(source) as container:
        stream = _video_stream(container, source, video_track)
        for other in container.streams:
            if other.index != stream.index:
                other.discard = Discard.all
        # The thread count changes what a damaged stream decodes to.
        stream.codec_context.thread_count = 1
        stream.codec_context.copy_opaque = True
        # What a damaged picture shows must not depend on the pictures before it, nor on who still holds them.
        forget_remains(stream.codec_context)
        rate = nominal_frame_rate(stream.guessed_rate, stream.average_rate, stream.base_rate)
        yield SequentialDecode(container, stream, Nominal(1 / (rate * Fraction(stream.time_base or 1))))


def _video_stream(container: InputContainer, source: str, video_track: int) -> VideoStream:
    cover = int(Disposition.attached_pic)
    tracks = [stream for stream in container.streams.video if not int(stream.disposition) & cover]
    if video_track >= len(tracks):
        message = f"{source} has no video track {video_track}; it has {len(tracks)}"
        raise NoVideoTrack(message, "Name a file and a track that have pictures; tracks count from 0.")
    stream = tracks[video_track]
    context: object = stream.codec_context
    if context is None:  # PyAV has no type for a stream FFmpeg knows no decoder for
        message = f"video track {video_track} of {source} is in a format FFmpeg cannot decode"
        raise NoVideoTrack(message, "Name another track.")
    return stream


def read_timeline(source: str, video_track: int = 0) -> Timeline:
    """Decode a track once, keeping no picture, and return when each frame is to be shown.

    Raises:
        InputError: the source cannot be opened or read.
        NoVideoTrack: it has no such track.
    """
    with open_track(source, video_track) as decode:
        for _ in decode:
            pass
        return decode.timeline()


def in_presentation_order(decode: SequentialDecode) -> Iterator[tuple[int, VideoFrame]]:
    """Yield a track's frames as they are presented, sorted within a window of ``WINDOW_FRAMES``, while it is decoded.

    Each comes with its place in the decoder's output. Where the window is too small, or the first times are missing,
    the order may differ from ``timeline().order``: then read the track again with ``in_known_order``.
    """
    waiting: list[tuple[int, int, VideoFrame]] = []
    latest: int | None = None
    for place, frame in enumerate(decode):
        time = decode.stamps[place].time
        if time is None:
            time = None if latest is None else latest + decode.nominal.ticks
        latest = time
        # Frames before the first known time stay first, in the decoder's order.
        heapq.heappush(waiting, (_BEFORE_ALL if time is None else time, place, frame))
        if len(waiting) > WINDOW_FRAMES:
            yield heapq.heappop(waiting)[1:]
    while waiting:
        yield heapq.heappop(waiting)[1:]


def in_known_order(decode: SequentialDecode, order: Sequence[int]) -> Iterator[tuple[int, VideoFrame]]:
    """Yield the frames named in ``order`` (places in the decoder's output), in that order, dropping all others.

    A frame that is named several times in a row comes as often. It holds as many pictures as the track is disordered,
    and stops decoding once the last one is out.
    """
    rank = {place: position for position, place in enumerate(order)}
    waiting: dict[int, VideoFrame] = {}
    position = 0
    for place, frame in enumerate(decode):
        if place in rank:
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
    """What of a track is compared: its frames in ``order``, each as often as it is shown, and their ``times``.

    Times are in ticks of ``time_base`` and begin at ``zero_s`` of the source's clock.
    """

    order: tuple[int, ...]
    times: tuple[int, ...]
    time_base: Fraction
    zero_s: Fraction
    length_s: Fraction | None
    """From the source's first frame in it to the last; None where it is the whole track."""
    begin_s: Fraction = Fraction(0)
    """From the track's first frame to the part's."""
    last_s: Fraction | None = None
    """How long the last one is shown; None where the source does not say."""

    def time_s(self, number: int) -> Fraction | None:
        """Return when a frame is shown, on the source's clock; None behind the last."""
        if number >= len(self.times):
            return None
        return self.zero_s + (self.times[number] - self.times[0]) * self.time_base


def at_rate(
    timeline: Timeline,
    part: ComparedPart,
    fps: Fraction,
    start_s: Fraction | None,
    end_s: Fraction | None,
) -> ComparedPart:
    """Return a part of a track at ``fps`` pictures a second; ``start_s`` and ``end_s`` are its own."""
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
