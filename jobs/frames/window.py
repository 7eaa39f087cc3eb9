"""The frames of segments decoded ahead, within a memory limit: threads add frames, and one consumer takes them."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ...actors.segment.walk import SegmentTally
from ...actors.surfaces.frames import Frame
from .request import FramesReport, count_held


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


def count_tally(report: FramesReport, tally: SegmentTally) -> None:
    """Count which decoder decoded a segment or a read, and its damage; the caller holds the lock of the report."""
    report.decoded_by[tally.decoded_by] = report.decoded_by.get(tally.decoded_by, 0) + 1
    report.fallbacks += [tally.fallback] if tally.fallback else []
    report.failed_packets += tally.failed_packets
    report.corrupt_frames += tally.corrupt_frames
