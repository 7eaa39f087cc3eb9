"""Encodes a caller's frames into one file: runs the encoder, the clock and the muxer in one thread."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

from av.video.stream import VideoStream

from ...actors.decode.describe import StreamExtras, container_side_data
from ...actors.device.interface import WorkerDevice
from ...actors.encode.session import EncodedPacket
from ...actors.encode.settings import Codec, EncoderSettings
from ...actors.media.av_stream import add_side_data
from ...actors.media.timeline import nominal_ticks
from ...errors import ProofFailed, UsageError
from ..carry.containers import Container
from ..join.proof import file_sha256, shown_frames
from ..join.video_track import TrackFile, add_video_track
from .clock import FrameClock, measured_rate
from .request import EncodeReport, EncodeRequest
from .session import PictureSession

if TYPE_CHECKING:
    from av.container import OutputContainer

    from .inputs import Offered


#: How many frames are read before the encoder is opened: the times of two frames give the rate
PEEK_FRAMES: Final = 2


class _FrameFile:
    """Writes a file: call ``write`` for each packet, then ``finish`` or ``abandon``. Raises StorageFailed.

    One group of pictures is kept in memory. All groups are closed, so each group is shown completely before the next.
    """

    def __init__(
        self, path: Path, container: Container, settings: EncoderSettings, *, extradata: bytes, reorder_frames: int
    ) -> None:
        self._settings = settings
        self._group: list[EncodedPacket] = []
        self._has_begun = False

        def add_video(output: "OutputContainer", tick: Fraction) -> VideoStream:
            stream = add_video_track(
                output, container, settings, tick, extradata=extradata, reorder_frames=reorder_frames
            )
            for kind, data in container_side_data(settings.format, StreamExtras()).items():
                add_side_data(stream, kind, data)
            return stream

        picture_ticks = nominal_ticks(settings.format.frame_rate, settings.time_base)
        self._file = TrackFile(
            path,
            container,
            settings,
            time_base=settings.time_base,
            options=container.options,
            extradata=extradata,
            reorder_frames=reorder_frames,
            lead_ticks=reorder_frames * picture_ticks,
            last_shown_ticks=lambda _: picture_ticks,
            add_streams=add_video,
        )
        self.joined = self._file.joined

    def write(self, packets: Iterable[EncodedPacket]) -> None:
        """Take the next packets.

        Raises ProofFailed: a time is out of order; StorageFailed: the disk or store failed.
        """
        for packet in packets:
            if packet.is_keyframe and self._group:
                # Groups are closed, so no earlier packet is shown after this one.
                self._flush(packet.pts_ticks)
            self._group.append(packet)

    def finish(self) -> None:
        """Write the last group, and close the file. Raises ProofFailed, StorageFailed: as in ``write``."""
        if self._group:
            self._flush(None)
        self._file.close()

    def abandon(self) -> None:
        """Close the file without finishing it; the caller deletes it."""
        self._file.abandon()

    def _flush(self, following_ticks: int | None) -> None:
        group, self._group = self._group, []
        pts_ticks = [packet.pts_ticks for packet in group]
        if not self._has_begun:
            self._has_begun = True
            self._file.begin(min(pts_ticks) * self._settings.time_base)
        self._file.write(pts_ticks, ((each.payload, each.is_keyframe) for each in group), following_ticks)


class FrameSink(ABC):
    """Takes pictures one after the other, in one thread; any thread may call ``cancel``."""

    is_over = False  #: whether to take no more pictures

    @abstractmethod
    def add(self, item: object) -> None:
        """Take the next picture."""

    @abstractmethod
    def finish(self) -> None:
        """End after the last picture, and complete the result."""

    @abstractmethod
    def abandon(self) -> None:
        """End without a complete result."""

    def add_all(self, items: Iterable[object]) -> None:
        """Take the pictures in ``items``, until they end or ``cancel`` is called."""
        for item in items:
            if self.is_over:
                return
            self.add(item)

    def cancel(self) -> None:
        """Let ``add_all`` stop after the current picture."""
        self.is_over = True


class FrameEncoder(FrameSink):
    """Encodes a caller's frames into a file; the first frames decide the encoder and the rate."""

    def __init__(
        self,
        request: EncodeRequest,
        codec: Codec,
        container: Container,
        path: Path,
        *,
        device: Callable[[], WorkerDevice],
    ) -> None:
        self._request = request
        self._container = container
        self._path = path
        self._pictures = PictureSession(request, codec, device=device)
        self._peeked: list[Offered] = []
        self._file: _FrameFile | None = None

    def add(self, item: object) -> None:
        """Take the next frame.

        Raises UsageError: the frame does not fit, or has no time; CodecfleetError: it cannot be encoded.
        """
        offered = self._pictures.read(item)
        if self._file is not None:
            self._file.write(self._pictures.encode(offered))
            return
        self._peeked.append(offered)
        if self._request.fps is not None or len(self._peeked) == PEEK_FRAMES:
            self._begin()

    def finish(self) -> None:
        """Flush the encoder and close the file.

        Raises UsageError: there was no frame; CodecfleetError: the end cannot be written.
        """
        file = self._file or self._begin()
        file.write(self._pictures.session.finish())
        file.finish()
        self._pictures.close()

    def abandon(self) -> None:
        """Close everything without finishing; the caller deletes the file."""
        self._peeked = []
        if self._file is not None:
            self._file.abandon()
        self._pictures.close()

    def report(self, began: float) -> EncodeReport:
        """Read the file back, and return the report; ``began`` is the time of the start, by ``time.monotonic``.

        Raises ProofFailed.
        """
        if self._file is None:
            raise ProofFailed("nothing was encoded", "Give at least one frame.")
        pictures, settings = self._pictures, self._pictures.settings
        shown = shown_frames(self._path, self._container, self._file.joined, pictures.taken)
        return EncodeReport(
            output=self._request.output,
            codec=settings.codec.value,
            encoder=settings.implementation,
            from_device=pictures.from_device,
            fallback=pictures.fallback,
            width=settings.format.width,
            height=settings.format.height,
            pix_fmt=settings.format.pix_fmt,
            frames_in=pictures.taken,
            frames_out=shown,
            duration_s=pictures.clock.length_s + 1 / settings.format.frame_rate,
            output_bytes=self._path.stat().st_size,
            output_sha256=file_sha256(self._path),
            wall_s=time.monotonic() - began,
            substitute=pictures.substitute,
        )

    def _begin(self) -> _FrameFile:
        if not self._peeked:
            raise UsageError("there are no frames to encode", "Give at least one.")
        clock = FrameClock(self._peeked, fps=self._request.fps, time_base=self._request.time_base)
        pictures = self._pictures
        pictures.open(self._peeked[0], clock, self._request.fps or measured_rate(self._peeked))
        session = pictures.session
        self._file = _FrameFile(
            self._path,
            self._container,
            pictures.settings,
            extradata=session.extradata,
            reorder_frames=session.reorder_frames,
        )
        peeked, self._peeked = self._peeked, []
        for offered in peeked:
            self._file.write(pictures.encode(offered))
        return self._file
