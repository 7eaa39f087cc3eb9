"""Decodes a source's segments into frames, several at once, in threads directed by a streaming board."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any

from av.video.frame import VideoFrame

from ...actors.decode.picture_hash import PictureHash
from ...actors.media.kept_sources import KEPT
from ...actors.segment.decode_path import DecodePath
from ...actors.segment.walk import SEAM_FRAMES, SegmentTally, SegmentWalk
from ...actors.surfaces.device_frame import DevicePicture
from ...actors.surfaces.frames import Frame
from ...actors.task_owner import consume_exception
from ...errors import Cancelled, InputDamaged, UsageError
from ..board.board import Board
from ..board.events import Began, Delivered, Finished, Lost, Run
from ..board.loop import BoardLoop, Capacity, finished
from ..held import Held
from .making import FrameMaker, Paths
from .request import FramesReport
from .source import FrameSource
from .window import FrameQueue, FramesEnd, FrameWindow, Superseded


class _Unsound(Exception):
    """A decoder met damage, and its state may differ from that of a decoder started at the track's beginning."""


class FrameReader:
    """Decodes a source's frames in its own threads, which run from ``start`` to ``close``.

    ``wake`` is called, from any thread, when a poll may succeed again after it returned None.
    """

    def __init__(self, source: FrameSource, wake: Callable[[], None]) -> None:
        self._source = source
        self.report = FramesReport(frames_promised=-(-source.ranges.frames // source.request.every))
        self.report.on_device, self.report.gpu_refusal = source.on_device, source.gpu_refusal
        self._wake = wake
        self._window = FrameWindow(source.segment_bytes, wake, self.report)
        self._board = BoardLoop(
            Board.of([segment.frames for segment in source.ranges.segments], streams=True),
            Capacity(source.segments_at_once),
            work=self._work,
            accept=self._accept,
            join=self._open,
            drop=self._window.drop,
        )
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._threads: list[threading.Thread] = []
        self._paths = Paths(source)

    @property
    def source(self) -> FrameSource:
        """The source."""
        return self._source

    def start(self) -> None:
        """Begin to decode."""
        self._task = Held(self._run(), "codecfleet frames").task
        self._task.add_done_callback(consume_exception)

    def poll(self) -> Frame | None:
        """Return the next frame; None if there is none yet, and ``wake`` will be called.

        Raises FramesEnd, or the error of a segment.
        """
        if self._task is not None and self._task.done():
            if self._task.cancelled():
                message = "the event loop in which these frames were first requested has ended"
                raise UsageError(message, "Take all frames of a stream in one event loop.")
            self._task.result()
            raise FramesEnd
        found = self._window.take()
        if isinstance(found, int):
            self._board.post(Delivered(found))
            return None
        return found

    def stop(self) -> None:
        """Let the threads end soon, without waiting for them. Any thread may call this. Idempotent."""
        self._window.stop()
        if self._task is not None:
            with suppress(RuntimeError):  # the loop is closed, and has cancelled this task
                self._loop.call_soon_threadsafe(self._task.cancel)

    def close(self) -> None:
        """Stop, wait for the threads to end, and release everything. Idempotent."""
        self.stop()
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.join()
        KEPT.forget(self._source.stamp.source)

    async def _run(self) -> None:
        try:
            await self._board.run()
        finally:
            self._window.stop()
            self._loop.call_soon(self._wake)

    async def _work(self, run: Run) -> Finished | Lost:
        """Decode a segment in a daemon thread, since the thread may block until the segment's frames are taken."""
        ended: asyncio.Future[Finished | Lost] = self._loop.create_future()
        queue = self._window.queue(run.segment)
        name = f"codecfleet-frames-{run.segment}"
        thread = threading.Thread(target=self._work_in_thread, args=(run, queue, ended), name=name, daemon=True)
        self._threads = [*(each for each in self._threads if each.is_alive()), thread]
        thread.start()
        return await ended

    async def _accept(self, run: Run, result: Finished | Lost) -> Finished | Lost:
        if isinstance(result, Finished):
            self._window.complete(run.segment)
        return result

    async def _open(self, board: Board, segment: int) -> None:
        del board
        self._window.open(segment)

    def _work_in_thread(self, run: Run, queue: FrameQueue, ended: "asyncio.Future[Finished | Lost]") -> None:
        dropped = Cancelled("the segment is no longer wanted from this run")
        result: Finished | Lost = Lost(run.segment, dropped, attempt=run.attempt)
        try:
            result = self._decode(run, queue)
        except Superseded:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again in place of its frames
            queue.fail(error)
        self._call_in_loop(_settle, ended, result)

    def _call_in_loop(self, call: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            self._loop.call_soon_threadsafe(call, *args)

    def _decode(self, run: Run, queue: FrameQueue) -> Finished:
        frames = self._source.frames_of(self._source.ranges.segments[run.segment].frames)
        return self._paths.decode(frames, partial(self._decode_soundly, run, queue))

    def _decode_soundly(self, run: Run, queue: FrameQueue, path: DecodePath[Any], fallback: str) -> Finished:
        """Decode a segment; each time a decoder in an unsound state meets damage, decode again from further back."""
        moves, past = run.entry_moves, None
        while True:
            began = partial(self._began, run.segment, moves)
            attempt = _Attempt(self._source, queue, began, run.segment, moves, path=path, fallback=fallback, past=past)
            try:
                return finished(run, attempt.decode(), attempt.entry, self._source.ranges.index)
            except _Unsound:
                moves, past = moves + 1, attempt.last_ticks
                queue.move()

    def _began(self, segment: int, moves: int, before: tuple[PictureHash, ...], *, at_start: bool) -> None:
        self._call_in_loop(self._board.post, Began(segment, before, moves, at_start))


def _settle(ended: "asyncio.Future[Finished | Lost]", result: Finished | Lost) -> None:
    if not ended.done():
        ended.set_result(result)


class _Attempt:
    """One attempt at the pictures shown after ``past`` (ticks; None: all). ``began`` gets the hashes of the first."""

    def __init__(
        self,
        source: FrameSource,
        queue: FrameQueue,
        began: Callable[..., None],
        number: int,
        moves: int,
        *,
        path: DecodePath[Any],
        fallback: str,
        past: int | None,
    ) -> None:
        segment = source.ranges.segments[number]
        range_ = source.ranges.decode(segment, moves)
        self._source = source
        self._queue = queue
        self._began = began
        self._segment = segment
        self._range = range_
        self._path = path
        self._past = None if path.whole else past
        self.entry = range_.entry
        self.last_ticks = self._past
        self._sound_at: int | None = None
        self._maker = FrameMaker(source, path, range_)
        self._number = self._numbers()
        self._walk: SegmentWalk[Any, tuple[Frame, int]] = SegmentWalk(
            range_,
            (segment.start_ticks, segment.end_ticks),
            path,
            fallback,
            make=self._framed,
            seen=self._check_damage,
            in_thread=False,
        )

    def decode(self) -> SegmentTally:
        """Decode the range into the queue, and return its tally.

        Raises _Unsound: the range must be decoded from further back; Superseded: its frames are no longer wanted;
        CodecfleetError: decoding failed.
        """
        self._queue.begin(whole=self._path.whole)
        self._tell_beginning(())
        with ExitStack() as stack:
            stack.enter_context(closing(self._maker))
            for _, (frame, size_bytes) in stack.enter_context(closing(self._walk.results())):
                self._queue.put(frame, size_bytes)
        self._check_damage()
        tally = self._walk.tally()
        self._tell_beginning(tally.seam_before)
        self._queue.finish(tally)
        return tally

    def _tell_beginning(self, before: tuple[PictureHash, ...]) -> None:
        self._began(before, at_start=self._range.entry is None)

    def _framed(self, ticks: int, picture: VideoFrame | DevicePicture) -> Iterator[tuple[int, tuple[Frame, int]]]:
        if len(self._walk.taken) == SEAM_FRAMES:
            self._tell_beginning(tuple(self._walk.before))
        number = self._number(ticks)
        if self._past is not None and ticks <= self._past:
            return
        self.last_ticks = ticks
        if number % self._source.request.every == 0:
            yield from self._maker.frames(number, ticks, picture)

    def _check_damage(self) -> None:
        damage = self._walk.met.first_damaged_packet
        if damage is None or damage == self._sound_at:
            return
        if self._source.request.strict:
            message = f"{self._range.source} is damaged around packet {damage}"
            raise InputDamaged(message, "Leave out strict to get the frames that can be decoded.")
        if not self._source.ranges.index.is_sound(self._range.entry, damage):
            raise _Unsound
        self._sound_at = damage

    def _numbers(self) -> Callable[[int], int]:
        """Return a function that numbers the segment's pictures; call it once for each picture, in order.

        Numbers come from the times in the index, so that a lost picture does not shift the later ones. If times are
        unreliable, pictures are counted.
        """
        ranges = self._source.ranges
        first = ranges.segments[0].start_ticks
        if not len(ranges.index.unreliable):
            return partial(ranges.index.frames_between, first)
        count = sum(segment.frames for segment in ranges.segments[: self._segment.segment]) - 1

        def counted(ticks: int) -> int:
            nonlocal count
            del ticks
            count += 1
            return count

        return counted
