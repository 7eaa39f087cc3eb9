"""Segments on their way to whoever takes frames: decoded by several threads, delivered in order, never too far ahead.

                 a thread takes it            all is decoded
    WAITING ─────────────────────▶ RUNNING ─────────────────▶ DECODED
       ▲                              │                          │
       └──────────────────────────────┴──────────────────────────┘
         its first pictures are not those that the segment before it saw there: decoded from further back

A segment's frames are handed out once its beginning is proven: the segment before it also decoded the first pictures
past its own end, and they must be the same. Frames go out while the rest of their segment is still decoded, but for
segments that are ``whole``: those wait for their end.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from ...actors.decode.decoding import PictureHash
from ...actors.segment.walk import SEAM_FRAMES, SegmentTally
from ...actors.surfaces.frames import Frame
from ...errors import ProofFailed
from ..board.board import seams_agree
from .request import FramesReport

__all__ = ["FrameSlots", "FrameTask", "FramesEnd", "Superseded"]


class SlotState(Enum):
    """Where a segment stands; the module's heading has the edges."""

    WAITING = "waiting"
    RUNNING = "running"
    DECODED = "decoded"


class Superseded(Exception):
    """A thread's segment is to be decoded otherwise, or not at all."""


class FramesEnd(Exception):
    """Every frame was delivered."""


@dataclass(frozen=True, slots=True)
class FrameTask:
    """Decode a segment, from the ``entry_moves``-th access point back."""

    segment: int
    entry_moves: int
    generation: int


@dataclass(slots=True, eq=False)
class _Slot:
    state: SlotState = SlotState.WAITING
    generation: int = 0
    entry_moves: int = 0
    at_start: bool = False
    is_hidden: bool = False
    error: BaseException | None = None
    before: tuple[PictureHash, ...] = ()
    after: tuple[PictureHash, ...] = ()
    held: deque[tuple[Frame, int]] = field(default_factory=deque)
    held_bytes: int = 0

    @property
    def is_decoded(self) -> bool:
        return self.state is SlotState.DECODED

    @property
    def knows_beginning(self) -> bool:
        return self.is_decoded or len(self.before) >= SEAM_FRAMES


class FrameSlots:
    """The segments of one source. Threads take tasks and put frames; one consumer polls.

    Args:
        segments: how many there are.
        at_once: how many may be decoded, and not be delivered yet.
        slot_bytes: how much of each may be ahead; one frame always may.
        wake: called from any thread when polling again may help, after it did not.
        report: what happened, kept up to date.
    """

    def __init__(
        self, segments: int, *, at_once: int, slot_bytes: int, wake: Callable[[], None], report: FramesReport
    ) -> None:
        self._slots = [_Slot() for _ in range(segments)]
        self._at_once = at_once
        self._slot_bytes = slot_bytes
        self._wake = wake
        self._report = report
        self._changed = threading.Condition()
        self._current = 0
        self._proven = 0
        self._stopped = False
        self._starved = False

    def next_task(self) -> FrameTask | None:
        """Wait for something to decode, the earliest first; None when there will be nothing any more."""
        with self._changed:
            while not self._stopped:
                for number in range(self._current, min(self._current + self._at_once, len(self._slots))):
                    slot = self._slots[number]
                    if slot.state is SlotState.WAITING and slot.error is None:
                        slot.state = SlotState.RUNNING
                        return FrameTask(number, slot.entry_moves, slot.generation)
                self._changed.wait()
            return None

    def begin(self, task: FrameTask, *, whole: bool) -> None:
        """Begin with a segment's frames, or once more: what is hidden is forgotten.

        Raises:
            Superseded: it is not wanted any more.
        """
        with self._changed:
            slot = self._wanted(task)
            if slot.is_hidden:
                self._clear(slot)
            slot.is_hidden, slot.before = whole, ()

    def move(self, task: FrameTask, entry_moves: int) -> None:
        """Note that a segment is decoded from further back."""
        with self._changed:
            self._wanted(task).entry_moves = entry_moves
            self._report.entry_moves += 1

    def see_beginning(self, task: FrameTask, before: tuple[PictureHash, ...]) -> None:
        """Note the first pictures of a segment.

        Raises:
            Superseded: it is not wanted any more.
        """
        with self._changed:
            self._wanted(task).before = before
            self._tell()

    def put(self, task: FrameTask, frame: Frame, size_bytes: int) -> None:
        """Add a frame, once there is room for it.

        Raises:
            Superseded: the segment is not wanted any more.
        """
        with self._changed:
            slot = self._wanted(task)
            while slot.held and not slot.is_hidden and slot.held_bytes + size_bytes > self._slot_bytes:
                self._changed.wait()
                self._wanted(task)
            slot.held.append((frame, size_bytes))
            slot.held_bytes += size_bytes
            report = self._report
            report.held_bytes += size_bytes
            report.held_bytes_max = max(report.held_bytes_max, report.held_bytes)
            if not slot.is_hidden:
                self._tell()

    def finish(self, task: FrameTask, tally: SegmentTally, *, at_start: bool) -> None:
        """Note that all of a segment is there; ``at_start`` where it was decoded from the track's first packet.

        Raises:
            Superseded: it is not wanted any more.
        """
        with self._changed:
            slot = self._wanted(task)
            slot.state, slot.is_hidden = SlotState.DECODED, False
            slot.before, slot.after, slot.at_start = tally.seam_before, tally.seam_after, at_start
            report = self._report
            report.decoded_by[tally.decoded_by] = report.decoded_by.get(tally.decoded_by, 0) + 1
            report.fallbacks += [tally.fallback] if tally.fallback else []
            report.failed_packets += tally.failed_packets
            report.corrupt_frames += tally.corrupt_frames
            self._tell()

    def fail(self, task: FrameTask, error: BaseException) -> None:
        """Note why a segment cannot be had; whoever polls hears it once everything before is delivered."""
        with self._changed:
            slot = self._slots[task.segment]
            if slot.generation == task.generation:
                slot.error, slot.state = error, SlotState.WAITING
                self._tell()

    def poll(self) -> Frame | None:
        """Return the next frame; None when it is not there yet: ``wake`` is called later.

        Raises:
            FramesEnd: there is none.
            Exception: what kept a segment from being decoded.
        """
        with self._changed:
            found = self._next_frame()
            self._starved = found is None
            return found

    def stop(self) -> None:
        """Have all threads come to their end, and let everything go."""
        with self._changed:
            self._stopped = True
            for slot in self._slots:
                self._clear(slot)
            self._tell()

    def _next_frame(self) -> Frame | None:
        while self._current < len(self._slots):
            slot = self._slots[self._current]
            if self._is_proven(slot) and slot.held and not slot.is_hidden:
                frame, size_bytes = slot.held.popleft()
                self._release(slot, size_bytes)
                self._report.frames += 1
                return frame
            if slot.error is not None:
                raise slot.error
            if not (slot.is_decoded and self._proven >= self._current):
                return None
            self._current += 1
            self._report.segments = self._current
            self._changed.notify_all()
        raise FramesEnd

    def _is_proven(self, slot: _Slot) -> bool:
        """Tell whether the current segment begins as the one before it says; where it does not, have it done again."""
        if self._proven >= self._current:
            return True
        if not slot.knows_beginning:
            return False
        if seams_agree(self._slots[self._current - 1].after, slot.before):
            self._proven = self._current
            return True
        if slot.at_start:
            message = f"segment {self._current} does not begin with the pictures that the one before it ends with"
            slot.error = ProofFailed(message, "Please report it with the input.")
            return False
        self._clear(slot)
        slot.generation += 1
        slot.entry_moves += 1
        slot.state, slot.is_hidden, slot.before, slot.error = SlotState.WAITING, False, (), None
        self._report.entry_moves += 1
        self._changed.notify_all()
        return False

    def _wanted(self, task: FrameTask) -> _Slot:
        slot = self._slots[task.segment]
        if self._stopped or slot.generation != task.generation:
            raise Superseded
        return slot

    def _clear(self, slot: _Slot) -> None:
        slot.held.clear()
        self._release(slot, slot.held_bytes)

    def _release(self, slot: _Slot, size_bytes: int) -> None:
        slot.held_bytes -= size_bytes
        self._report.held_bytes -= size_bytes
        self._changed.notify_all()

    def _tell(self) -> None:
        self._changed.notify_all()
        if self._starved:
            self._starved = False
            self._wake()
