"""The index of a video track: every packet's times, flags and position. Durations and counts in headers are ignored."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil

import numpy as np
from numpy.typing import NDArray

from ...actors.bitstream.access_points import RandomAccess
from ...actors.limits import InputLimits
from ...actors.media.headers import FilePart, Fragments
from ...actors.media.seeking import AccessPoint
from ...actors.media.timeline import MOST_HELD_FRAMES, REORDER_FRAMES, TimeShift, nominal_ticks, whole_ticks
from ...actors.media.values import Colour, PictureSize
from .last_picture import LONGEST_S

MISSING = np.iinfo(np.int64).min  #: The value of a missing timestamp
_NO_TIME = 1 << 62  #: Later than any timestamp that ``indexer.py`` accepts
KEY, DISCARD, CORRUPT = 1, 2, 4  #: Flags of a packet
CLEAN_ACCESS_POINTS, CLEAN_PACKETS = 2, 2 * REORDER_FRAMES
"""A decoder that has passed this many access points and this many packets holds no earlier picture."""
_RESETTING_KEYFRAMES = frozenset({"vp8", "vp9", "av1"})


@dataclass(frozen=True, eq=False)
class TrackIndex:
    """Every packet of one video track, in demux order. Each array has one entry per packet."""

    source: str  #: Path or URL
    stream_index: int
    codec: str  #: FFmpeg's name
    time_base: Fraction  #: The source's tick divided by ``tick_divisor`` (rule R4)
    frame_rate: Fraction  #: The nominal frame rate
    pts: NDArray[np.int64]  #: PTS in ``time_base``, with the ``shifts`` of rule R1 applied
    dts: NDArray[np.int64]  #: DTS in the source's own ticks, without ``shifts``
    pos_bytes: NDArray[np.int64]  #: Offsets in the file; -1 if unknown
    sizes_bytes: NDArray[np.int64]
    flags: NDArray[np.uint8]
    kinds: dict[int, RandomAccess]  #: The kind of each flagged keyframe, by packet
    shifts: tuple[TimeShift, ...]  #: Clock resets, in the source's own ticks
    has_whole_pictures: bool = False  #: Whether every packet is proven to show one whole picture
    tick_divisor: int = 1
    sizes: Mapping[int, PictureSize] = field(default_factory=dict)  #: Sizes at access points, from the headers
    max_pixels: int = InputLimits().max_pixels  #: The largest allowed number of pixels in one picture
    colours: tuple[tuple[int, Colour], ...] = ()  #: Packets at which colours change, and the new colours
    #: Matroska's index as far as it was read: (ticks, position) of each keyframe
    clusters: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    fragments: Fragments | None = None  #: The fragments of a fragmented mp4; None for other files
    stated_last_ticks: Fraction | None = None  #: The last picture's duration if the container states it, otherwise None

    @property
    def packets(self) -> int:
        """How many packets the track has."""
        return len(self.pts)

    @cached_property
    def nominal_ticks(self) -> Fraction:
        """A picture's nominal duration, in ticks of ``time_base``."""
        return nominal_ticks(self.frame_rate, self.time_base)

    @cached_property
    def presented(self) -> NDArray[np.bool_]:
        """For each packet, whether it is visible: not discarded by an edit list."""
        return np.asarray((self.flags & DISCARD) == 0)

    @cached_property
    def timed(self) -> NDArray[np.bool_]:
        """For each packet, whether it is visible and has a known time."""
        return np.asarray(self.presented & (self.pts != MISSING))

    @cached_property
    def untimed(self) -> bool:
        """Whether no packet has a PTS; pictures are then counted."""
        return not bool((self.pts != MISSING).any())

    @cached_property
    def times(self) -> NDArray[np.int64]:
        """The presentation times in the index, sorted."""
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
        """When the last picture ends."""
        return int(self.times[-1]) + whole_ticks(self.shown_ticks(None))

    @property
    def _last_ticks(self) -> Fraction:
        """The last picture's duration: as stated if that is plausible and a tick or more from nominal, else nominal."""
        stated, nominal = self.stated_last_ticks, self.nominal_ticks
        is_nominal = stated is None or abs(stated - nominal) < 1 or self.states_too_long
        return nominal if is_nominal or stated is None else stated

    @property
    def states_too_long(self) -> bool:
        """Whether the stated duration of the last picture is implausible."""
        return self.stated_last_ticks is not None and self.stated_last_ticks * self.time_base > LONGEST_S

    @property
    def stated_last_words(self) -> str:
        """The stated duration of the last picture, in words."""
        stated = self.stated_last_ticks or 0
        return f"the {float(stated * self.time_base / 3600):.1f} hours that the container states"

    def last_before(self, end: int | None) -> int | None:
        """Return the time of the last picture before ``end``; None if there is no such picture."""
        place = self._place(end)
        return int(self.times[place - 1]) if place else None

    def _place(self, end: int | None) -> int:
        return len(self.times) if end is None else int(np.searchsorted(self.times, end))

    def shown_ticks(self, end: int | None) -> Fraction:
        """Return the duration of the last picture before ``end``, by default the track's last picture.

        The picture lasts until ``end``, but at least for its nominal duration, and never past the next picture.
        """
        place = self._place(end)
        if not 0 < place < len(self.times):
            own = self._last_ticks
        else:
            own = Fraction(int(self.times[place] - self.times[place - 1]))
        if end is None or not place:
            return own
        return min(own, max(Fraction(end - int(self.times[place - 1])), self.nominal_ticks))

    @property
    def duration_s(self) -> Fraction:
        """The time from the first picture to the end of the last picture."""
        return (self.end_ticks - self.first_ticks) * self.time_base

    def check(self, limits: InputLimits) -> None:
        """Raise InputTooLarge if the track's duration or frame rate exceeds a limit."""
        rate = float(self.frame_rate)
        limits.check("max_frame_rate", self.frame_rate, f"{self.source} states {rate:g} frames a second")
        if len(self.times):
            duration = float(self.duration_s)
            limits.check("max_duration_s", self.duration_s, f"{self.source} states {duration:.0f} s of video")

    @cached_property
    def access_points(self) -> tuple[AccessPoint, ...]:
        """The flagged keyframes at which decoding can start, in demux order."""
        numbers = np.flatnonzero((self.flags & KEY) != 0)
        return tuple(self.access_point(int(n)) for n in numbers if self.kinds.get(int(n)) is not RandomAccess.NONE)

    @cached_property
    def largest_size(self) -> PictureSize | None:
        """The largest display size of a track whose size changes; otherwise None.

        An access point counts if a picture before the next access point is visible. If several sizes are equally large,
        the one with the most samples counts, or the first such size.
        """
        ends = [*(point.packet for point in self.access_points), self.packets]
        shown = [
            self.sizes[begin]
            for begin, end in pairwise(ends)
            if begin in self.sizes and bool(self.presented[begin:end].any())
        ]
        if len(set(shown)) <= 1:
            return None
        return max(shown, key=lambda size: (size.display_area, size.width * size.height))

    def resets_decoder(self, packet: int) -> bool:
        """Return whether ``packet`` resets a decoder's state: an IDR, or a VP8 / VP9 / AV1 keyframe."""
        kind = self.kinds.get(packet)
        return kind is RandomAccess.IDR or (kind is RandomAccess.FLAGGED and self.codec in _RESETTING_KEYFRAMES)

    def is_sound(self, entry: AccessPoint | None, first_damage: int | None) -> bool:
        """Return whether decoders started at ``entry`` and at the track's start decode damage in the same way.

        Damaged pictures depend on their reference pictures. Both decoders have the same references if ``entry`` resets
        the decoder and is undamaged, or if enough undamaged packets follow to replace all earlier references.
        """
        if entry is None or first_damage is None:
            return True
        if self.resets_decoder(entry.packet):
            return first_damage > entry.packet
        points = [point.packet for point in self.access_points if entry.packet < point.packet < first_damage]
        return len(points) >= CLEAN_ACCESS_POINTS and first_damage - entry.packet >= CLEAN_PACKETS

    def access_point(self, packet: int) -> AccessPoint:
        """Return ``packet`` as an access point, with the container's own timestamps (without the shifts of rule R1)."""
        shift = sum(shift.ticks for shift in self.shifts if shift.first_packet <= packet)
        pts, dts = int(self.pts[packet]), int(self.dts[packet])
        return AccessPoint(
            packet=packet,
            pos_bytes=int(self.pos_bytes[packet]),
            pts=None if pts == MISSING else pts // self.tick_divisor - shift,
            dts=None if dts == MISSING else dts,
            is_unique=not bool(self._repeated[packet]),
            is_discarded=not bool(self.presented[packet]),
            indexed=() if pts == MISSING else self._in_clusters(pts // self.tick_divisor - shift, packet),
        )

    def _in_clusters(self, ticks: int, packet: int) -> tuple[tuple[int, int], ...]:
        """Return Matroska's index entry for the keyframe at a time, and the next entry; () if the keyframe has none.

        If there is no next entry, return an entry at an unreachable time, so that the demuxer does not search the whole
        file.
        """
        place = int(np.searchsorted(self.clusters[:, 0], ticks))
        found = [(int(at), int(cluster)) for at, cluster in self.clusters[place : place + 2]]
        if not found or found[0][0] != ticks or found[0][1] >= self.pos_bytes[packet]:
            return ()
        own, following = found if len(found) > 1 else (found[0], (_NO_TIME, found[0][1]))
        return own, following

    @cached_property
    def _repeated(self) -> NDArray[np.bool_]:
        """For each packet, whether it is read twice: another has the same position, and the same PTS or DTS."""
        repeated = np.zeros(self.packets, dtype=bool)
        for clock in (self.pts, self.dts):
            known = np.flatnonzero(clock != MISSING)
            order = known[np.lexsort((clock[known], self.pos_bytes[known]))]
            same = np.flatnonzero((np.diff(clock[order]) == 0) & (np.diff(self.pos_bytes[order]) == 0))
            repeated[order[same]] = repeated[order[same + 1]] = True
        return repeated

    @cached_property
    def _overtaken(self) -> NDArray[np.int64]:
        """How many earlier packets are shown after each timed packet, counted up to a limit."""
        return overtaken(self.pts[self.timed], MOST_HELD_FRAMES)

    @property
    def held_frames(self) -> int:
        """How many pictures to hold for sorting, including those the decoder reorders; the maximum if times repeat."""
        if self._repeated_times.any():
            return MOST_HELD_FRAMES
        return min(MOST_HELD_FRAMES, REORDER_FRAMES + int(self._overtaken.max(initial=0)))

    @property
    def late_frames(self) -> int:
        """How many pictures come too late to be sorted when ``held_frames`` are held (rule R3)."""
        return int((self._overtaken > MOST_HELD_FRAMES - REORDER_FRAMES).sum())

    @cached_property
    def unreliable(self) -> NDArray[np.int64]:
        """Packets around which nothing may be cut, because their times are missing, repeat, or jump back."""
        missing = self.presented & (self.pts == MISSING)
        backward = np.zeros(self.packets, dtype=bool)
        decoding = np.flatnonzero((self.dts != MISSING) & self.presented)
        backward[decoding[1:][np.diff(self.dts[decoding]) < 0]] = True
        return np.flatnonzero(missing | self._repeated_times | backward)

    @cached_property
    def _repeated_times(self) -> NDArray[np.bool_]:
        repeated = np.zeros(self.packets, dtype=bool)
        known = np.flatnonzero(self.timed)
        order = known[np.argsort(self.pts[known], kind="stable")]
        same = np.flatnonzero(np.diff(self.pts[order]) == 0)
        repeated[order[same]] = repeated[order[same + 1]] = True
        return repeated

    def is_unreliable(self, packet: int) -> bool:
        """Return whether an unreliable packet is within reordering distance of ``packet``."""
        near = np.searchsorted(self.unreliable, packet - REORDER_FRAMES)
        return bool(near < len(self.unreliable) and int(self.unreliable[near]) <= packet + REORDER_FRAMES)

    def times_between(self, start: int | None, end: int | None) -> NDArray[np.int64]:
        """Return the times of the pictures in [start, end), sorted."""
        # NumPy's search would release the GIL, and then wait for it behind all threads that decode.
        times = self.times.data
        low = 0 if start is None else bisect_left(times, start)
        high = len(times) if end is None else bisect_left(times, end)
        return self.times[low:high]

    def frames_between(self, start: int | None, end: int | None) -> int:
        """Return how many pictures the index has in [start, end)."""
        return len(self.times_between(start, end))

    def tick_at(self, time_s: Fraction) -> int:
        """Return the first tick at or after ``time_s``, which counts from the first picture."""
        return self.first_ticks + ceil(time_s / self.time_base)

    def shown_at(self, ticks: int) -> int:
        """Return the time of the picture on screen at ``ticks``; before the first picture, the first picture's time."""
        return int(self.times[max(0, int(np.searchsorted(self.times, ticks, side="right")) - 1)])

    def last_packet_before(self, end: int, beyond_frames: int) -> int:
        """Return the last packet needed for the pictures before ``end`` and for ``beyond_frames`` pictures after it.

        If packets have no times, that is the track's last packet.
        """
        cut = int(np.searchsorted(self.times, end)) + beyond_frames - 1
        if cut >= len(self.times) - 1 or self.untimed:
            return self.packets - 1
        wanted = self.timed & (self.pts <= self.times[cut])
        return int(np.flatnonzero(wanted)[-1])

    def packets_from(self, entry: AccessPoint | None, last_packet: int | None) -> int:
        """Return the number of packets from ``entry`` to ``last_packet``."""
        stop = self.packets if last_packet is None else last_packet + 1
        return stop - (0 if entry is None else entry.packet)

    def span_bytes(self, entry: AccessPoint | None, last_packet: int | None) -> tuple[int, int] | None:
        """Return the byte range of the packets from ``entry`` to ``last_packet``; None if it is unknown."""
        span = slice(0 if entry is None else entry.packet, None if last_packet is None else last_packet + 1)
        begins = self.pos_bytes[span]
        placed = begins >= 0
        if not placed.any():
            return None
        return int(begins[placed].min()), int((begins + self.sizes_bytes[span])[placed].max())

    def part(self, entry: AccessPoint | None, last_packet: int | None) -> FilePart | None:
        """Return the part of a fragmented file with packets ``entry`` to ``last_packet``; None for the whole file."""
        span_bytes = self.span_bytes(entry, last_packet)
        if self.fragments is None or span_bytes is None:
            return None
        return self.fragments.part(span_bytes, self.access_point(0) if entry is None else entry)

    def expected_from(self, entry: AccessPoint | None, last_packet: int | None) -> Sequence[int]:
        """Return the sorted times of the pictures that packets ``entry`` to ``last_packet`` should give."""
        stop = self.packets if last_packet is None else last_packet + 1
        span = slice(0 if entry is None else entry.packet, stop)
        times = np.sort(self.pts[span][self.timed[span]])
        if entry is not None and self.pts[entry.packet] != MISSING:
            times = times[times >= self.pts[entry.packet]]
        return [int(t) for t in times]


def overtaken(times: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return for each entry how many earlier entries have a later time, counted up to ``most``."""
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
