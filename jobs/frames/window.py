"""Frames decoded ahead, within a memory limit: threads add frames, and one consumer takes them.

``FrameWindow`` holds the frames of segments, ``GroupWindow`` those of planned reads.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from ...actors.segment.walk import SegmentTally
from ...actors.surfaces.frames import Frame
from ...errors import FrameDamaged
from .request import FramesReport, count_held
from .selection import GroupRead, ReadPlan

AHEAD_SHARE: Final = 16
"""Begun reads may need the whole memory limit, but for frames in ascending order only 1/16 of it once more than
``threads`` reads have begun since the first that still needs memory."""


class FramesEnd(Exception):
    """Raised by ``poll`` after the last frame."""


class Superseded(Exception):
    """Raised in a decoding thread whose frames are no longer wanted; the thread then ends."""


@dataclass(slots=True, eq=False)
class FrameQueue:
    """The frames that one run over a segment has decoded and that nobody has taken yet."""

    _window: "FrameWindow"
    frames: deque[tuple[Frame, int]] = field(default_factory=deque)  #: frames, with their sizes in bytes
    held_bytes: int = 0
    is_hidden: bool = False  #: whether frames are held back until the whole segment is decoded
    is_complete: bool = False
    is_dropped: bool = False
    error: BaseException | None = None

    def begin(self, *, whole: bool) -> None:
        """Begin, or begin again and drop the frames held back. Raises Superseded: the frames are no longer wanted."""
        with self._window.changed:
            self.check()
            if self.is_hidden:
                self.clear()
            self.is_hidden = whole

    def put(self, frame: Frame, size_bytes: int) -> None:
        """Add a frame, once there is room for it. Raises Superseded: the frame is no longer wanted."""
        window = self._window
        with window.changed:
            self.check()
            while self.frames and not self.is_hidden and self.held_bytes + size_bytes > window.segment_bytes:
                window.changed.wait()
                self.check()
            self.frames.append((frame, size_bytes))
            self.hold(size_bytes)
            if not self.is_hidden:
                window.notify()

    def finish(self, tally: SegmentTally) -> None:
        """Record that all frames are added, and count the damage. Raises Superseded: the frames are not wanted."""
        with self._window.changed:
            self.check()
            self.is_hidden = False
            count_tally(self._window.report, tally)
            self._window.notify()

    def fail(self, error: BaseException) -> None:
        """Record why no more frames follow. The error is raised once the frames before it are taken."""
        with self._window.changed:
            self.error = error
            self._window.notify()

    def move(self) -> None:
        """Record that the segment is decoded again from an earlier entry."""
        with self._window.changed:
            self._window.report.entry_moves += 1

    def check(self) -> None:
        """Raise Superseded if the frames are no longer wanted. Here and below, the caller holds the lock."""
        if self.is_dropped:
            raise Superseded

    def clear(self) -> None:
        """Release all frames."""
        self.frames.clear()
        self.hold(-self.held_bytes)

    def hold(self, size_bytes: int) -> None:
        """Count added bytes; ``size_bytes`` is negative for released bytes."""
        self.held_bytes += size_bytes
        count_held(self._window.report, size_bytes)
        self._window.changed.notify_all()


class FrameWindow:
    """The frames decoded ahead of one source: the queues of the segments in flight.

    Each segment may hold ``segment_bytes``, but at least one frame. After ``take`` has returned None, any thread calls
    ``wake`` when ``take`` may succeed.
    """

    def __init__(self, segment_bytes: int, wake: Callable[[], None], report: FramesReport) -> None:
        self.segment_bytes = segment_bytes
        self.report = report
        self.changed = threading.Condition()
        self._wake = wake
        self._queues: dict[int, FrameQueue] = {}
        self._open = 0
        self._is_stopped = False
        self._is_starved = False

    def queue(self, segment: int) -> FrameQueue:
        """Return the queue of a new run over a segment."""
        with self.changed:
            queue = self._queues[segment] = FrameQueue(self, is_dropped=self._is_stopped)
            return queue

    def open(self, segment: int) -> None:
        """Let the consumer take a segment's frames."""
        with self.changed:
            self._open = segment
            self.notify()

    def complete(self, segment: int) -> None:
        """Record that a segment is decoded; it ends when its frames are taken."""
        with self.changed:
            if segment in self._queues:
                self._queues[segment].is_complete = True
                self.notify()

    def drop(self, segment: int) -> None:
        """Release a run's frames, and let its thread end."""
        with self.changed:
            self._drop(self._queues.pop(segment))
            self.report.entry_moves += 1

    def take(self) -> Frame | int | None:
        """Return the next frame, or the number of a segment whose frames are all taken, or None.

        Raises the error of a segment.
        """
        with self.changed:
            queue = self._queues.get(self._open)
            found: Frame | int | None = None
            if queue is not None and queue.frames and not queue.is_hidden:
                found, size_bytes = queue.frames.popleft()
                queue.hold(-size_bytes)
                self.report.frames += 1
            elif queue is not None and queue.error is not None:
                raise queue.error
            elif queue is not None and queue.is_complete:
                del self._queues[self._open]
                self.report.segments += 1
                found = self._open
            self._is_starved = not isinstance(found, Frame)
            return found

    def stop(self) -> None:
        """Tell all threads to end, without waiting for them, and release the held frames."""
        with self.changed:
            self._is_stopped = True
            for queue in self._queues.values():
                self._drop(queue)
            self.notify()

    def notify(self) -> None:
        """Wake the threads, and the consumer if it waits for a frame. The caller holds the lock."""
        self.changed.notify_all()
        if self._is_starved:
            self._is_starved = False
            self._wake()

    def _drop(self, queue: FrameQueue) -> None:
        queue.is_dropped = True
        queue.clear()


@dataclass(slots=True, eq=False)
class HeldFrames:
    """The frames of one read that are in memory, and how often each is still needed."""

    read: GroupRead
    room: threading.Condition  #: where the read's thread waits until it may add a frame
    uses: dict[int, int] = field(default_factory=dict)  #: how many times each number is still to be handed out
    left: int = 0  #: how many numbers are still to be handed out
    frames: dict[int, tuple[Frame, int]] = field(default_factory=dict)  #: for each number, the frame and its bytes
    held_bytes: int = 0
    needed_bytes: int = 0  #: the memory that the frames need until they are handed out, once the read has begun
    is_done: bool = False  #: whether the read ended without an error: a number without a frame then never gets one
    error: BaseException | None = None


class GroupWindow:
    """The frames of planned reads, handed out in the order requested.

    A thread begins a read, adds its frames and ends it, again and again. ``wake`` is called, from any thread, when a
    poll may succeed again after it returned None. ``undecodable`` returns the error in place of a frame that cannot be
    decoded; None leaves out such frames.

    A dozen threads that wake for each frame, only to wait again, would compete for the GIL with threads that
    decode. So each change wakes only a thread that can go on.
    """

    def __init__(
        self,
        plan: ReadPlan,
        report: FramesReport,
        wake: Callable[[], object],
        undecodable: Callable[[int], FrameDamaged] | None,
        *,
        frame_bytes: int,
        limit_bytes: int,
        threads: int,
    ) -> None:
        self.report = report
        self._wake = wake
        self._undecodable = undecodable
        self._frame_bytes = frame_bytes
        self._limit_bytes = limit_bytes
        self._threads = threads
        self._ascends = plan.ascends
        # The lock is reentrant because the garbage collector may call ``stop``.
        self.lock = threading.RLock()
        """Guards the report too."""
        self._held = [HeldFrames(read, threading.Condition(self.lock)) for read in plan.reads]
        self._slots = [(self._held[read], number) for read, number in plan.slots]
        for held, number in self._slots:
            held.uses[number] = held.uses.get(number, 0) + 1
            held.left = len(held.uses)
        self._begins = threading.Condition(self.lock)  #: where threads wait until the next read may begin
        self._ready = threading.Condition(self.lock)  #: where ``take`` waits for the next frame
        self._position = 0
        self._next_read = 0
        self._open_reads = len(self._held)  #: the reads that have not ended
        self._needed_bytes = 0  #: the memory that begun reads need
        self._first_needed = 0  #: all reads before this number need no more memory
        self._is_stopped = False
        self._is_starved = False

    def poll(self) -> Frame | None:
        """Return the next frame, or None if there is none yet. Raises FramesEnd, FrameDamaged, or a read's error."""
        with self.lock:
            return self._poll()

    def take(self) -> Frame:
        """Wait for the next frame, and return it; raises the errors of ``poll``."""
        with self.lock:
            while (frame := self._poll()) is None:
                self._ready.wait()
            return frame

    def stop(self) -> None:
        """Tell all threads to end, without waiting for them, and release the held frames."""
        with self.lock:
            self._is_stopped = True
            for held in self._held:
                held.frames.clear()
                count_held(self.report, -held.held_bytes)
                held.held_bytes = 0
                held.room.notify()
            self._begins.notify_all()
            self._tell_consumer()

    def check(self) -> None:
        """Raise Superseded if the frames are no longer wanted."""
        if self._is_stopped:
            raise Superseded

    def begin(self) -> HeldFrames | None:
        """Return the next read once there is room for its frames; None if no read is left."""
        with self.lock:
            while not self._may_begin():
                self._begins.wait()
            held = None
            if not self._is_stopped and self._next_read < len(self._held):
                held = self._held[self._next_read]
                self._next_read += 1
                self._count_needed(held)
            self._let_begin()
            return held

    def put(self, held: HeldFrames, made: Iterable[tuple[int, Frame, int]]) -> None:
        """Add frames, each as (number, frame, its bytes), once there is room. Raises Superseded."""
        with self.lock:
            for number, frame, size_bytes in made:
                # Frames wait for room only if they are requested in ascending order. Otherwise the plan limits memory,
                # and no frame may wait, because a later frame may be needed first.
                while self._ascends and held.frames and held.held_bytes + size_bytes > self._limit_bytes:
                    awaited, missing = self._slots[self._position]
                    if self._is_starved and awaited is held and missing not in held.frames:
                        break  # only the end of the read shows whether the awaited frame comes
                    self._tell_consumer(held)
                    held.room.wait()
                self.check()
                if held.uses[number] and number not in held.frames:
                    held.frames[number] = (frame, size_bytes)
                    held.held_bytes += size_bytes
                    count_held(self.report, size_bytes)
            self._tell_consumer(held)

    def end(self, held: HeldFrames, error: BaseException | None = None) -> None:
        """End a read; ``error`` is raised in place of its missing frames."""
        with self.lock:
            held.is_done, held.error = error is None, error
            self.report.segments += held.is_done
            self._open_reads -= 1
            self._count_needed(held)
            self._let_begin()
            self._tell_consumer(held)

    def _poll(self) -> Frame | None:
        slots = self._slots
        while self._position < len(slots) and not self._is_stopped:
            held, number = slots[self._position]
            found = held.frames.get(number)
            if found is None and held.error is not None:
                raise held.error
            if found is None and not held.is_done:
                self._is_starved = True
                held.room.notify()
                return None
            self._position += 1
            held.uses[number] -= 1
            if not held.uses[number]:
                self._release(held, number)
            if self._next_read < len(self._held):
                self._let_begin()
            if found is not None:
                self.report.frames += 1
                return found[0]
            if self._undecodable is not None:
                raise self._undecodable(number)
        # A read adds its counts to the report after its last frame, so the end waits for all reads.
        if self._open_reads and not self._is_stopped:
            self._is_starved = True
            return None
        raise FramesEnd

    def _release(self, held: HeldFrames, number: int) -> None:
        """Release frame ``number`` of a read, which was handed out for the last time."""
        held.left -= 1
        _, size_bytes = held.frames.pop(number, (None, 0))
        held.held_bytes -= size_bytes
        count_held(self.report, -size_bytes)
        self._count_needed(held)
        held.room.notify()

    def _let_begin(self) -> None:
        """Wake one thread if the next read may begin, or if no read is left; that thread then wakes the next one.

        Call this after each change by which ``_may_begin`` may become true.
        """
        if self._may_begin():
            self._begins.notify()

    def _may_begin(self) -> bool:
        """Return whether the next read may begin, or no read will begin any more."""
        place = self._next_read
        if self._is_stopped or place == len(self._held):
            return True
        if self._position < len(self._slots) and self._slots[self._position][0] is self._held[place]:
            # Frames held for later may be larger than planned, due to padding; this must not block the next frame.
            return True
        while self._first_needed < place and not self._held[self._first_needed].needed_bytes:
            self._first_needed += 1
        is_ahead = self._ascends and place - self._first_needed > self._threads
        room_bytes = self._limit_bytes // (AHEAD_SHARE if is_ahead else 1)
        return self._needed_bytes + self._needed(self._held[place]) <= room_bytes

    def _needed(self, held: HeldFrames) -> int:
        """Return how much memory a read's frames need until they are handed out."""
        if held.is_done or held.error is not None:
            return held.held_bytes
        return min(self._limit_bytes, held.left * self._frame_bytes)

    def _count_needed(self, held: HeldFrames) -> None:
        """Count the needs of a begun read again, after a change."""
        needed_bytes = self._needed(held)
        self._needed_bytes += needed_bytes - held.needed_bytes
        held.needed_bytes = needed_bytes

    def _tell_consumer(self, held: HeldFrames | None = None) -> None:
        """Wake the consumer if it waits, unless it waits for a frame of another read than ``held``."""
        is_other = held is not None and self._position < len(self._slots) and self._slots[self._position][0] is not held
        if self._is_starved and not is_other:
            self._is_starved = False
            self._ready.notify()
            self._wake()


def count_tally(report: FramesReport, tally: SegmentTally) -> None:
    """Count which decoder decoded a segment or a read, and its damage; the caller holds the lock of the report."""
    report.decoded_by[tally.decoded_by] = report.decoded_by.get(tally.decoded_by, 0) + 1
    report.fallbacks += [tally.fallback] if tally.fallback else []
    report.failed_packets += tally.failed_packets
    report.corrupt_frames += tally.corrupt_frames
