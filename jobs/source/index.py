"""The index of a video track: every packet's times, flags and place, from one demux pass that decodes nothing.

Nothing here trusts a header's duration or frame count, and a keyframe *flag* is only a candidate for a cut.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
from av.container import InputContainer
from av.stream import Disposition
from av.video.stream import VideoStream
from numpy.typing import NDArray

from ...actors.bitstream.access_points import RandomAccess, random_access_kind
from ...actors.bitstream.picture_sizes import PictureSizes
from ...actors.decode.describe import nominal_frame_rate
from ...actors.media.seeking import AccessPoint
from ...actors.media.timeline import (
    LONGEST_GAP_S,
    MOST_HELD_FRAMES,
    REORDER_FRAMES,
    RESET_S,
    TimeShift,
    nominal_ticks,
    tick_divisor,
    whole_ticks,
)
from ...actors.media.values import PictureSize
from ...errors import InputUnreadable, NoVideoTrack
from .whole_pictures import WholePictures

if TYPE_CHECKING:
    from av.packet import Packet


MISSING = np.iinfo(np.int64).min
"""A timestamp the container does not give."""

KEY, DISCARD, CORRUPT = 1, 2, 4

_FARTHEST_TICKS = 1 << 61

CLEAN_ACCESS_POINTS, CLEAN_PACKETS = 2, 2 * REORDER_FRAMES
"""How long a clean run must be so that no picture from before it is left in a decoder."""

_RESETTING_KEYFRAMES = frozenset({"vp8", "vp9", "av1"})


@dataclass(frozen=True, eq=False)
class TrackIndex:
    """Every packet of one video track, in demux order. Arrays are int64 ticks of ``time_base`` unless named otherwise.

    ``time_base`` is the source's tick divided by ``tick_divisor`` (rule R4); ``dts`` and ``shifts`` are in the source's
    own ticks. ``pts`` already has rule R1's ``shifts`` in it. ``kinds`` says, for packets flagged as keyframes, what
    kind of random access point they are; where a codec has no such notion, a flagged packet counts as an IDR.
    ``has_whole_pictures`` says that every packet is known to show one whole picture. ``sizes`` has what the headers of
    access points say of their pictures' size, by packet, where the codec's are read.
    """

    source: str
    stream_index: int
    codec: str
    time_base: Fraction
    frame_rate: Fraction
    pts: NDArray[np.int64]
    dts: NDArray[np.int64]
    pos_bytes: NDArray[np.int64]
    sizes_bytes: NDArray[np.int64]
    flags: NDArray[np.uint8]
    kinds: dict[int, RandomAccess]
    shifts: tuple[TimeShift, ...]
    has_whole_pictures: bool = False
    tick_divisor: int = 1
    sizes: Mapping[int, PictureSize] = field(default_factory=dict)

    @property
    def packets(self) -> int:
        """How many packets the track has."""
        return len(self.pts)

    @cached_property
    def nominal_ticks(self) -> Fraction:
        """A frame's nominal duration."""
        return nominal_ticks(self.frame_rate, self.time_base)

    @cached_property
    def presented(self) -> NDArray[np.bool_]:
        """Which packets are shown: those that no edit list discards."""
        return np.asarray((self.flags & DISCARD) == 0)

    @cached_property
    def timed(self) -> NDArray[np.bool_]:
        """Which packets are presented at a known time."""
        return np.asarray(self.presented & (self.pts != MISSING))

    @cached_property
    def untimed(self) -> bool:
        """Whether no packet has a PTS at all, so that frames are simply counted."""
        return not bool((self.pts != MISSING).any())

    @cached_property
    def times(self) -> NDArray[np.int64]:
        """The presentation times that the index promises, sorted."""
        if self.untimed:
            count = int(self.presented.sum())
            return np.array([round(n * self.nominal_ticks) for n in range(count)], dtype=np.int64)
        return np.sort(self.pts[self.timed])

    @property
    def first_ticks(self) -> int:
        """When the first picture is presented."""
        return int(self.times[0])

    @property
    def end_ticks(self) -> int:
        """When the last picture's nominal duration is over."""
        return int(self.times[-1]) + whole_ticks(self.nominal_ticks)

    @property
    def duration_s(self) -> Fraction:
        """From the first picture to the end of the last one."""
        return (self.end_ticks - self.first_ticks) * self.time_base

    @cached_property
    def access_points(self) -> tuple[AccessPoint, ...]:
        """Where decoding may begin, in demux order."""
        numbers = np.flatnonzero((self.flags & KEY) != 0)
        return tuple(self.access_point(int(n)) for n in numbers if self.kinds.get(int(n)) is not RandomAccess.NONE)

    @cached_property
    def largest_size(self) -> PictureSize | None:
        """The largest display size that pictures change to or from; None where they have one size, or none is stated.

        An access point counts if anything up to the next one is presented. Of sizes that cover the same area, the one
        with more samples is the larger, then the earlier.
        """
        ends = [*(point.packet for point in self.access_points), self.packets]
        shown = [
            self.sizes[begin]
            for begin, end in pairwise(ends)
            if begin in self.sizes and bool(self.presented[begin:end].any())
        ]
        if len({(size.width, size.height) for size in shown}) < 2:  # noqa: PLR2004 - one size never changes
            return None
        return max(shown, key=lambda size: (size.display_area, size.width * size.height))

    def resets_decoder(self, packet: int) -> bool:
        """Return whether ``packet`` resets a decoder's state: an IDR, or a VP8 / VP9 / AV1 keyframe."""
        kind = self.kinds.get(packet)
        return kind is RandomAccess.IDR or (kind is RandomAccess.FLAGGED and self.codec in _RESETTING_KEYFRAMES)

    def is_sound(self, entry: AccessPoint | None, first_damage: int | None) -> bool:
        """Return whether decoding from ``entry`` meets damage in the state of a decoder that came from the start.

        What a decoder makes of damage depends on the pictures it holds. They are the same if the entry cleared them
        and decoded itself, or if a clean run behind it has replaced every one of them.
        """
        if entry is None or first_damage is None:
            return True
        if self.resets_decoder(entry.packet):
            return first_damage > entry.packet
        points = [point.packet for point in self.access_points if entry.packet < point.packet < first_damage]
        return len(points) >= CLEAN_ACCESS_POINTS and first_damage - entry.packet >= CLEAN_PACKETS

    def access_point(self, packet: int) -> AccessPoint:
        """Return how to find ``packet`` again; its timestamps are the container's own, without rule R1's shifts."""
        shift = sum(shift.ticks for shift in self.shifts if shift.first_packet <= packet)
        pts, dts = int(self.pts[packet]), int(self.dts[packet])
        return AccessPoint(
            packet=packet,
            pos_bytes=int(self.pos_bytes[packet]),
            pts=None if pts == MISSING else pts // self.tick_divisor - shift,
            dts=None if dts == MISSING else dts,
            is_unique=not bool(self._repeated[packet]),
            is_discarded=not bool(self.presented[packet]),
        )

    @cached_property
    def _repeated(self) -> NDArray[np.bool_]:
        """Which packets have a twin: read from the same place, for the same moment of either clock."""
        repeated = np.zeros(self.packets, dtype=bool)
        for clock in (self.pts, self.dts):
            known = np.flatnonzero(clock != MISSING)
            order = known[np.lexsort((clock[known], self.pos_bytes[known]))]
            same = np.flatnonzero((np.diff(clock[order]) == 0) & (np.diff(self.pos_bytes[order]) == 0))
            repeated[order[same]] = repeated[order[same + 1]] = True
        return repeated

    @cached_property
    def _overtaken(self) -> NDArray[np.int64]:
        """How many packets ahead of each timed one are shown after it; counted as far as matters."""
        return overtaken(self.pts[self.timed], MOST_HELD_FRAMES)

    @property
    def held_frames(self) -> int:
        """How many pictures are held at most to sort them: as the packets need, and what a decoder may add to that.

        A decoder goes by the bitstream's own order, not by the times: where some of those are wrong, what it adds is
        not known.
        """
        if self._repeated_times.any():
            return MOST_HELD_FRAMES
        return min(MOST_HELD_FRAMES, REORDER_FRAMES + int(self._overtaken.max(initial=0)))

    @property
    def late_frames(self) -> int:
        """How many pictures come later than ``held_frames`` could put in order (rule R3)."""
        return int((self._overtaken > MOST_HELD_FRAMES - REORDER_FRAMES).sum())

    @cached_property
    def unreliable(self) -> NDArray[np.int64]:
        """Packets around which no cut may fall: a time is missing, repeated, or jumps back there."""
        missing = self.presented & (self.pts == MISSING)
        backward = np.zeros(self.packets, dtype=bool)
        decoding = np.flatnonzero((self.dts != MISSING) & self.presented)
        backward[decoding[1:][np.diff(self.dts[decoding]) < 0]] = True
        return np.flatnonzero(missing | self._repeated_times | backward)

    @cached_property
    def _repeated_times(self) -> NDArray[np.bool_]:
        """Which packets share their presentation time with another."""
        repeated = np.zeros(self.packets, dtype=bool)
        known = np.flatnonzero(self.timed)
        order = known[np.argsort(self.pts[known], kind="stable")]
        same = np.flatnonzero(np.diff(self.pts[order]) == 0)
        repeated[order[same]] = repeated[order[same + 1]] = True
        return repeated

    def is_unreliable(self, packet: int) -> bool:
        """Return whether ``packet`` lies inside an unreliable span, or within a decoder's reordering of one."""
        near = np.searchsorted(self.unreliable, packet - REORDER_FRAMES)
        return bool(near < len(self.unreliable) and int(self.unreliable[near]) <= packet + REORDER_FRAMES)

    def frames_between(self, start: int | None, end: int | None) -> int:
        """How many pictures the index promises in [start, end)."""
        low = 0 if start is None else int(np.searchsorted(self.times, start))
        high = len(self.times) if end is None else int(np.searchsorted(self.times, end))
        return max(0, high - low)

    def last_packet_before(self, end: int, beyond_frames: int) -> int:
        """Return the last packet, in demux order, that pictures before ``end`` and ``beyond_frames`` after it need.

        Not one more where each packet shows a picture of its time; where no time is known, that is all of them.
        """
        cut = int(np.searchsorted(self.times, end)) + beyond_frames - 1
        if cut >= len(self.times) - 1 or self.untimed:
            return self.packets - 1
        wanted = self.timed & (self.pts <= self.times[cut])
        return int(np.flatnonzero(wanted)[-1])

    def packets_from(self, entry: AccessPoint | None, last_packet: int | None) -> int:
        """Return how many packets lie from ``entry`` through ``last_packet``."""
        stop = self.packets if last_packet is None else last_packet + 1
        return stop - (0 if entry is None else entry.packet)

    def expected_from(self, entry: AccessPoint | None, last_packet: int | None) -> Sequence[int]:
        """Return the sorted times of the pictures that decoding from ``entry`` through ``last_packet`` should give."""
        stop = self.packets if last_packet is None else last_packet + 1
        span = slice(0 if entry is None else entry.packet, stop)
        times = np.sort(self.pts[span][self.timed[span]])
        if entry is not None and self.pts[entry.packet] != MISSING:
            times = times[times >= self.pts[entry.packet]]
        return [int(t) for t in times]


def video_stream(container: InputContainer, source: str, track: int) -> VideoStream:
    """Return the ``track``-th video track of an open source, counted from 0; cover art does not count.

    Raises:
        NoVideoTrack: there is none, or not that many.
        InputUnreadable: there is no track of any kind, or the codec is unknown here.
    """
    if not container.streams:
        message = f"{source} holds no track at all"
        raise InputUnreadable(message, "It is cut short, or only refers to other files; name a complete media file.")
    tracks = [s for s in container.streams.video if not Disposition(s.disposition) & Disposition.attached_pic]
    if not tracks:
        message = f"{source} has no video to encode"
        raise NoVideoTrack(message, "Give a file with a video track; codecfleet does not convert sound alone.")
    if track >= len(tracks):
        message = f"{source} has no video track {track}: it has {len(tracks)}"
        raise NoVideoTrack(message, "Count from 0; `codecfleet probe` lists the tracks.")
    stream = tracks[track]
    # PyAV's types promise a context; a codec that FFmpeg does not know has none.
    if getattr(stream, "codec_context", None) is None:
        message = f"the video of {source} is in a codec that cannot be decoded here"
        raise InputUnreadable(message, "`codecfleet probe` names the codec.")
    return stream


class TrackIndexer:
    """Sees every packet of one video track, in demux order, and makes the index of them. Used once."""

    def __init__(self, stream: VideoStream) -> None:
        context = stream.codec_context
        self._stream = stream
        # The codec's own rate first: a raw bitstream's container only knows a default. As the track begins: where
        # parameters change in mid-stream, FFmpeg's guess does too.
        self._rate = nominal_frame_rate(stream.guessed_rate, stream.average_rate, stream.base_rate)
        self._codec = context.codec.canonical_name
        self._extradata = context.extradata or b""
        self._pictures = WholePictures(self._codec, self._extradata)
        self._picture_sizes = PictureSizes(self._codec, self._extradata)
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._kinds: dict[int, RandomAccess] = {}
        self._sizes: dict[int, PictureSize] = {}

    def see(self, packet: "Packet[VideoStream]") -> None:
        """Take the next packet."""
        flags = packet.is_keyframe * KEY | packet.is_discard * DISCARD | packet.is_corrupt * CORRUPT
        pts = MISSING if packet.pts is None else packet.pts
        dts = MISSING if packet.dts is None else packet.dts
        if packet.is_keyframe:
            self._see_keyframe(packet)
        self._rows.append((pts, dts, -1 if packet.pos is None else packet.pos, packet.size, flags))
        self._pictures.see(packet)

    def _see_keyframe(self, packet: "Packet[VideoStream]") -> None:
        number, data = len(self._rows), bytes(packet)
        self._kinds[number] = random_access_kind(self._codec, data, self._extradata)
        extradata = b""
        if packet.has_sidedata("new_extradata"):
            extradata = next(bytes(entry) for entry in packet.iter_sidedata() if entry.data_type == "new_extradata")
        size = self._picture_sizes.size(data, extradata)
        if size is not None and not packet.is_corrupt:
            self._sizes[number] = size

    def index(self, source: str) -> TrackIndex:
        """Build the index of what was seen.

        Raises:
            InputUnreadable: there were no packets, or their times are too far from 0 to reckon with.
        """
        if not self._rows:
            message = f"the video track of {source} has no packets"
            raise InputUnreadable(message, "It is cut short, empty, or refers to another file; get a complete one.")
        stream = self._stream
        time_base = Fraction(stream.time_base or 1)
        columns = np.array(self._rows, dtype=np.int64)
        pts, dts, flags = columns[:, 0].copy(), columns[:, 1], columns[:, 4].astype(np.uint8)
        _refuse_far(source, _farthest(pts), _farthest(dts))
        rate = self._rate
        shifts = find_resets(dts, flags, time_base, rate)
        _refuse_far(source, *accumulate(shift.ticks for shift in shifts))
        for shift in shifts:
            later = pts[shift.first_packet :]
            later[later != MISSING] += shift.ticks
        divisor = tick_divisor(_shared_times(pts, flags), time_base)
        _refuse_far(source, _farthest(pts) * divisor)
        pts[pts != MISSING] *= divisor
        return TrackIndex(
            source=source,
            stream_index=stream.index,
            codec=self._codec,
            time_base=time_base / divisor,
            frame_rate=rate,
            pts=pts,
            dts=dts,
            pos_bytes=columns[:, 2],
            sizes_bytes=columns[:, 3],
            flags=flags,
            kinds=self._kinds,
            shifts=shifts,
            has_whole_pictures=self._pictures.are_proven,
            tick_divisor=divisor,
            sizes=self._sizes,
        )


def _farthest(times: NDArray[np.int64]) -> int:
    known = times[times != MISSING]
    return max(-int(known.min()), int(known.max())) if len(known) else 0


def _refuse_far(source: str, *ticks: int) -> None:
    """Raise InputUnreadable for times or shifts of which two might not add up in 64 bits."""
    if any(abs(each) > _FARTHEST_TICKS for each in ticks):
        message = f"the video track of {source} states times that are too far apart to be true"
        raise InputUnreadable(message, "Its clock is damaged; get an intact copy, or extract the bare video stream.")


def overtaken(times: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return for each time how many of those ahead of it are later, ``most`` at most."""
    counts = np.zeros(len(times), dtype=np.int64)
    if not bool((np.diff(times) < 0).any()):
        return counts
    latest: list[int] = []
    for place, time in enumerate(times.tolist()):
        at = bisect_right(latest, time)
        counts[place] = len(latest) - at
        latest.insert(at, time)
        del latest[:-most]
    return counts


def _shared_times(pts: NDArray[np.int64], flags: NDArray[np.uint8]) -> Iterator[tuple[int, int]]:
    """Yield, of every time that presented packets share, how many do, and how many ticks there are up to the next."""
    times, counts = np.unique(pts[(pts != MISSING) & ((flags & DISCARD) == 0)], return_counts=True)
    for place in np.flatnonzero(counts[:-1] > 1):
        yield int(counts[place]), int(times[place + 1] - times[place])


def find_resets(
    dts: NDArray[np.int64], flags: NDArray[np.uint8], time_base: Fraction, rate: Fraction
) -> tuple[TimeShift, ...]:
    """Find where the source's clock was reset, and how far to shift what follows (rule R1).

    Only the decoding clock is watched: presentation times step back at every B-picture.
    """
    watched = np.flatnonzero((dts != MISSING) & ((flags & DISCARD) == 0))
    steps = np.diff(dts[watched])
    step = whole_ticks(nominal_ticks(rate, time_base))
    shifts = []
    back, ahead = int(RESET_S / time_base), int(LONGEST_GAP_S / time_base)
    for place in np.flatnonzero((steps < -back) | (steps > ahead)):
        before, packet = int(watched[place]), int(watched[place + 1])
        shifts.append(TimeShift(packet, int(dts[before]) + step - int(dts[packet])))
    return tuple(shifts)
