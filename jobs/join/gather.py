"""Joining: segments come in order, one exact file comes out.

The output grows while later segments still run, and memory holds one segment at a time. Nothing is encoded here: the
payloads are the workers', the times are the index's, and everything beside the video comes from ``SideTracks``.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import av
import av.error
from av.container import OutputContainer
from av.stream import Disposition, Stream
from av.video.stream import VideoStream

from ...actors.encode.software import reorder_depth
from ...actors.media.av_stream import FieldOrder, add_side_data
from ...actors.settle.software import codes_interlaced
from ...actors.tracks.audio import EncodedTrack
from ...errors import ProofFailed, WorkError
from ..plan.plan import Plan
from .output_times import OutputTimes, PacketTimes
from .side_tracks import SideTracks
from .spool import SpooledSegment
from .video_track import add_video_track, repeats_parameter_sets, video_packet, write_error

if TYPE_CHECKING:
    from av.packet import Packet

    from ..report.report import Warning_

__all__ = ["Gather", "JoinedTrack"]


@dataclass(slots=True)
class JoinedTrack:
    """What was written: the presentation time of every picture, in output ticks, in decoding order."""

    origin_s: Fraction = Fraction(0)
    tick: Fraction = Fraction(1)
    pts: list[int] = field(default_factory=list)
    payload_bytes: int = 0


class Gather:
    """Writes one output file. ``join`` is called once a segment, in order; then ``finish``, or ``abandon``."""

    def __init__(self, plan: Plan, path: Path, encoded: Mapping[int, EncodedTrack]) -> None:
        self._plan = plan
        self._path = path
        self._encoded = encoded
        self._extradata: bytes | None = None
        self._output: OutputContainer | None = None
        self._stream: VideoStream | None = None
        self._sides: SideTracks | None = None
        self._side_packets: Iterator[tuple[Fraction, Packet[Stream]]] = iter(())
        self._next_side: tuple[Fraction, Packet[Stream]] | None = None
        self._times: OutputTimes | None = None
        self.joined = JoinedTrack()
        self.warnings: tuple[Warning_, ...] = ()
        """What had to be mended in the tracks beside the video; complete after ``finish``."""

    def join(self, segment: SpooledSegment, following_ticks: int | None) -> None:
        """Write one segment; ``following_ticks`` is the time of the first picture after it, None at the end.

        Raises:
            ProofFailed: the segment does not fit those before it.
            StorageFailed: the output or the payload cannot be written or read.
        """
        facts = segment.facts
        self._check_parameter_sets(facts.segment, facts.extradata)
        if not facts.frames_out:
            return
        if self._output is None:
            self._open(facts.tally.first_ticks or 0, facts.extradata)
        payload = segment.payload()
        times = self._output_times().segment([int(t) for t in facts.pts_ticks], following_ticks)
        offset = 0
        for moment, size, is_keyframe in zip(times, facts.sizes_bytes, facts.keyframes, strict=True):
            data = payload[offset : offset + int(size)]
            offset += int(size)
            self._mux_video(data, moment, is_keyframe=bool(is_keyframe))
        self.joined.payload_bytes += len(payload)

    @property
    def _codes_fields(self) -> bool:
        """Whether the pictures keep their fields apart, and so their order."""
        encoder = self._plan.encoder
        return codes_interlaced(encoder.codec, encoder.format) and not encoder.on_device

    def finish(self) -> JoinedTrack:
        """Write what is left beside the video and close the file.

        Raises:
            ProofFailed: no segment held a picture.
            StorageFailed: the output cannot be written.
        """
        if self._output is None:
            message = f"no picture of {self._plan.spec.source} lies in the asked-for interval"
            raise ProofFailed(message, "Check --start and --end.")
        self._mux_sides(None)
        self.warnings = () if self._sides is None else self._sides.warnings
        try:
            self._output.close()
        except (av.error.FFmpegError, OSError) as error:
            raise self._failed(error) from error
        self._release()
        return self.joined

    def abandon(self) -> None:
        """Give up: close what is open. The caller deletes the file."""
        if self._output is not None:
            # The file is deleted in any case; a half-written header only makes closing fail.
            with suppress(av.error.FFmpegError, OSError, ValueError):
                self._output.close()
        self._release()

    def _release(self) -> None:
        if self._sides is not None:
            self._sides.__exit__(None, None, None)
        self._output, self._sides = None, None

    def _check_parameter_sets(self, segment: int, extradata: bytes) -> None:
        if self._extradata is None:
            self._extradata = extradata
        elif extradata != self._extradata:
            message = f"segment {segment} was encoded with parameter sets of its own"
            raise ProofFailed(message, "Please report it with the input and the options.")

    def _open(self, first_ticks: int, extradata: bytes) -> None:
        plan, container = self._plan, self._plan.container
        first_s = first_ticks * plan.index.time_base
        self.joined.origin_s = min([first_s, *self._side_starts_s(first_s)])
        tick = container.video_tick(plan.index.time_base)
        try:
            self._output = av.open(
                str(self._path), "w", format=container.muxer, container_options=plan.carry.muxer_options(tick)
            )
            self._stream = self._add_video(self._output, tick, extradata)
            if container.holds_tracks:
                self._add_sides(self._output)
            self._output.start_encoding()
        except (av.error.FFmpegError, OSError, ValueError) as error:
            raise self._failed(error) from error
        # The muxer may have settled on another tick than the one it was asked for.
        self.joined.tick = Fraction(self._stream.time_base or tick)
        self._times = OutputTimes(
            source_time_base=plan.index.time_base,
            output_tick=self.joined.tick,
            origin_s=self.joined.origin_s,
            reorder_frames=reorder_depth(plan.encoder, extradata),
            last_duration_ticks=plan.index.nominal_ticks,
        )

    def _side_starts_s(self, first_s: Fraction) -> list[Fraction]:
        """When the carried sound starts; a track that starts inside the asked-for part does not move the origin."""
        if not self._plan.container.holds_tracks:
            return []
        starts = self._plan.carry.first_presentation_s
        if starts is None:
            return []
        return [starts] if self._plan.spec.start_s is None else [max(starts, first_s)]

    def _add_video(self, output: OutputContainer, tick: Fraction, extradata: bytes) -> VideoStream:
        plan = self._plan
        encoder = plan.encoder
        stream = add_video_track(
            output,
            plan.container,
            encoder,
            tick,
            extradata=extradata,
            reorder_frames=reorder_depth(encoder, extradata),
            field_order=plan.extras.field_order if self._codes_fields else FieldOrder.PROGRESSIVE,
            states_shape=not plan.stretched_by_matrix,
        )
        for kind, data in plan.header.items():
            if kind != "dovi_conf" or encoder.dolby_vision:
                add_side_data(stream, kind, data)
        stream.metadata.update(plan.carry.video_tags)
        stream.disposition = Disposition(plan.carry.video_disposition)
        return stream

    def _add_sides(self, output: OutputContainer) -> None:
        spec = self._plan.spec
        origin_s = self.joined.origin_s
        sides = SideTracks(
            spec.source,
            self._plan.carry,
            origin_s=origin_s,
            start_s=self._plan.clock_s(spec.start_s),
            end_s=self._plan.clock_s(spec.end_s),
            encoded=self._encoded,
        )
        self._sides = sides.__enter__()
        self._sides.add_to(output)
        self._side_packets = self._sides.packets()
        self._next_side = next(self._side_packets, None)

    def _output_times(self) -> OutputTimes:
        if self._times is None:
            message = "the output is not open"
            raise WorkError(message, "Please report it.")
        return self._times

    def _mux_video(self, data: bytes, moment: PacketTimes, *, is_keyframe: bool) -> None:
        self._mux_sides(moment.dts * self.joined.tick)
        if is_keyframe and repeats_parameter_sets(self._plan.container, self._plan.encoder.codec):
            data = (self._extradata or b"") + data
        self._mux(video_packet(self._video_stream(), data, moment, self.joined.tick, is_keyframe=is_keyframe))
        self.joined.pts.append(moment.pts)

    def _video_stream(self) -> VideoStream:
        if self._stream is None:
            message = "the output is not open"
            raise WorkError(message, "Please report it.")
        return self._stream

    def _mux_sides(self, until_s: Fraction | None) -> None:
        while self._next_side is not None and (until_s is None or self._next_side[0] <= until_s):
            self._mux(self._next_side[1])
            self._next_side = next(self._side_packets, None)

    def _mux(self, packet: "Packet[Stream]") -> None:
        if self._output is None:
            message = "the output is not open"
            raise WorkError(message, "Please report it.")
        try:
            self._output.mux(packet)
        except (av.error.FFmpegError, OSError) as error:
            # Never mux again after a failure: FFmpeg would write the header anew each time, and crash in the end.
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> WorkError:
        return write_error(error, self._plan.container, self._path)
