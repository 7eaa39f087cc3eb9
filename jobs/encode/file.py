"""One encoded video track into one file: packets in decoding order, as an encoder session gives them."""

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from av.video.stream import VideoStream

from ...actors.decode.describe import StreamExtras, container_side_data
from ...actors.encode.session import EncodedPacket
from ...actors.encode.settings import EncoderSettings
from ...actors.media.av_stream import add_side_data
from ...actors.media.timeline import nominal_ticks
from ..carry.containers import Container
from ..join.video_track import JoinedTrack, TrackFile, add_video_track

if TYPE_CHECKING:
    from av.container import OutputContainer


class FrameFile:
    """Writes a file. ``write`` takes packets; then ``finish``, or ``abandon``. Raises StorageFailed.

    Memory holds one group of pictures: all are closed, so the pictures of one are shown before those of the next.
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

    def write(self, packet: EncodedPacket) -> None:
        """Take the next packet. Raises ProofFailed: its time does not fit; StorageFailed: it cannot be written."""
        if packet.is_keyframe and self._group:
            # Of a codec that does not reorder, or whose groups are closed: nothing before it is shown after it.
            self._flush(packet.pts_ticks)
        self._group.append(packet)

    def finish(self) -> JoinedTrack:
        """Write what is left, and close the file. Raises ProofFailed, StorageFailed: as ``write``."""
        if self._group:
            self._flush(None)
        return self._file.close()

    def abandon(self) -> None:
        """Give up: close what is open. The caller deletes the file."""
        self._file.abandon()

    def _flush(self, following_ticks: int | None) -> None:
        group, self._group = self._group, []
        pts_ticks = [packet.pts_ticks for packet in group]
        if not self._has_begun:
            self._has_begun = True
            self._file.begin(min(pts_ticks) * self._settings.time_base)
        self._file.write(pts_ticks, ((each.payload, each.is_keyframe) for each in group), following_ticks)
