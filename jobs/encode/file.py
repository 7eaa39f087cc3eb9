"""One encoded video track into one file: packets in decoding order, as an encoder session gives them."""

from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import av
import av.error
from av.video.stream import VideoStream

from ...actors.decode.describe import StreamExtras, container_side_data
from ...actors.encode.session import EncodedPacket
from ...actors.encode.settings import EncoderSettings
from ...actors.media.av_stream import add_side_data
from ...actors.media.timeline import nominal_ticks
from ...errors import WorkError
from ..carry.containers import Container
from ..join.gather import JoinedTrack
from ..join.output_times import OutputTimes, PacketTimes
from ..join.video_track import add_video_track, repeats_parameter_sets, video_packet, write_error

if TYPE_CHECKING:
    from av.container import OutputContainer

__all__ = ["FrameFile"]


class FrameFile:
    """Writes a file. ``write`` takes packets; then ``finish``, or ``abandon``.

    Times are settled a group of pictures at a time: all groups are closed, so that the pictures of one are shown before
    those of the next. Memory holds the packets of one group.

    Args:
        path: the file.
        container: what it is.
        settings: what encodes.
        extradata: its parameter sets.
        reorder_frames: by how many pictures it reorders.

    Raises:
        StorageFailed: it cannot be written.
    """

    def __init__(
        self, path: Path, container: Container, settings: EncoderSettings, *, extradata: bytes, reorder_frames: int
    ) -> None:
        self._path = path
        self._container = container
        self._settings = settings
        self._extradata = extradata
        self._reorder_frames = reorder_frames
        self._group: list[EncodedPacket] = []
        self._times: OutputTimes | None = None
        self.joined = JoinedTrack()
        tick = container.video_tick(settings.time_base)
        self._output: OutputContainer | None = None
        try:
            self._output = av.open(str(path), "w", format=container.muxer, container_options=container.options(tick))
            self._stream = self._add_video(self._output, tick)
            self._output.start_encoding()
        except (av.error.FFmpegError, OSError, ValueError) as error:
            self.abandon()
            raise self._failed(error) from error
        # The muxer may have settled on another tick than the one it was asked for.
        self.joined.tick = Fraction(self._stream.time_base or tick)

    def write(self, packet: EncodedPacket) -> None:
        """Take the next packet.

        Raises:
            ProofFailed: its time does not fit into the container, or among the others.
            StorageFailed: the file cannot be written.
        """
        if packet.is_keyframe and self._group:
            # Of a codec that does not reorder, or whose groups are closed: nothing before it is shown after it.
            self._flush(packet.pts_ticks)
        self._group.append(packet)

    def finish(self) -> JoinedTrack:
        """Write what is left, and close the file.

        Raises:
            ProofFailed, StorageFailed: as ``write``.
        """
        if self._group:
            self._flush(None)
        try:
            if self._output is not None:
                self._output.close()
        except (av.error.FFmpegError, OSError) as error:
            raise self._failed(error) from error
        finally:
            self._output = None
        return self.joined

    def abandon(self) -> None:
        """Give up: close what is open. The caller deletes the file."""
        output, self._output = self._output, None
        if output is not None:
            # A half-written header only makes closing fail.
            with suppress(av.error.FFmpegError, OSError, ValueError):
                output.close()

    def _add_video(self, output: "OutputContainer", tick: Fraction) -> VideoStream:
        stream = add_video_track(
            output,
            self._container,
            self._settings,
            tick,
            extradata=self._extradata,
            reorder_frames=self._reorder_frames,
        )
        for kind, data in container_side_data(self._settings.format, StreamExtras()).items():
            add_side_data(stream, kind, data)
        return stream

    def _flush(self, following_ticks: int | None) -> None:
        group, self._group = self._group, []
        times = self._settled_times(group).segment([packet.pts_ticks for packet in group], following_ticks)
        for packet, moment in zip(group, times, strict=True):
            self._mux(packet, moment)

    def _settled_times(self, first_group: list[EncodedPacket]) -> OutputTimes:
        if self._times is None:
            time_base = self._settings.time_base
            self.joined.origin_s = min(packet.pts_ticks for packet in first_group) * time_base
            self._times = OutputTimes(
                source_time_base=time_base,
                output_tick=self.joined.tick,
                origin_s=self.joined.origin_s,
                reorder_frames=self._reorder_frames,
                last_duration_ticks=nominal_ticks(self._settings.format.frame_rate, time_base),
            )
        return self._times

    def _mux(self, encoded: EncodedPacket, moment: PacketTimes) -> None:
        if self._output is None:
            message = "the output is not open"
            raise WorkError(message, "Please report it.")
        data = encoded.payload
        if encoded.is_keyframe and repeats_parameter_sets(self._container, self._settings.codec):
            data = self._extradata + data
        packet = video_packet(self._stream, data, moment, self.joined.tick, is_keyframe=encoded.is_keyframe)
        try:
            self._output.mux(packet)
        except (av.error.FFmpegError, OSError) as error:
            # Never mux again after a failure: FFmpeg would write the header anew each time.
            self.abandon()
            raise self._failed(error) from error
        self.joined.pts.append(moment.pts)
        self.joined.payload_bytes += len(encoded.payload)

    def _failed(self, error: Exception) -> WorkError:
        return write_error(error, self._container, self._path)
