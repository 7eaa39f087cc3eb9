"""The frames of planned reads decoded ahead, within a memory limit: threads add frames, and one consumer takes them."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from ...actors.surfaces.frames import Frame
from ...errors import FrameDamaged
from .request import FramesReport, count_held
from .selection import GroupRead, ReadPlan
from .window import FramesEnd, Superseded

AHEAD_SHARE: Final = 16
"""Together, the reads that have begun may need the whole memory limit. If frames are requested in ascending order, and
more than ``threads`` reads have begun, counted from the oldest that still needs memory, another begins only while all
need at most 1/16 of the limit. The read of the next frame may always begin."""


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
