"""Repairs timestamps: from a decoder's PTS to the presentation time of every frame.

The rules, in this order (docs/timeline.md gives the reasons):

* R1: Clock resets are undone per *packet*, when the source is indexed (``TimeShift``).
* R2: A frame without a PTS is one nominal frame duration after the previous frame in the decoder's output order. If
  there is no previous frame, it is one nominal frame duration before the next frame with a PTS. If no frame of the
  track has a PTS, frame n is at n nominal durations.
* R3: Frames are sorted by time; frames with the same time stay in the decoder's output order.
* R4: Frames that share a time are spread evenly up to the next distinct time. If a tick is too coarse for that, the
  index has divided it (``tick_divisor``). A frame with a distinct time never moves.

``TimestampRepair`` works on a stream of frames: it holds back only as many frames as a rule needs.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import floor
from typing import Generic, TypeVar

FrameT = TypeVar("FrameT")

RESET_S = 1
"""The largest step back of a decoding clock that counts as disorder; a larger step is a reset (R1)."""
LONGEST_GAP_S = 6 * 3600
"""The largest leap ahead that counts as a gap. A larger leap is a reset too: FFmpeg takes the restarted clock of a
transport stream for a clock that wrapped around its 33 bits, and adds a day.
"""
LARGEST_DENOMINATOR = 1_000_000_000
"""The largest denominator of a divided tick (R4): FFmpeg's time bases have 31 bits for it."""
REORDER_FRAMES = 16
"""How far a decoder's output may be out of order: the largest picture buffer of H.264 and HEVC (A.3.1, A.4.2)."""
MOST_HELD_FRAMES = 3 * REORDER_FRAMES
"""The largest number of pictures held to sort a track whose disorder exceeds ``REORDER_FRAMES``."""


@dataclass(frozen=True, slots=True)
class TimeShift:
    """Rule R1: from packet ``first_packet`` on (in demux order), add ``ticks`` to every timestamp."""

    first_packet: int
    ticks: int


@dataclass(slots=True)
class RepairedTime:
    """How many frames the rules have changed: R2 (``missing``), R3 (``disordered``) and R4 (``repeated``)."""

    missing: int = 0
    disordered: int = 0
    repeated: int = 0


def nominal_ticks(frame_rate: Fraction, time_base: Fraction) -> Fraction:
    """Return the exact nominal duration of one frame, in ticks."""
    return 1 / (frame_rate * time_base)


def whole_ticks(nominal: Fraction) -> int:
    """Return a nominal duration in whole ticks: rounded, at least 1."""
    return max(1, round(nominal))


def spread(time: int, count: int, following: int | None, nominal: Fraction) -> list[int]:
    """Return ``count`` distinct times for frames that share ``time``, before ``following`` if it is given.

    The times divide the interval evenly. Without a next frame, or if the interval is too short, they are one nominal
    duration apart. Only frames without timestamps can make the interval too short; the next frame then moves.
    """
    if following is not None and following - time >= count:
        return [time + (j * (following - time)) // count for j in range(count)]
    step = max(1, floor(nominal))
    return [time + j * step for j in range(count)]


def tick_divisor(shared: Iterable[tuple[int, int]], time_base: Fraction) -> int:
    """Return the divisor of the tick for rule R4.

    ``shared`` has, for each time that several frames share, (number of frames, ticks to the next time).
    """
    needed = max((-(-count // gap) for count, gap in shared), default=1)
    return max(1, min(needed, LARGEST_DENOMINATOR // time_base.denominator))


@dataclass(slots=True)
class TimestampRepair(Generic[FrameT]):
    """Gives every frame its presentation time, in order, while frames stream through.

    ``expected`` are the times of the coming frames in the index, ascending. The next expected frame is released as soon
    as no frame without a PTS can precede it (R2), so a well-formed stream is never delayed. ``untimed`` means that no
    frame of the track has a PTS. At most ``held_frames`` frames are held to wait for an earlier frame.
    """

    nominal: Fraction
    expected: Sequence[int] = ()
    untimed: bool = False
    held_frames: int = REORDER_FRAMES
    counts: RepairedTime = field(default_factory=RepairedTime)
    _order: int = 0
    _previous: int | None = None
    _unanchored: list[FrameT] = field(default_factory=list)
    _heap: list[tuple[int, int, bool, FrameT]] = field(default_factory=list)
    _next_expected: int = 0
    _group: list[FrameT] = field(default_factory=list)
    _group_time: int = 0
    _last_sent: int | None = None
    _last_sorted: int | None = None

    def push(self, frame: FrameT, ticks: int | None) -> list[tuple[int, FrameT]]:
        """Take the decoder's next frame and return the frames whose times are settled, in order."""
        if ticks is not None and self._is_regular(ticks):
            settled_ticks, previous = self._after_last_sent(self._group_time), self._group[0]
            self._group[0] = frame
            self._group_time = self._previous = self._last_sorted = ticks
            self._order += 1
            self._pass_expected(ticks, with_one=True)
            return [(settled_ticks, previous)]
        self._time(frame, ticks)
        settled: list[tuple[int, FrameT]] = []
        while self._heap and (len(self._heap) > self.held_frames or self._is_next(self._heap[0][0])):
            settled += self._release()
        return settled

    def finish(self) -> Iterator[tuple[int, FrameT]]:
        """Yield the remaining frames; nothing may be pushed afterwards."""
        for position, frame in enumerate(self._unanchored):
            self._hold(round(position * self.nominal), frame)
        self._unanchored = []
        while self._heap:
            yield from self._release()
        yield from self._settle_group(None)

    def _is_regular(self, ticks: int) -> bool:
        """Return whether no rule applies to a frame: it has the next expected time, which no other frame shares."""
        return (
            len(self._group) == 1
            and ticks > self._group_time
            and not self._heap
            and not self.untimed
            and self._is_next_expected(ticks)
        )

    def _time(self, frame: FrameT, ticks: int | None) -> None:
        """Rule R2: give the frame a time, and put it among the frames that wait to be sorted."""
        self.counts.missing += self.untimed or ticks is None
        if self.untimed:
            self._hold(round(self._order * self.nominal), frame, is_expected=True)
        elif ticks is not None:
            for distance, earlier in enumerate(reversed(self._unanchored), start=1):
                self._hold(ticks - distance * whole_ticks(self.nominal), earlier)
            self._unanchored = []
            self._hold(ticks, frame, is_expected=True)
            self._previous = ticks
        elif self._previous is None:
            self._unanchored.append(frame)
        else:
            self._previous += whole_ticks(self.nominal)
            self._hold(self._previous, frame)

    def _hold(self, ticks: int, frame: FrameT, *, is_expected: bool = False) -> None:
        heapq.heappush(self._heap, (ticks, self._order, is_expected, frame))
        if self._last_sorted is not None and ticks < self._last_sorted:
            self.counts.disordered += 1
        self._last_sorted = ticks if self._last_sorted is None else max(ticks, self._last_sorted)
        self._order += 1

    def _is_next(self, ticks: int) -> bool:
        """Return whether no frame still to come can be earlier than ``ticks``.

        Neither a frame in the index can be, nor one without a PTS (R2).
        """
        follower = None if self._previous is None else self._previous + whole_ticks(self.nominal)
        return self._is_next_expected(ticks) and (self.untimed or follower is None or ticks <= follower)

    def _is_next_expected(self, ticks: int) -> bool:
        """Return whether no frame that is still to come has an earlier time in the index."""
        return self._next_expected >= len(self.expected) or self.expected[self._next_expected] >= ticks

    def _pass_expected(self, ticks: int, *, with_one: bool) -> None:
        while self._next_expected < len(self.expected) and self.expected[self._next_expected] < ticks:
            self._next_expected += 1
        # Each frame with a PTS passes only one entry of ``expected``: another frame with the same time may still come.
        if with_one and self._next_expected < len(self.expected) and self.expected[self._next_expected] == ticks:
            self._next_expected += 1

    def _release(self) -> list[tuple[int, FrameT]]:
        """Rule R3: release the earliest frame, and return the frames whose times are then final."""
        ticks, _, is_expected, frame = heapq.heappop(self._heap)
        self._pass_expected(ticks, with_one=is_expected)
        settled = self._settle_group(ticks) if self._group and ticks > self._group_time else []
        if not self._group:
            self._group_time = ticks
        self._group.append(frame)
        return settled

    def _settle_group(self, following: int | None) -> list[tuple[int, FrameT]]:
        """Rule R4: spread frames that share a time, and keep times strictly increasing."""
        self.counts.repeated += max(0, len(self._group) - 1)
        times = spread(self._group_time, len(self._group), following, self.nominal)
        settled = [(self._after_last_sent(ticks), frame) for ticks, frame in zip(times, self._group, strict=True)]
        self._group = []
        return settled

    def _after_last_sent(self, ticks: int) -> int:
        self._last_sent = ticks if self._last_sent is None else max(ticks, self._last_sent + 1)
        return self._last_sent


def is_increasing(times: Sequence[int]) -> bool:
    """Return whether each time is later than the previous time."""
    return all(a < b for a, b in pairwise(times))
