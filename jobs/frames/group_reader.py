"""Decodes chosen frames in threads, in the order requested: each group of pictures at once, with bounded memory."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from av.video.frame import VideoFrame

from ...actors.segment.decode_path import DecodePath
from ...actors.segment.walk import SegmentTally, SegmentWalk
from ...actors.surfaces.device_frame import DevicePicture
from ...actors.surfaces.frames import Frame
from ...errors import FrameDamaged
from .group_window import GroupWindow, HeldFrames
from .making import FrameMaker, Paths
from .proofs import EntryProofs
from .request import FramesReport
from .selection import ReadPlan, merged_frames
from .source import FrameSource
from .window import Superseded, count_tally


class _Again(Exception):
    """Damage was found, so the read must be decoded again, without skipping pictures or from further back."""

    def __init__(self, *, moves: int) -> None:
        super().__init__()
        self.moves = moves


def _undecodable(source: str, number: int) -> FrameDamaged:
    message = f"frame {number} of {source} cannot be decoded"
    return FrameDamaged(message, "Ask for other frames, or iterate over the film, which skips this one.", number)


class GroupReader:
    """Decodes the frames ``numbers`` of a source's part, in that order; its threads run from ``start`` to ``close``.

    ``wake`` is called, from any thread, when a poll may succeed again after it returned None. A frame that cannot be
    decoded raises FrameDamaged, or is left out with ``leaves_out``. The decoding threads call ``seen`` after each
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
        self.seen = seen
        whole = any(path.whole for path in source.paths)
        merged = 0 if part.is_counted else merged_frames(len(numbers), source.threads)
        self._plan = ReadPlan.of(numbers, part.group_of, most=source.frames_held, whole=whole, merged=merged)
        self.window = GroupWindow(
            self._plan,
            report,
            wake,
            None if leaves_out else partial(_undecodable, source.ranges.index.source),
            frame_bytes=source.frame_bytes,
            limit_bytes=source.limit_bytes,
            threads=source.threads,
        )
        self._paths = Paths(source)
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to decode."""
        at_once = min(self._source.threads, len(self._plan.reads))
        for number in range(at_once):
            thread = threading.Thread(target=self._work, name=f"codecfleet-frames-group-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def poll(self) -> Frame | None:
        """Return the next frame; None if there is none yet, and ``wake`` will be called.

        Raises FramesEnd, FrameDamaged, or the error of a read.
        """
        return self.window.poll()

    def take(self) -> Frame:
        """Wait for the next frame, and return it; raises the errors of ``poll``."""
        return self.window.take()

    def stop(self) -> None:
        """Let the threads end soon, without waiting for them. Any thread may call this. Idempotent."""
        self.window.stop()

    def close(self) -> None:
        """Stop, and wait for the threads to end. Idempotent."""
        self.stop()
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        while (held := self.window.begin()) is not None:
            try:
                self._paths.decode(len(held.read.numbers), partial(self._decode, held))
            except Superseded:
                return
            except BaseException as error:  # noqa: BLE001 - raised again in place of its frames
                self.window.end(held, error)
            else:
                self.window.end(held)

    def _decode(self, held: HeldFrames, path: DecodePath[Any], fallback: str) -> None:
        """Decode a read.

        If damage is found, decode again without skipping pictures; if the entry is unsound, from further back.
        """
        read = held.read
        moves, skips = self._proofs.moves(read.group, path, fallback), self._source.ranges.index.has_whole_pictures
        done: set[int] = set()
        while True:
            attempt = _Attempt(self, held, path, fallback, moves=moves, skips=skips, done=done)
            try:
                tally = attempt.decode()
            except _Again as again:
                skips, moves = False, moves + again.moves
                with self.window.lock:
                    self.report.entry_moves += again.moves
                continue
            if skips and not done.issuperset(read.numbers):
                skips = False
                continue
            with self.window.lock:
                count_tally(self.report, tally)
            return

    @property
    def source(self) -> FrameSource:
        """The source."""
        return self._source


class _Attempt:
    """One attempt at a read; decoding starts ``moves`` steps before the group's usual entry.

    ``done`` receives the numbers of the frames handed over.
    """

    def __init__(
        self,
        reader: GroupReader,
        held: HeldFrames,
        path: DecodePath[Any],
        fallback: str,
        *,
        moves: int,
        skips: bool,
        done: set[int],
    ) -> None:
        part, ranges, read = reader.source.part, reader.source.ranges, held.read
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

        Raises _Again: the read must be decoded again; Superseded: the frames are no longer wanted; CodecfleetError:
        decoding failed.
        """
        found: list[tuple[int, Frame, int]] = []
        missing = set(self._left)
        try:
            with ExitStack() as stack:
                stack.enter_context(closing(self._maker))
                for _, made in stack.enter_context(closing(self._walk.results())):
                    if self._whole:
                        found.append(made)
                    else:
                        self._hand_over([made])
                    missing.discard(made[0])
                    if not missing:
                        break
            self._seen()
        finally:
            with self._reader.window.lock:
                self._reader.report.decoded += self._walk.met.frames
        self._hand_over(found)
        return self._walk.tally()

    def _hand_over(self, made: Sequence[tuple[int, Frame, int]]) -> None:
        self._reader.window.put(self._held, made)
        self._done.update(number for number, _, _ in made)

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
        self._reader.window.check()
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
