"""Makes users' frames from decoded pictures, and chooses the decoder."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from av.video.frame import VideoFrame

from ...actors.decode.decoding import SOFTWARE, DecodeRange
from ...actors.device.interface import WorkerDevice
from ...actors.segment.decode_path import DecodePath
from ...actors.segment.filtering import FilterSettings
from ...actors.segment.walk import decode_on_first
from ...actors.surfaces.device_frame import DevicePicture, PictureNotes, stated_colour
from ...actors.surfaces.frames import Frame, frame_bytes
from ...errors import DeviceError, Retry
from .source import FrameSource

if TYPE_CHECKING:
    from fractions import Fraction

ResultT = TypeVar("ResultT")


class FrameMaker:
    """Makes the frames of one range's pictures, decoded on ``path``. Use it in one thread, and close it."""

    def __init__(self, source: FrameSource, path: DecodePath[Any], range_: DecodeRange) -> None:
        self._source = source
        self._path = path
        self._by_colours = bool(range_.colours)
        self._to_host = None if source.device is None else partial(picture_to_host, source.device)
        self._durations_s: dict[Fraction | int, Fraction] = {}
        self._format = source.output or source.format
        self._start_ticks, self._time_base = source.ranges.index.first_ticks, source.ranges.index.time_base
        self._first, self._keyframes = source.part.first, source.part.keyframes
        self._chain = None
        if source.output is not None:
            filters = FilterSettings(source.output, by_picture=self._by_colours)
            self._chain = path.open_chain(filters, source.ranges.index.time_base)

    def frames(
        self, number: int, ticks: int, picture: VideoFrame | DevicePicture
    ) -> Iterator[tuple[int, tuple[Frame, int]]]:
        """Yield (ticks, (frame, size in bytes)) for each frame made of a picture, which is ``number`` in the part."""
        notes = picture.opaque if isinstance(picture.opaque, PictureNotes) else None
        for moment, each in ((ticks, picture),) if self._chain is None else self._chain.push(ticks, picture):
            frame = self._frame(number, moment, each, notes)
            yield moment, (self._coloured(frame, picture), frame_bytes(each))

    def close(self) -> None:
        """Release the memory of the conversion. Idempotent."""
        if self._chain is not None:
            self._chain.close()

    def _coloured(self, frame: Frame, decoded: VideoFrame | DevicePicture) -> Frame:
        """Return the frame, with its picture's colours if they change and no filter chain on the host converts them."""
        if not self._by_colours or (self._chain is not None and self._path.device is None):
            return frame
        return replace(frame, format=replace(frame.format, colour=stated_colour(decoded, frame.format.colour)))

    def _frame(self, number: int, ticks: int, picture: VideoFrame | DevicePicture, notes: PictureNotes | None) -> Frame:
        pix_fmt = picture.pix_fmt if isinstance(picture, DevicePicture) else picture.format.name
        shape = (picture.width, picture.height, pix_fmt)
        if shape != (self._format.width, self._format.height, self._format.pix_fmt):
            # The next pictures probably have the same shape.
            self._format = replace(self._format, width=shape[0], height=shape[1], pix_fmt=pix_fmt)
        shown_ticks = self._source.part.duration(ticks)
        duration_s = self._durations_s.get(shown_ticks)
        if duration_s is None:
            duration_s = self._durations_s[shown_ticks] = shown_ticks * self._time_base
        frame = Frame(
            index=number,
            ticks=ticks,
            time_base=self._time_base,
            start_ticks=self._start_ticks,
            format=self._format,
            source_index=self._first + number,
            duration_s=duration_s,
            is_keyframe=ticks in self._keyframes,
            notes=notes,
            _picture=picture,
            _to_host=self._to_host,
        )
        stream = self._source.request.stream
        if stream is not None and frame.on_device:
            frame.record_stream(stream)
        return frame


def picture_to_host(device: WorkerDevice, picture: DevicePicture) -> VideoFrame:
    """Return a copy on the host, with the bytes that software decoding gives. Raises DeviceError: the copy failed."""
    with closing(device.open_mover()) as mover:
        return mover.to_host(picture)


class Paths:
    """Decodes segments on the first path that can, and only in software once the device is lost. Thread-safe."""

    def __init__(self, source: FrameSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._lost_device = ""

    def decode(self, frames: int, decode: Callable[[DecodePath[Any], str], ResultT]) -> ResultT:
        """Return the result of ``decode`` for a segment of ``frames`` frames.

        The arguments are those of ``decode_on_first``.
        """
        paths = self._source.paths_of(frames)
        software = [path for path in paths if path.decoder is SOFTWARE]
        if not self._lost_device or not software:
            try:
                return decode_on_first(paths, decode)
            except DeviceError as error:
                # Software can start the segment over: frames that the device decodes are handed out only when the
                # whole segment is decoded (except with low latency).
                if error.retry is not Retry.ELSEWHERE or not software:
                    raise
                with self._lock:
                    self._lost_device = error.message
        return decode_on_first([replace(path, reason=self._lost_device) for path in software], decode)
