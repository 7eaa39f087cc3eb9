"""Decodes a source's segments into frames, several at once, in threads that a streaming board directs."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from av.video.frame import VideoFrame

from ...actors.decode.decoding import SOFTWARE, PictureHash
from ...actors.device.interface import WorkerDevice
from ...actors.media.kept_sources import KEPT
from ...actors.segment.decode_path import DecodePath
from ...actors.segment.filtering import FilterSettings
from ...actors.segment.walk import SEAM_FRAMES, SegmentTally, SegmentWalk, decode_on_first
from ...actors.surfaces.device_frame import DevicePicture, PictureNotes, stated_colour
from ...actors.surfaces.frames import Frame, frame_bytes
from ...actors.task_owner import consume_exception
from ...errors import Cancelled, DeviceError, InputDamaged, Retry, UsageError
from ..board.board import Board
from ..board.events import Began, Delivered, Finished, Lost, Run
from ..board.loop import BoardLoop, Capacity, finished
from ..held import Held
from .request import FramesReport
from .source import FrameSource
from .window import FrameQueue, FrameWindow, Superseded


class FramesEnd(Exception):
    """Every frame was delivered."""


class _Unsound(Exception):
    """A decoder met damage, and its state differs from that of a decoder started at the track's beginning."""


class FrameReader:
    """Decodes a source's frames in its own threads, from ``start`` to ``close``.

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
        self._lost_device = ""

    def start(self) -> None:
        """Begin to decode."""
        self._task = Held(self._run(), "codecfleet frames").task
        self._task.add_done_callback(consume_exception)

    def poll(self) -> Frame | None:
        """Return the next frame, or None: then ``wake`` is called later. Raises FramesEnd, or a segment's error."""
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
        """Let the threads end soon, without waiting for them; callable from any thread. Idempotent."""
        self._window.stop()
        if self._task is not None:
            with suppress(RuntimeError):  # the loop is closed, and has cancelled it
                self._loop.call_soon_threadsafe(self._task.cancel)

    def close(self) -> None:
        """Stop, wait for the threads to end, and release everything. Idempotent."""
        self.stop()
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.join()
        KEPT.close_idle(0)

    async def _run(self) -> None:
        try:
            await self._board.run()
        finally:
            self._window.stop()
            self._loop.call_soon(self._wake)

    async def _work(self, run: Run) -> Finished | Lost:
        """Decode a segment in a daemon thread, which may be blocked until its frames are taken."""
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
        dropped = Cancelled("the segment is decoded by another run, or not at all")
        result: Finished | Lost = Lost(run.segment, dropped, attempt=run.attempt)
        try:
            result = self._decode(run, queue)
        except Superseded:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again in place of its frames
            queue.fail(error)
        self._call_in_loop(_settle, ended, result)

    def _call_in_loop(self, call: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing waits
            self._loop.call_soon_threadsafe(call, *args)

    def _decode(self, run: Run, queue: FrameQueue) -> Finished:
        """Decode a segment on the first path that can; in software once the device is lost."""
        paths = self._source.paths_of(self._source.ranges.segments[run.segment].frames)
        decode = partial(self._decode_soundly, run, queue)
        software = [path for path in paths if path.decoder is SOFTWARE]
        if not self._lost_device or not software:
            try:
                return decode_on_first(paths, decode)
            except DeviceError as error:
                # The device's frames of this segment were held back until all of them were decoded.
                if error.retry is not Retry.ELSEWHERE or not software:
                    raise
                self._lost_device = error.message
        return decode_on_first([replace(path, reason=self._lost_device) for path in software], decode)

    def _decode_soundly(self, run: Run, queue: FrameQueue, path: DecodePath[Any], fallback: str) -> Finished:
        """Decode a segment, from further back each time that it meets damage in an unsound state."""
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
    """One attempt at a segment, for its pictures after ``past``; ``began`` is called with the first pictures."""

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
        self._time_base = source.ranges.index.time_base
        self._chain = None
        if source.output is not None:
            filters = FilterSettings(source.output, by_picture=bool(range_.colours))
            self._chain = path.open_chain(filters, self._time_base)
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

        Raises _Unsound: decode from further back; Superseded: no longer wanted; CodecfleetError: it failed.
        """
        self._queue.begin(whole=self._path.whole)
        self._tell_beginning(())
        with ExitStack() as stack:
            if self._chain is not None:
                stack.enter_context(closing(self._chain))
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
            notes = picture.opaque if isinstance(picture.opaque, PictureNotes) else None
            for moment, each in ((ticks, picture),) if self._chain is None else self._chain.push(ticks, picture):
                frame = self._frame(number, moment, each, notes)
                yield moment, (self._coloured(frame, picture), frame_bytes(each))

    def _coloured(self, frame: Frame, decoded: VideoFrame | DevicePicture) -> Frame:
        """Return a frame with its own picture's colours, if the source's change; on the host a chain converts them."""
        if not self._range.colours or (self._chain is not None and self._path.device is None):
            return frame
        return replace(frame, format=replace(frame.format, colour=stated_colour(decoded, frame.format.colour)))

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
        """Return a function that numbers the segment's pictures, to be called once for each, in order.

        Numbers come from the index's times, so that lost pictures shift no others; if times are unreliable, they count.
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

    def _frame(self, number: int, ticks: int, picture: VideoFrame | DevicePicture, notes: PictureNotes | None) -> Frame:
        source = self._source
        format_ = source.output or source.format
        if isinstance(picture, DevicePicture):
            shape = (picture.frame.width, picture.frame.height, picture.pix_fmt)
        else:
            shape = (picture.width, picture.height, picture.format.name)
        if shape != (format_.width, format_.height, format_.pix_fmt):
            format_ = replace(format_, width=shape[0], height=shape[1], pix_fmt=shape[2])
        frame = Frame(
            index=number,
            ticks=ticks,
            time_base=self._time_base,
            start_ticks=source.ranges.index.first_ticks,
            format=format_,
            notes=notes,
            _picture=picture,
            _to_host=None if source.device is None else partial(picture_to_host, source.device),
        )
        if source.request.stream is not None and frame.on_device:
            frame.record_stream(source.request.stream)
        return frame


def picture_to_host(device: WorkerDevice, picture: DevicePicture) -> VideoFrame:
    """Return a copy on the host, as software would have decoded it. Raises DeviceError: the copy failed."""
    with closing(device.open_mover()) as mover:
        return mover.to_host(picture)
