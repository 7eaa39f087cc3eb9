"""The threads that decode a source's segments, several at once, into frames."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

from av.video.frame import VideoFrame

from ...actors.decode.decoding import DecodeRange
from ...actors.device.interface import WorkerDevice
from ...actors.media.kept_sources import KEPT
from ...actors.segment.decode_path import DecodePath
from ...actors.segment.filtering import FilterSettings
from ...actors.segment.walk import SEAM_FRAMES, SegmentWalk, decode_on_first
from ...actors.surfaces.device_frame import DevicePicture
from ...actors.surfaces.frames import Frame, frame_bytes
from ...actors.surfaces.picture_notes import PictureNotes
from ...errors import InputDamaged
from ..plan.track_ranges import PlannedSegment
from .request import FramesReport
from .slots import FrameSlots, FrameTask, Superseded
from .source import FrameSource

__all__ = ["FrameReader"]


class _Unsound(Exception):
    """Damage was met in a state that a decoder from the start would not be in."""


class FrameReader:
    """Decodes a source's frames in threads of its own, from ``start`` to ``close``.

    Args:
        source: what to decode.
        wake: called from any thread when polling again may help, after it did not.
    """

    def __init__(self, source: FrameSource, wake: Callable[[], None]) -> None:
        self._source = source
        self.report = FramesReport(frames_promised=-(-source.ranges.frames // source.request.every))
        self.report.on_device, self.report.gpu_refusal = source.on_device, source.gpu_refusal
        self._slots = FrameSlots(
            len(source.ranges.segments),
            at_once=source.segments_at_once,
            slot_bytes=source.segment_bytes,
            wake=wake,
            report=self.report,
        )
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to decode."""
        for number in range(self._source.segments_at_once):
            thread = threading.Thread(target=self._work, name=f"codecfleet-frames-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def poll(self) -> Frame | None:
        """Return the next frame, None when it is not there yet; see ``FrameSlots.poll``."""
        return self._slots.poll()

    def stop(self) -> None:
        """Have the threads end soon, without waiting for them. Idempotent."""
        self._slots.stop()

    def close(self) -> None:
        """Stop, and wait until the threads are gone and everything is given back. Idempotent."""
        self.stop()
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.join()
        KEPT.close_idle(0)

    def _work(self) -> None:
        while (task := self._slots.next_task()) is not None:
            try:
                self._decode(task)
            except Superseded:
                continue
            except BaseException as error:  # noqa: BLE001 - raised again where its frames would have come out
                self._slots.fail(task, error)

    def _decode(self, task: FrameTask) -> None:
        """Decode a segment on the first path that can."""
        segment = self._source.ranges.segments[task.segment]
        decode_on_first(self._source.paths_of(segment.frames), partial(self._decode_soundly, task, segment))

    def _decode_soundly(self, task: FrameTask, segment: PlannedSegment, path: DecodePath[Any], fallback: str) -> None:
        """Decode a segment, from further back each time that damage is met in the wrong state."""
        moves, past = task.entry_moves, None
        while True:
            range_ = self._source.ranges.decode(segment, moves)
            run = _Run(
                self._source, self._slots, task, segment=segment, range_=range_, path=path, fallback=fallback, past=past
            )
            try:
                run.decode()
            except _Unsound:
                moves, past = moves + 1, run.last_ticks
                self._slots.move(task, moves)
            else:
                return


class _Run:
    """One run over a segment. ``past`` is the last picture that an earlier run gave: what follows is wanted."""

    def __init__(
        self,
        source: FrameSource,
        slots: FrameSlots,
        task: FrameTask,
        *,
        segment: PlannedSegment,
        range_: DecodeRange,
        path: DecodePath[Any],
        fallback: str,
        past: int | None,
    ) -> None:
        self._source = source
        self._slots = slots
        self._task = task
        self._segment = segment
        self._range = range_
        self._path = path
        self._past = None if path.whole else past
        self.last_ticks = self._past
        self._sound_at: int | None = None
        self._time_base = source.ranges.index.time_base
        self._chain = None if source.output is None else path.open_chain(FilterSettings(source.output), self._time_base)
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

    def decode(self) -> None:
        """Decode the range into the slot.

        Raises:
            _Unsound: from further back, please.
            Superseded: the segment is not wanted any more.
            CodecfleetError: it cannot be decoded in this way.
        """
        self._slots.begin(self._task, whole=self._path.whole)
        with ExitStack() as stack:
            if self._chain is not None:
                stack.enter_context(closing(self._chain))
            for _, (frame, size_bytes) in stack.enter_context(closing(self._walk.results())):
                self._slots.put(self._task, frame, size_bytes)
        self._check_damage()
        self._slots.finish(self._task, self._walk.tally(), at_start=self._range.entry is None)

    def _framed(self, ticks: int, picture: Any) -> Iterator[tuple[int, tuple[Frame, int]]]:  # noqa: ANN401 - of either memory
        """Yield what a picture of the segment becomes, if it is wanted, and its bytes."""
        if len(self._walk.taken) == SEAM_FRAMES:
            self._slots.see_beginning(self._task, tuple(self._walk.before))
        number = self._number(ticks)
        if self._past is not None and ticks <= self._past:
            return
        self.last_ticks = ticks
        if number % self._source.request.every == 0:
            notes = picture.opaque if isinstance(picture.opaque, PictureNotes) else None
            for moment, each in ((ticks, picture),) if self._chain is None else self._chain.push(ticks, picture):
                yield moment, (self._frame(number, moment, each, notes), frame_bytes(each))

    def _check_damage(self) -> None:
        damage = self._walk.met.first_damaged_packet
        if damage is None or damage == self._sound_at:
            return
        if self._source.request.strict:
            message = f"{self._range.source} is damaged around packet {damage}"
            raise InputDamaged(message, "Leave out strict to have what can be decoded.")
        if not self._source.ranges.index.is_sound(self._range.entry, damage):
            raise _Unsound
        self._sound_at = damage

    def _numbers(self) -> Callable[[int], int]:
        """Return what numbers the segment's pictures, called once for each, in order.

        By the times that the index promises, so that what is lost to damage does not shift what follows; where times
        are missing or repeated, by counting within the segment.
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
        return Frame(
            index=number,
            ticks=ticks,
            time_base=self._time_base,
            start_ticks=source.ranges.index.first_ticks,
            format=format_,
            notes=notes,
            _picture=picture,
            _to_host=None if source.device is None else partial(_to_host, source.device),
        )


def _to_host(device: WorkerDevice, picture: DevicePicture) -> VideoFrame:
    with closing(device.open_mover()) as mover:
        return mover.to_host(picture)
