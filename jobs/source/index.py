"""The index of a video track: every packet's times, flags and place. No header's duration or frame count is trusted."""

from bisect import bisect_right
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
from ...actors.media.fragments import FilePart, Fragments
from ...actors.media.seeking import AccessPoint
from ...actors.media.timeline import MOST_HELD_FRAMES, REORDER_FRAMES, TimeShift, nominal_ticks, whole_ticks
from ...actors.media.values import Colour, PictureSize
from .last_picture import LONGEST_S

MISSING = np.iinfo(np.int64).min  #: A timestamp the container does not give

_NO_TIME = 1 << 62  #: A timestamp that nothing is presented at: times are less (``indexer.py``)

KEY, DISCARD, CORRUPT = 1, 2, 4

CLEAN_ACCESS_POINTS, CLEAN_PACKETS = 2, 2 * REORDER_FRAMES  #: After so many none of the pictures before is left

_RESETTING_KEYFRAMES = frozenset({"vp8", "vp9", "av1"})


@dataclass(frozen=True, eq=False)
class TrackIndex:
    """Every packet of one video track, in demux order. Arrays are int64 ticks of ``time_base`` unless noted."""

    source: str
    stream_index: int
    codec: str
    time_base: Fraction  #: The source's tick divided by ``tick_divisor`` (rule R4)
    frame_rate: Fraction
    pts: NDArray[np.int64]  #: With rule R1's ``shifts``
    dts: NDArray[np.int64]  #: In the source's own ticks, as ``shifts``
    pos_bytes: NDArray[np.int64]
    sizes_bytes: NDArray[np.int64]
    flags: NDArray[np.uint8]
    kinds: dict[int, RandomAccess]  #: Of packets flagged as keyframes; IDR where a codec has no kinds
    shifts: tuple[TimeShift, ...]
    has_whole_pictures: bool = False  #: Whether each packet is known to show one whole picture
    tick_divisor: int = 1
    sizes: Mapping[int, PictureSize] = field(default_factory=dict)  #: As headers of access points state, by packet
    max_pixels: int = InputLimits().max_pixels  #: Of one picture
    colours: tuple[tuple[int, Colour], ...] = ()  #: Packets where colours change, and to which; () if they never do
    clusters: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    fragments: Fragments | None = None  #: Of a fragmented mp4
    stated_last_ticks: Fraction | None = None  #: How long the container shows the last picture, if it says so

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
        """When the last picture's duration is over."""
        return int(self.times[-1]) + whole_ticks(self.shown_ticks(None))

    @property
    def _last_ticks(self) -> Fraction:
        """How long the last picture is shown: nominally, unless what is stated differs by a tick or more."""
        stated, nominal = self.stated_last_ticks, self.nominal_ticks
        is_nominal = stated is None or abs(stated - nominal) < 1 or self.states_too_long
        return nominal if is_nominal or stated is None else stated

    @property
    def states_too_long(self) -> bool:
        """Whether the container says that the last picture is shown for longer than is believed."""
        return self.stated_last_ticks is not None and self.stated_last_ticks * self.time_base > LONGEST_S

    @property
    def stated_last_words(self) -> str:
        """What a person reads of the stated duration."""
        stated = self.stated_last_ticks or 0
        return f"{float(stated * self.time_base / 3600):.1f} hours that the container states"

    def last_before(self, end: int | None) -> int | None:
        """Return when the last picture before ``end`` is shown; None where there is none."""
        place = self._place(end)
        return int(self.times[place - 1]) if place else None

    def _place(self, end: int | None) -> int:
        return len(self.times) if end is None else int(np.searchsorted(self.times, end))

    def shown_ticks(self, end: int | None) -> Fraction:
        """Return how long the last picture before ``end`` is shown; None is the track's own end.

        That is up to ``end``, or longer if its nominal duration is, but never past the next picture.
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
        """From the first picture to the end of the last one."""
        return (self.end_ticks - self.first_ticks) * self.time_base

    def check(self, limits: InputLimits) -> None:
        """Check how long and how fast the track is; raise ``InputTooLarge`` where it is too much of either."""
        rate = float(self.frame_rate)
        limits.check("max_frame_rate", self.frame_rate, f"{self.source} states {rate:g} frames a second")
        if len(self.times):
            duration = float(self.duration_s)
            limits.check("max_duration_s", self.duration_s, f"{self.source} states {duration:.0f} s of video")

    @cached_property
    def access_points(self) -> tuple[AccessPoint, ...]:
        """Where decoding may begin, in demux order."""
        numbers = np.flatnonzero((self.flags & KEY) != 0)
        return tuple(self.access_point(int(n)) for n in numbers if self.kinds.get(int(n)) is not RandomAccess.NONE)

    @cached_property
    def largest_size(self) -> PictureSize | None:
        """The largest display size that pictures change to or from; None where they have one, or none is stated.

        An access point counts if a picture up to the next is presented. Ties go to more samples, then to the earlier.
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
        """Return whether a decoder started at ``entry`` meets damage in the state of one that started at the beginning.

        What damage becomes depends on the pictures held. They are the same if ``entry`` resets the decoder and decoded
        itself, or if a clean run after it has replaced them all.
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
            indexed=() if pts == MISSING else self._in_clusters(pts // self.tick_divisor - shift, packet),
        )

    def _in_clusters(self, ticks: int, packet: int) -> tuple[tuple[int, int], ...]:
        """Return Matroska's index entry for the keyframe of a time, and the next one.

        If there is no next one, an unreachable one: else the demuxer would read to the end of the file to find one.
        """
        place = int(np.searchsorted(self.clusters[:, 0], ticks))
        found = [(int(at), int(cluster)) for at, cluster in self.clusters[place : place + 2]]
        if not found or found[0][0] != ticks or found[0][1] >= self.pos_bytes[packet]:
            return ()
        own, following = found if len(found) > 1 else (found[0], (_NO_TIME, found[0][1]))
        return own, following

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
        """How many pictures are held at most to sort them, with what a decoder may add; unknown where times repeat."""
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

    def times_between(self, start: int | None, end: int | None) -> NDArray[np.int64]:
        """Return the times in [start, end) that the index promises pictures at, sorted."""
        low = 0 if start is None else int(np.searchsorted(self.times, start))
        high = len(self.times) if end is None else int(np.searchsorted(self.times, end))
        return self.times[low:high]

    def frames_between(self, start: int | None, end: int | None) -> int:
        """How many pictures the index promises in [start, end)."""
        return len(self.times_between(start, end))

    def tick_at(self, time_s: Fraction) -> int:
        """Return the first tick at or after a time that counts from the first picture."""
        return self.first_ticks + ceil(time_s / self.time_base)

    def shown_at(self, ticks: int) -> int:
        """Return when the picture that is on screen at ``ticks`` was first shown; before the first one, its time."""
        return int(self.times[max(0, int(np.searchsorted(self.times, ticks, side="right")) - 1)])

    def last_packet_before(self, end: int, beyond_frames: int) -> int:
        """Return the last packet needed for pictures before ``end`` and ``beyond_frames`` more; of untimed ones all."""
        cut = int(np.searchsorted(self.times, end)) + beyond_frames - 1
        if cut >= len(self.times) - 1 or self.untimed:
            return self.packets - 1
        wanted = self.timed & (self.pts <= self.times[cut])
        return int(np.flatnonzero(wanted)[-1])

    def packets_from(self, entry: AccessPoint | None, last_packet: int | None) -> int:
        """Return how many packets lie from ``entry`` through ``last_packet``."""
        stop = self.packets if last_packet is None else last_packet + 1
        return stop - (0 if entry is None else entry.packet)

    def span_bytes(self, entry: AccessPoint | None, last_packet: int | None) -> tuple[int, int] | None:
        """Return where in the file the packets from ``entry`` through ``last_packet`` lie; None where none says."""
        span = slice(0 if entry is None else entry.packet, None if last_packet is None else last_packet + 1)
        begins = self.pos_bytes[span]
        placed = begins >= 0
        if not placed.any():
            return None
        return int(begins[placed].min()), int((begins + self.sizes_bytes[span])[placed].max())

    def part(self, entry: AccessPoint | None, last_packet: int | None) -> FilePart | None:
        """Return how much of a fragmented file the packets ``entry`` to ``last_packet`` take; None for all of it."""
        span_bytes = self.span_bytes(entry, last_packet)
        if self.fragments is None or span_bytes is None:
            return None
        return self.fragments.part(span_bytes, self.access_point(0) if entry is None else entry)

    def expected_from(self, entry: AccessPoint | None, last_packet: int | None) -> Sequence[int]:
        """Return the sorted times of the pictures that decoding from ``entry`` through ``last_packet`` should give."""
        stop = self.packets if last_packet is None else last_packet + 1
        span = slice(0 if entry is None else entry.packet, stop)
        times = np.sort(self.pts[span][self.timed[span]])
        if entry is not None and self.pts[entry.packet] != MISSING:
            times = times[times >= self.pts[entry.packet]]
        return [int(t) for t in times]


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
