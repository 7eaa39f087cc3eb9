"""Decodes chosen frames in threads, in the order requested: each group of pictures at once, with bounded memory."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from av.video.frame import VideoFrame

from ...actors.segment.decode_path import DecodePath
from ...actors.segment.walk import SegmentTally, SegmentWalk
from ...actors.surfaces.device_frame import DevicePicture
from ...actors.surfaces.frames import Frame
from ...errors import FrameDamaged
from .making import FrameMaker, Paths
from .proofs import EntryProofs
from .reader import FramesEnd
from .request import FramesReport, count_held
from .selection import GroupRead, ReadPlan
from .source import FrameSource

AHEAD_SHARE: Final = 16
"""If frames are taken in order, groups beyond one for each thread may fill this fraction (1/16) of the memory."""


class _Stopped(Exception):
    """The frames are no longer wanted."""


class _Again(Exception):
    """Damage was found, so the read must be decoded again, without skipping or from further back."""

    def __init__(self, *, moves: int) -> None:
        super().__init__()
        self.moves = moves


@dataclass(slots=True, eq=False)
class _Held:
    """The frames of one read."""

    uses: Counter[int] = field(default_factory=Counter)  #: how many times each number is still to be handed out
    frames: dict[int, tuple[Frame, int]] = field(default_factory=dict)  #: for each number, the frame and its bytes
    held_bytes: int = 0
    is_done: bool = False  #: whether a number that has no frame yet will never have one
    error: BaseException | None = None


class GroupReader:
    """Decodes the frames ``numbers`` of a source's part, in that order, from ``start`` to ``close``.

    ``wake`` is called, from any thread, when a poll may succeed again after it returned None. A frame that cannot be
    decoded is left out with ``leaves_out``, and an error without. ``seen`` is called by the decoding threads after each
    picture; its exceptions end the read.
    """

    def __init__(
        self,
        source: FrameSource,
        proofs: EntryProofs,
        numbers: Sequence[int],
        report: FramesReport,
        wake: Callable[[], object] = bool,
        *,
        leaves_out: bool = False,
        seen: Callable[[], object] = bool,
    ) -> None:
        part = source.part
        self._source = source
        self._proofs = proofs
        self.report = report
        self._wake = wake
        self.seen = seen
        self._leaves_out = leaves_out
        whole = any(path.whole for path in source.paths)
        self._plan = ReadPlan.of(
            numbers, part.group_of, most=source.frames_held, whole=whole, merge=not part.is_counted
        )
        self._held = [_Held() for _ in self._plan.reads]
        for read, number in self._plan.slots:
            self._held[read].uses[number] += 1
        self._paths = Paths(source)
        self._changed = threading.Condition()
        self._next_read = 0
        self._first_needed = 0  #: all reads before this number need no more memory
        self._position = 0
        self._is_stopped = False
        self._is_starved = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to decode."""
        at_once = min(self._source.threads, len(self._plan.reads))
        for number in range(at_once):
            thread = threading.Thread(target=self._work, name=f"codecfleet-frames-group-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def poll(self) -> Frame | None:
        """Return the next frame, or None if there is none yet: ``wake`` is called later.

        Raises FramesEnd, FrameDamaged, or the error of a read.
        """
        with self._changed:
            return self._poll()

    def take(self) -> Frame:
        """Wait for the next frame, and return it; raises the errors of ``poll``."""
        with self._changed:
            while (frame := self._poll()) is None:
                self._changed.wait()
            return frame

    def stop(self) -> None:
        """Let the threads end soon, without waiting for them. Any thread may call this. Idempotent."""
        with self._changed:
            self._is_stopped = True
            for held in self._held:
                held.frames.clear()
                count_held(self.report, -held.held_bytes)
                held.held_bytes = 0
            self._notify()

    def close(self) -> None:
        """Stop, and wait for the threads to end. Idempotent."""
        self.stop()
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.join()

    def _poll(self) -> Frame | None:
        while self._position < len(self._plan.slots) and not self._is_stopped:
            read, number = self._plan.slots[self._position]
            held = self._held[read]
            found = held.frames.get(number)
            if found is None and held.error is not None:
                raise held.error
            if found is None and not held.is_done:
                self._is_starved = True
                return None
            self._position += 1
            held.uses[number] -= 1
            if found is not None and not held.uses[number]:
                del held.frames[number]
                held.held_bytes -= found[1]
                count_held(self.report, -found[1])
            self._changed.notify_all()
            if found is not None:
                self.report.frames += 1
                return found[0]
            if not self._leaves_out:
                raise self._undecodable(number)
        # Each read adds its counts to the report after its last frame.
        if not self._is_stopped and not all(each.is_done or each.error for each in self._held):
            self._is_starved = True
            return None
        raise FramesEnd

    def _undecodable(self, number: int) -> FrameDamaged:
        message = f"frame {number} of {self._source.ranges.index.source} cannot be decoded"
        return FrameDamaged(message, "Ask for other frames, or iterate over the film, which skips this one.", number)

    def _work(self) -> None:
        while (place := self._begin()) is not None:
            read, held = self._plan.reads[place], self._held[place]
            try:
                self._paths.decode(len(read.numbers), partial(self._decode, read, held))
                with self._changed:
                    held.is_done = True
                    self.report.segments += 1
                    self._notify()
            except _Stopped:
                return
            except BaseException as error:  # noqa: BLE001 - raised again in place of its frames
                with self._changed:
                    held.error = error
                    self._notify()

    def _begin(self) -> int | None:
        """Return the next read once there is room for its frames; None if no read is left."""
        with self._changed:
            while True:
                if self._is_stopped or self._next_read == len(self._plan.reads):
                    return None
                place = self._next_read
                while self._first_needed < place and not self._needed_bytes(self._first_needed):
                    self._first_needed += 1
                needed = sum(self._needed_bytes(each) for each in range(self._first_needed, place + 1))
                # Padding may make frames that are held for later larger than planned, which must not block the next
                # frame.
                is_ahead = self._plan.ascends and place - self._first_needed > self._source.threads
                if self._is_next(place) or needed <= self._source.limit_bytes // (AHEAD_SHARE if is_ahead else 1):
                    self._next_read += 1
                    return place
                self._changed.wait()

    def _is_next(self, place: int) -> bool:
        """Return whether the next frame belongs to a read that has not begun."""
        slots = self._plan.slots
        return self._position < len(slots) and slots[self._position][0] == place

    def _needed_bytes(self, place: int) -> int:
        """Return how much memory a read's frames need until they are handed out."""
        held = self._held[place]
        if held.is_done or held.error is not None:
            return held.held_bytes
        frames = sum(count > 0 for count in held.uses.values())
        return min(self._source.limit_bytes, frames * self._source.frame_bytes)

    def _decode(self, read: GroupRead, held: _Held, path: DecodePath[Any], fallback: str) -> None:
        """Decode a read.

        If damage is found, decode again without skipping; if the entry is unsound, from further back.
        """
        moves, skips = self._proofs.moves(read.group, path, fallback), self._source.ranges.index.has_whole_pictures
        done: set[int] = set()
        while True:
            attempt = _Attempt(self, read, held, path, fallback, moves=moves, skips=skips, done=done)
            try:
                tally = attempt.decode()
            except _Again as again:
                skips, moves = False, moves + again.moves
                with self._changed:
                    self.report.entry_moves += again.moves
                continue
            if skips and not done.issuperset(read.numbers):
                skips = False
                continue
            self._count(tally)
            return

    def _count(self, tally: SegmentTally) -> None:
        with self._changed:
            report = self.report
            report.decoded_by[tally.decoded_by] = report.decoded_by.get(tally.decoded_by, 0) + 1
            report.fallbacks += [tally.fallback] if tally.fallback else []
            report.failed_packets += tally.failed_packets
            report.corrupt_frames += tally.corrupt_frames

    def put(self, held: _Held, number: int, frame: Frame, size_bytes: int) -> None:
        """Add a frame once there is room for it. Raises _Stopped."""
        limit_bytes = self._source.limit_bytes
        with self._changed:
            # In any other order the plan limits memory, and no frame may wait, because a later frame may be needed
            # first.
            while self._plan.ascends and held.frames and held.held_bytes + size_bytes > limit_bytes:
                self.check()
                self._changed.wait()
            self.check()
            if held.uses[number] and number not in held.frames:
                held.frames[number] = (frame, size_bytes)
                held.held_bytes += size_bytes
                count_held(self.report, size_bytes)
                self._notify()

    def check(self) -> None:
        """Raise _Stopped if the frames are no longer wanted."""
        if self._is_stopped:
            raise _Stopped

    def count_decoded(self, pictures: int) -> None:
        """Count decoded pictures."""
        with self._changed:
            self.report.decoded += pictures

    @property
    def source(self) -> FrameSource:
        """The source."""
        return self._source

    def _notify(self) -> None:
        self._changed.notify_all()
        if self._is_starved:
            self._is_starved = False
            self._wake()


class _Attempt:
    """One attempt at a read, from ``moves`` steps back. ``done`` receives the numbers of the frames handed over."""

    def __init__(
        self,
        reader: GroupReader,
        read: GroupRead,
        held: _Held,
        path: DecodePath[Any],
        fallback: str,
        *,
        moves: int,
        skips: bool,
        done: set[int],
    ) -> None:
        part, ranges = reader.source.part, reader.source.ranges
        self._reader = reader
        self._held = held
        self._skips = skips
        self._done = done
        self._left = [number for number in read.numbers if number not in done]
        self._wanted = frozenset(self._left)
        self._whole = path.whole
        self._sound_at: int | None = None
        segment = part.groups[read.group]
        self._counted = part.first_of(read.group) if part.is_counted else None
        if self._counted is None:
            times = {int(part.times[number]): number for number in self._left}
            self._number_of: dict[int, int] = times
            last_packet = part.last_packet(tuple(times))
            range_ = ranges.decode_wanted(segment, moves, frozenset(times), last_packet, skips=skips)
            interval: tuple[int | None, int | None] = (None, None)
        else:
            range_ = ranges.decode(segment, moves)
            interval = (segment.start_ticks, segment.end_ticks)
        self._range = range_
        self._maker = FrameMaker(reader.source, path, range_)
        self._walk: SegmentWalk[Any, tuple[int, Frame, int]] = SegmentWalk(
            range_, interval, path, fallback, make=self._made, seen=self._seen, in_thread=False, seams=False
        )

    def decode(self) -> SegmentTally:
        """Decode the read, and return its tally.

        Raises _Again: the read must be decoded again; _Stopped: the frames are no longer wanted; CodecfleetError:
        decoding failed.
        """
        found: list[tuple[int, Frame, int]] = []
        try:
            with ExitStack() as stack:
                stack.enter_context(closing(self._maker))
                for _, made in stack.enter_context(closing(self._walk.results())):
                    if self._whole:
                        self._reader.check()
                        found.append(made)
                    else:
                        self._hand_over(made)
                    if len(found) + len(self._done & self._wanted) == len(self._wanted):
                        break
            self._seen()
        finally:
            self._reader.count_decoded(self._walk.met.frames)
        for made in found:
            self._hand_over(made)
        return self._walk.tally()

    def _hand_over(self, made: tuple[int, Frame, int]) -> None:
        number, frame, size_bytes = made
        self._reader.put(self._held, number, frame, size_bytes)
        self._done.add(number)

    def _made(self, ticks: int, picture: VideoFrame | DevicePicture) -> Iterator[tuple[int, tuple[int, Frame, int]]]:
        if self._counted is None:
            number = self._number_of.get(ticks, -1)
        else:
            number, self._counted = self._counted, self._counted + 1
        if number in self._wanted:
            for moment, (frame, size_bytes) in self._maker.frames(number, ticks, picture):
                yield moment, (number, frame, size_bytes)

    def _seen(self) -> None:
        """Look for damage after each picture. Raises _Again, or FrameDamaged with ``strict``."""
        self._reader.check()
        self._reader.seen()
        damage = self._walk.met.first_damaged_packet
        if damage is None or damage == self._sound_at:
            return
        source = self._reader.source
        if source.request.strict:
            number = next((each for each in self._left if each not in self._done), self._left[-1])
            message = f"{self._range.source} is damaged around packet {damage}, before frame {number} is complete"
            raise FrameDamaged(message, "Leave out strict to get the frames that can be decoded.", number)
        if self._skips:
            raise _Again(moves=0)
        if not source.ranges.index.is_sound(self._range.entry, damage):
            raise _Again(moves=1)
        self._sound_at = damage
