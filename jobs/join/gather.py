"""Joins encoded segments, which arrive in order, into one exact file, with one segment in memory at a time."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from av.stream import Disposition, Stream
from av.video.stream import VideoStream

from ...actors.encode.software import reorder_depth
from ...actors.media.av_stream import FieldOrder, add_side_data
from ...actors.settle.software import codes_interlaced
from ...actors.tracks.audio import EncodedTrack
from ...errors import InputDamaged, ProofFailed
from ..carry.track_plan import SoundKey
from ..plan.plan import Plan
from .output_times import decoding_lead
from .side_tracks import SideTracks, put_language
from .spool import SpooledSegment
from .video_track import JoinedTrack, TrackFile, add_video_track

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.packet import Packet
    from numpy.typing import NDArray

    from ..report.report import Warning_


class Gather:
    """Writes one output file. Call ``join`` for each segment in order, then ``finish`` or ``abandon``."""

    def __init__(self, plan: Plan, path: Path, encoded: Mapping[SoundKey, EncodedTrack]) -> None:
        self._plan = plan
        self._path = path
        self._encoded = encoded
        self._extradata: bytes | None = None
        self._origin_s = Fraction(0)
        self._file: TrackFile | None = None
        self._stack = ExitStack()
        self._sides: SideTracks | None = None
        self._side_packets: Iterator[tuple[Fraction, Packet[Stream]]] = iter(())
        self._next_side: tuple[Fraction, Packet[Stream]] | None = None
        self.warnings: tuple[Warning_, ...] = ()  #: repairs in the other tracks; complete after ``finish``

    def join(self, segment: SpooledSegment, following_ticks: int | None) -> None:
        """Write one segment; ``following_ticks`` is the time of the next segment's first picture, None at the end.

        Raises:
            ProofFailed: the segment does not fit the segments before it.
            InputUnreadable: the container refuses packets copied from the other tracks.
            StorageFailed: the output cannot be written, or the payload cannot be read.
        """
        facts = segment.facts
        self._check_parameter_sets(facts.segment, facts.extradata)
        if not facts.frames_out:
            return
        if self._file is None:
            self._file = self._opened(facts.first_shown or 0, facts.extradata)
        pts_ticks = [int(ticks) for ticks in facts.pts_ticks]
        self._file.write(pts_ticks, _packets(segment), following_ticks, before=self._mux_sides)

    def finish(self) -> JoinedTrack:
        """Write the remaining packets and close the file. Raises InputDamaged: there was no picture; StorageFailed."""
        if self._file is None:
            message = f"no requested picture of {self._plan.spec.source} can be decoded"
            raise InputDamaged(message, "Get a new copy of the film; or, for a part, choose another --start and --end.")
        self._mux_sides(None)
        self.warnings = () if self._sides is None else self._sides.warnings
        joined = self._file.close()
        self._stack.close()
        return joined

    def abandon(self) -> None:
        """Close everything without finishing; the caller deletes the file."""
        if self._file is not None:
            self._file.abandon()
        self._stack.close()

    def _check_parameter_sets(self, segment: int, extradata: bytes) -> None:
        if self._extradata is None:
            self._extradata = extradata
        elif extradata != self._extradata:
            message = f"segment {segment} was encoded with different parameter sets"
            raise ProofFailed(message, "Please report this error together with the input and the options.")

    def _opened(self, first_ticks: int, extradata: bytes) -> TrackFile:
        plan, clock = self._plan, self._plan.clock
        first_s = clock.zero_s + first_ticks * clock.tick_s
        sides_s = plan.carry.first_presentation_s
        if sides_s is None or not plan.container.holds_tracks or plan.spec.start_s is not None:
            sides_s = first_s  # if a part of the film is encoded, sound before it does not move the origin
        self._origin_s = min(first_s, sides_s)
        reorder_frames = reorder_depth(plan.encoder, extradata)
        file = TrackFile(
            self._path,
            plan.container,
            plan.encoder,
            time_base=clock.tick_s,
            options=plan.carry.muxer_options,
            extradata=extradata,
            reorder_frames=reorder_frames,
            lead_ticks=decoding_lead(_promised_times(plan), reorder_frames, clock.picture_ticks, clock.tick_s),
            last_shown_ticks=clock.shown_ticks,
            states_language_tags=plan.carry.states_language_tags,
            add_streams=lambda output, tick: self._add_streams(output, tick, extradata),
        )
        copied = () if self._sides is None else self._sides.copied
        file.begin(self._origin_s - clock.zero_s, f"{' or '.join(copied)} of {plan.spec.source}" if copied else "")
        return file

    def _add_streams(self, output: "OutputContainer", tick: Fraction, extradata: bytes) -> VideoStream:
        plan = self._plan
        encoder = plan.encoder
        keeps_fields = codes_interlaced(encoder.codec, encoder.format) and not encoder.on_device
        stream = add_video_track(
            output,
            plan.container,
            encoder,
            tick,
            extradata=extradata,
            reorder_frames=reorder_depth(encoder, extradata),
            field_order=plan.extras.field_order if keeps_fields else FieldOrder.PROGRESSIVE,
            states_shape=not plan.stretched_by_matrix,
        )
        for kind, data in plan.header.items():
            if kind != "dovi_conf" or encoder.dolby_vision:
                add_side_data(stream, kind, data)
        stream.metadata.update(plan.carry.video_tags)
        if plan.carry.video is not None:
            put_language(stream, plan.carry.video.language_tag, plan.container)
        stream.disposition = Disposition(plan.carry.video_disposition)
        if plan.container.holds_tracks:
            self._add_sides(output)
        return stream

    def _add_sides(self, output: "OutputContainer") -> None:
        spec = self._plan.spec
        sides = SideTracks(
            spec.source,
            self._plan.carry,
            origin_s=self._origin_s,
            start_s=self._plan.clock_s(spec.start_s),
            end_s=self._plan.clock_s(spec.end_s),
            encoded=self._encoded,
        )
        self._sides = self._stack.enter_context(sides)
        self._sides.add_to(output)
        self._side_packets = self._sides.packets()
        self._next_side = next(self._side_packets, None)

    def _mux_sides(self, until_s: Fraction | None) -> None:
        while self._file is not None and self._next_side is not None:
            if until_s is not None and self._next_side[0] > until_s:
                return
            self._file.mux(self._next_side[1])
            self._next_side = next(self._side_packets, None)


def _promised_times(plan: Plan) -> "NDArray[np.int64]":
    """Return the times that the index promises for the encoded pictures, sorted, in ticks of the plan's clock."""
    if plan.filters.rate is not None:
        return np.arange(plan.frames)
    return plan.index.times_between(plan.segments[0].start_ticks, plan.segments[-1].end_ticks)


def _packets(segment: SpooledSegment) -> Iterator[tuple[bytes, bool]]:
    payload, offset = segment.payload(), 0
    for size, is_keyframe in zip(segment.facts.sizes_bytes, segment.facts.keyframes, strict=True):
        yield payload[offset : offset + int(size)], bool(is_keyframe)
        offset += int(size)
