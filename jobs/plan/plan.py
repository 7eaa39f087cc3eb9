"""The plan of a job: everything that decides the output's bytes.

``read_for`` reads everything. ``plan_of`` is a pure function of these reads and the spec. A plan never depends on
workers, cores or measured speeds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any

from ...actors.bitstream.picture_messages import MESSAGE_KINDS
from ...actors.decode.describe import StreamExtras
from ...actors.encode.libraries import library_version
from ...actors.encode.profiles import PROFILES
from ...actors.encode.settings import EncoderSettings
from ...actors.media.values import VideoFormat
from ...actors.segment.encoding import EncodeSegment
from ...actors.segment.filtering import WARM_UP_FRAMES, FilterSettings
from ...actors.segment.frame_rate import CountedGrid, KeyframeGrid
from ...actors.settle.nvenc import NvencRequest
from ...actors.settle.request import encoder_kind, settle
from ...actors.surfaces.conversion import device_conversion
from ...actors.surfaces.formats import surface_format
from ...cluster.grouping import counted
from ...cluster.placement.model import EncoderKind
from ...errors import Unsupported
from ..carry.carry import CarryPlan, plan_carry
from ..carry.chapters import chapters_of_part
from ..carry.containers import Container, SampleShape
from ..carry.header_trial import Header, settle_header, settle_orientation, states_shape
from ..rate.goal import RateGoal, rate_goal
from ..report.report import TrackReport, Warning_
from ..request.spec import TranscodeSpec
from ..source.index import TrackIndex
from ..source.sound_life import in_part
from ..source.source import SourceReading
from ..source.tracks import SourceDescription
from .asked import AskedFor, advice, asked_of
from .borders import NO_BORDER, FoundPicture
from .losses import (
    check_dolby_vision,
    check_nothing_is_lost,
    keeps_dolby_vision,
    message_losses,
    picture_losses,
)
from .pace import OutputClock, SourcePart, output_clock, picture_times, settle_part, source_warnings
from .picture import SettledFilters, picture_choices, settle_filters
from .reads import Reads, read_for
from .track_ranges import PlannedSegment, TrackRanges


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The decisions about a job, made before any work starts."""

    spec: TranscodeSpec  #: The request
    container: Container  #: The output's container
    index: TrackIndex  #: The index of the source's video track
    source_format: VideoFormat
    extras: StreamExtras  #: The side data of the pictures
    header: Mapping[str, bytes]  #: The side data in the container's header, by FFmpeg's names
    tracks: SourceDescription  #: The source's tracks, tags and chapters
    carry: CarryPlan  #: The plan for sound, subtitles, chapters and tags
    filters: FilterSettings  #: The steps between decoding and encoding
    encoder: EncoderSettings
    nvenc: NvencRequest | None  #: The settings for NVENC; None if the job may not use NVENC
    segments: tuple[PlannedSegment, ...]
    warnings: tuple[Warning_, ...]  #: Losses, and other unrequested differences
    choices: tuple[Warning_, ...] = ()  #: Differences from the source that were requested
    cropped: FoundPicture = NO_BORDER  #: The result of ``--crop auto``
    kind: EncoderKind | None = None  #: The NVENC that writes the track; None for software
    package: str = ""  #: The version of the package that drives NVENC
    expected: EncoderKind | None = None  #: The NVENC that placement chose, before the device has confirmed it
    grid: KeyframeGrid | CountedGrid | None = None  #: The requested keyframes, if any
    kept_messages: frozenset[str] = frozenset()  #: The kinds of side data that pictures keep, as messages in the output
    #: How full a decoder's buffer is if this plan continues a recording's track; None if it begins the track
    fullness_bits: Fraction | None = None

    @property
    def encoder_kind(self) -> str:
        """The encoder with its version and settings, and the filters, as one stable line."""
        if self.kind is None and self.expected is not None:
            return f"{self._implementation} ({self.expected.place}); its device decides the settings"
        if self.kind is None and self.spec.encoder == "nvenc":
            return f"{self._implementation}; its device decides the settings"
        steps = "".join(f" {name}" for name in (*self.filters.names, *sorted(self.kept_messages)))
        if self.kind is None:
            return f"{encoder_kind(self.encoder)}{steps}"
        architecture, branch = self.kind.architecture, self.kind.driver_branch
        kind = encoder_kind(self.encoder, package=self.package, architecture=architecture, driver_branch=branch)
        return f"{kind} {filtering}{steps}" if (filtering := self._filtering()) else kind

    @property
    def _implementation(self) -> str:
        """The encoder's name; for NVENC, known even before the device has confirmed the encoder."""
        is_nvenc = self.kind is None and (self.expected is not None or self.spec.encoder == "nvenc")
        return f"{self.encoder.codec}_nvenc" if is_nvenc else self.encoder.implementation

    def _filtering(self) -> str:
        """Return how pictures are converted before a device encodes them; "" if there is no conversion."""
        source, output = self.source_format, self.filters.output
        surface = surface_format(source.pix_fmt)
        if self.filters.on_device and surface is not None:
            return device_conversion(surface, (source.width, source.height), output).name
        same = (source.width, source.height, source.pix_fmt) == (output.width, output.height, output.pix_fmt)
        return "" if same and not self.filters.needs_software else "software-filters"

    @property
    def stretched_by_matrix(self) -> bool:
        """Whether the display matrix includes the sample aspect ratio; the container must then not state it."""
        matrix, shape = self.extras.display_matrix, self.source_format.sample_aspect_ratio
        is_held = self.container.sample_shape is SampleShape.EXACT
        return is_held and matrix is not None and states_shape(matrix, shape)

    @property
    def frames(self) -> int:
        """How many pictures the output should have, according to the index."""
        return sum(segment.frames for segment in self.segments)

    @property
    def rate_goal(self) -> RateGoal | None:
        """The rate or size that the film has to reach in several passes; None if the encoder needs only one pass."""
        if not self.encoder.chosen_crf:
            return None
        picture = self.encoder.format
        return rate_goal(
            PROFILES[self.encoder.codec],
            [(each.start_ticks, each.end_ticks) for each in self.segments],
            self.index,
            bitrate_bps=self.spec.bitrate_bps,
            size_bytes=self.spec.size_bytes,
            duration_s=self.duration_s,
            samples=self.frames * picture.width * picture.height,
        )

    @property
    def clock(self) -> OutputClock:
        """The clock of the output's pictures."""
        return output_clock(self.index, self.filters.rate, self.spec.end_s)

    @property
    def duration_s(self) -> Fraction:
        """The output's duration according to the index, including that of the last picture."""
        if self.filters.rate is not None:
            return self.frames * self.clock.tick_s
        first = self.segments[0].start_ticks
        last = self.segments[-1].end_ticks
        start = self.index.first_ticks if first is None else max(first, self.index.first_ticks)
        end = self.index.end_ticks if last is None else min(last, self.index.end_ticks)
        return (end - start) * self.index.time_base

    @property
    def tracks_report(self) -> tuple[TrackReport, ...]:
        """The treatment of each track, beginning with the encoded one."""
        video = self.carry.video
        encoded = TrackReport(
            kind="video",
            source_index=self.index.stream_index,
            codec=(video.codec if video is not None else None) or "unknown",
            language=video.language if video is not None else None,
            action="encoded",
            output_codec=self.encoder.codec.value,
            reason=f"encoded with {self._implementation}",
        )
        return (encoded, *self.carry.reports)

    def work(self, job: str, segment: int, until: int, entry_moves: int) -> EncodeSegment:
        """Return the work of segments ``segment`` to ``until``; ``entry_moves`` is as in ``TrackRanges.decode``."""
        start, end = self.segments[segment], self.segments[until]
        numbers = None if start.numbers is None or end.numbers is None else (start.numbers[0], end.numbers[1])
        decode = self._ranges.decode(start, entry_moves, until=end, warm_up_frames=self._warm_up_frames)
        return EncodeSegment(
            job=job,
            label=f"segment {segment}",
            segment=segment,
            decode=replace(decode, messages=self.extras.messages_before(decode.entry)),
            start_ticks=start.start_ticks,
            end_ticks=end.end_ticks,
            filters=self.filters.during((start.start_ticks, end.end_ticks), numbers, self.index.time_base),
            encoder=self.encoder,
            numbers=numbers,
            keyframes=self.grid,
            require_device=self.spec.device == "gpu",
            kept_messages=self.kept_messages,
            library=library_version(self.encoder.implementation) if self.encoder.nvenc is None else self.package,
        )

    @property
    def _ranges(self) -> TrackRanges:
        return TrackRanges(self.index, self.segments)

    @property
    def _warm_up_frames(self) -> int:
        # If leading pictures do not decode, FFmpeg's MPEG-2 decoder moves their captions to a later picture.
        for_captions = int(self.extras.captions and self.index.codec == "mpeg2video")
        return (WARM_UP_FRAMES + (self.filters.rate is not None)) if self.filters.has_memory else for_captions

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values (docs/cli.md)."""
        return {
            "schema": 1,
            "source": self.spec.source,
            "output": self.spec.output,
            "container": self.container.name,
            "encoder_kind": self.encoder_kind,
            "width": self.encoder.format.width,
            "height": self.encoder.format.height,
            "pix_fmt": self.encoder.format.pix_fmt,
            "steps": None if self.filters.steps is None else asdict(self.filters.steps),
            "tone": None if self.filters.tone is None else self.filters.tone.name,
            "frame_rate": None if self.filters.rate is None else str(self.filters.rate.fps),
            "time_base": str(self.index.time_base),
            "frames": self.frames,
            "duration_s": float(self.duration_s),
            "keyframe_interval_s": _seconds(self.spec.keyframe_interval_s),
            "rate": None if (goal := self.rate_goal) is None else goal.to_json(),
            "segments": [self._segment_json(segment) for segment in self.segments],
            "tracks": [track.model_dump(mode="json") for track in self.tracks_report],
            "warnings": [warning.model_dump(mode="json") for warning in self.warnings],
        }

    def _segment_json(self, segment: PlannedSegment) -> dict[str, Any]:
        entry = self._ranges.entry(segment, 0, self._warm_up_frames)
        return {
            "segment": segment.segment,
            "start_s": float(self.relative_s(segment.start_ticks)),
            "frames": segment.frames,
            "entry_packet": 0 if entry is None else entry.packet,
            "reason": segment.reason,
        }

    def clock_s(self, relative_s: Fraction | None) -> Fraction | None:
        """Convert a time after the first picture to a time on the source's clock; None stays None."""
        if relative_s is None:
            return None
        return self.index.first_ticks * self.index.time_base + relative_s

    def relative_s(self, ticks: int | None) -> Fraction:
        """Convert ticks of the source to seconds after the first picture; None means the track's start."""
        first = self.index.first_ticks
        return (max(first if ticks is None else ticks, first) - first) * self.index.time_base

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        picture, interval_s = self.encoder.format, _seconds(self.spec.keyframe_interval_s)
        keyframes = (
            [] if interval_s is None else [f"keyframes: the first frame at or after each multiple of {interval_s:g} s"]
        )
        head = [
            f"{self.spec.source} -> {self.spec.output}",
            f"{self.frames} frames, {float(self.duration_s):.3f} s, {picture.width}x{picture.height} {picture.pix_fmt}",
            *([f"steps: {words}"] if (words := self.filters.words) else []),
            *([self.cropped.words] if self.cropped.words else []),
            f"encoder: {self.encoder_kind}",
            *([] if (goal := self.rate_goal) is None else [f"rate: {goal.words}"]),
            *keyframes,
            f"{counted(len(self.segments), 'segment')}:",
        ]
        cuts = [
            f"  {s.segment:4d}  from {float(self.relative_s(s.start_ticks)):10.3f} s  {s.frames:6d} frames  {s.reason}"
            for s in self.segments
        ]
        tracks = [
            f"track {t.source_index} ({t.kind}, {t.codec}): "
            + (t.reason if t.reason.startswith(t.action) else f"{t.action}, {t.reason}")
            for t in self.tracks_report
        ]
        return head + cuts + tracks + [f"warning: {w.message}" for w in self.warnings]


def _seconds(time_s: Fraction | None) -> float | None:
    return None if time_s is None else float(time_s)


def plan_transcode(spec: TranscodeSpec) -> Plan:
    """Read the source once, and plan the job.

    Raises:
        InputError: the source cannot be read or decoded; or it is damaged, and ``spec.strict`` is set.
        RequestError: this source cannot satisfy the request; or the output would lose something, and ``spec.strict`` is
            set.
    """
    return plan_of(spec, read_for(spec))


def plan_of(spec: TranscodeSpec, reads: Reads) -> Plan:
    """Plan the job from its ``reads``. Pure; raises the errors of ``plan_transcode``."""
    asked = asked_of(spec, one_pass=reads.grows)  # a source that grows cannot be sampled
    part = settle_part(reads.source, spec)
    check_dolby_vision(part.extras, spec)
    settled = settle_filters(reads, part, spec, asked.codec)
    header = _header(part, settled, spec, asked.container)
    carry = _carried(part, spec, asked.container)
    encoder = _encoder(asked, part, settled, header, segments=None if reads.grows else len(part.ranges.segments))
    of_picture = picture_losses(header.extras, encoder, asked.container)
    of_messages = message_losses(header.extras, asked.codec, settled.filters, part.format)
    losses = (*carry.losses, *settled.losses, *header.losses, *of_picture, *of_messages.values())
    if spec.strict:
        check_nothing_is_lost(losses, part.reading)
    return Plan(
        spec=spec,
        container=asked.container,
        index=part.reading.index,
        source_format=part.format,
        extras=header.extras,
        header=header.side,
        tracks=part.reading.tracks,
        carry=carry,
        filters=replace(settled.filters, output=header.picture),
        encoder=encoder,
        nvenc=asked.nvenc,
        grid=part.grid,
        kept_messages=(MESSAGE_KINDS & header.extras.frame_kinds) - of_messages.keys(),
        segments=part.ranges.segments,
        warnings=(
            *settled.changes,
            *losses,
            *carry.changes,
            *source_warnings(part.reading, spec),
            *advice(part.format, header.picture, asked.codec, spec),
        ),
        choices=(*picture_choices(part.format, spec, header.picture), *settled.choices, *carry.choices),
        cropped=reads.picture.get(),
    )


def _header(part: SourcePart, settled: SettledFilters, spec: TranscodeSpec, container: Container) -> Header:
    extras = settled.extras.during(spec.start_s, spec.end_s)
    return settle_header(*settle_orientation(part.format, settled.filters.output, extras, container), container)


def _carried(part: SourcePart, spec: TranscodeSpec, container: Container) -> CarryPlan:
    index = part.reading.index
    pictures = picture_times(index, spec, part.reading.first_ticks)
    tracks = _tracks_of_part(part.reading, spec)
    carry = plan_carry(tracks, spec, container, encoded_index=index.stream_index, pictures=pictures)
    _check_starts(index, carry, spec)
    return carry


def _tracks_of_part(reading: SourceReading, spec: TranscodeSpec) -> SourceDescription:
    first_s = reading.index.first_ticks * reading.index.time_base
    start_s, end_s = (None if each is None else first_s + each for each in (spec.start_s, spec.end_s))
    part = in_part(reading.tracks, start_s, end_s, None if reading.index.shifts else first_s)
    return replace(part, chapters=chapters_of_part(part.chapters, start_s, end_s))


def _encoder(
    asked: AskedFor, part: SourcePart, settled: SettledFilters, header: Header, *, segments: int | None
) -> EncoderSettings:
    # Dolby Vision's metadata depends on the position and colours of the picture, so filters must not change either.
    dolby_vision = settled.filters.keeps_colours and keeps_dolby_vision(
        header.extras, asked.codec, header.picture, asked.container
    )
    software = replace(
        asked.software,
        dolby_vision=dolby_vision,
        captions=part.rate is None,
        segments=segments,
    )
    return settle(software, header.picture, part.clock.tick_s)


def _check_starts(index: TrackIndex, carry: CarryPlan, spec: TranscodeSpec) -> None:
    """Refuse a track that starts so early that the output's clock would wrap around before the video begins."""
    first_s, video_s, clock_s = carry.first_presentation_s, index.first_ticks * index.time_base, carry.container.clock_s
    if clock_s is None or first_s is None or spec.start_s or video_s - first_s <= clock_s / 2:
        return
    message = f"a track of {spec.source} starts {float((video_s - first_s) / 3600):.0f} hours before the video"
    advice = "A transport stream cannot hold that: write mkv or mp4, or leave the track out (--audio none)."
    raise Unsupported(message, advice)
