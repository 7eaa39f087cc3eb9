"""Decides whether everything except the encoded video track is copied, converted, encoded or lost, and why. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from ...actors.tracks.audio import EncodeAudio
from ...errors import Unsupported
from ..report.report import TrackReport, Warning_
from ..request.spec import TranscodeSpec
from ..source.drawn.burnt_track import burnt_track
from ..source.tracks import Chapter, SourceDescription, Track, TrackKind
from .chapters import row_losses
from .containers import Container
from .fates import Fates
from .sound import SPEAKER_CHECKS, changed_checks, later_formats, sound_changes, sound_losses, stated_layouts
from .tags import kept_tags, lost_dispositions, needs_free_keys, unheld_tags
from .timecode import output_timecode
from .track_plan import Action, PictureTimes, SoundKey, TrackPlan, content_checks, label_checks, missed_checks


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryPlan:
    """The plan for all tracks except the encoded one, and for tags, chapters and timecode."""

    container: Container
    video: Track | None  #: the encoded track, whose tags and disposition are carried too
    tracks: tuple[TrackPlan, ...]
    chapters: tuple[Chapter, ...]
    tags: tuple[tuple[str, str], ...]
    timecode: str | None  #: the timecode of the output's first picture
    losses: tuple[Warning_, ...]
    end_s: Fraction | None = None  #: the end of the film on the source's clock; None if unknown
    beside_s: Fraction | None = None  #: when the earliest track in another file begins, on the source's clock

    @property
    def reports(self) -> tuple[TrackReport, ...]:
        """The plan of every track, for the job's report."""
        return tuple(track.report for track in self.tracks)

    @property
    def choices(self) -> tuple[Warning_, ...]:
        """Notes on the tracks that are left out or mixed as requested."""
        left_out = [
            Warning_(
                code=f"{plan.track.kind.value}-left-out",
                message=f"{plan.track.name} is left out: {plan.reason}",
                checks=missed_checks(plan),
            )
            for plan in self.tracks
            if plan.asked
        ]
        # Mixing loses sound that only the low-frequency channel has, and may cancel sound of opposite phase.
        mixed = [
            Warning_(
                code="audio-mixed",
                message=f"the channels of {plan.track.name} are mixed: {plan.reason}",
                checks=content_checks(self.tracks, plan.track.index, *SPEAKER_CHECKS),
            )
            for plan in self.tracks
            if plan.channels is not None
        ]
        return (*left_out, *mixed)

    @property
    def changes(self) -> tuple[Warning_, ...]:
        """Warnings about kept sound whose format changes in mid-stream."""
        return tuple(
            Warning_(code=code, message=message, checks=changed_checks(self.tracks, plan))
            for plan in self.tracks
            for code, message in sound_changes(plan, self.container)
        )

    def audio_works(
        self, job: str, source: str, *, start_s: Fraction | None = None, end_s: Fraction | None = None
    ) -> dict[SoundKey, EncodeAudio]:
        """Return the work for each encoding of an audio track; times are on the source's clock."""
        return {
            plan.key: EncodeAudio(
                job=job,
                label=f"audio-{plan.track.index}" + (f".{plan.encoding}" if plan.encoding else ""),
                source=source,
                stream_index=plan.track.index,
                codec=plan.codec or "",
                start_s=start_s,
                end_s=end_s,
                bit_rate_bps=plan.bit_rate_bps,
                channels=plan.channels,
                loudness_lufs=plan.loudness_lufs,
                later=later_formats(plan.track),
                stated=stated_layouts(plan.codec or "", self.container),
            )
            for plan in self.tracks
            if plan.action is Action.ENCODE
        }

    @property
    def first_presentation_s(self) -> Fraction | None:
        """When the earliest kept sound or further video track begins, on the source's clock."""
        timed = (TrackKind.AUDIO, TrackKind.VIDEO)
        kept = (t.track.start_s for t in self.tracks if t.track.kind in timed and t.action is not Action.DROP)
        return min((start_s for start_s in (*kept, self.beside_s) if start_s is not None), default=None)

    @property
    def video_tags(self) -> dict[str, str]:
        """The tags of the encoded track's stream: language, title, handler, timecode."""
        if self.video is None:
            return {}
        if not self.container.tags:
            return {"language": self.video.language} if self.video.language else {}
        tags = kept_tags(self.video.tags, self.container, of_track=True)
        return tags | ({"timecode": self.timecode} if self.timecode else {})

    @property
    def states_language_tags(self) -> bool:
        """Whether an output track has a BCP 47 language tag, which is written into the finished file."""
        kept = (track.track for track in self.tracks if track.kept)
        tagged = any(track.language_tag for track in (*kept, self.video) if track is not None)
        return tagged and self.container.language_tags is not None

    @property
    def video_disposition(self) -> int:
        """The disposition flags of the encoded track's stream."""
        return self.video.disposition if self.video is not None and self.container.dispositions else 0

    def muxer_options(self, video_tick: Fraction) -> dict[str, str]:
        """Return the muxer's options, including the options that the tags need."""
        options = self.container.options(video_tick)
        if self.free_keys:
            options["movflags"] += "+use_metadata_tags"
        return options

    @property
    def free_keys(self) -> bool:
        """Whether tags are written under free keys (``mdta``). FFmpeg cannot write such keys in a file with a cover."""
        has_cover = any(t.track.kind is TrackKind.COVER and t.action is Action.COPY for t in self.tracks)
        return needs_free_keys(self.tags, self.container) and not has_cover


def plan_carry(
    source: SourceDescription,
    spec: TranscodeSpec,
    container: Container,
    *,
    encoded_index: int | None = None,
    pictures: PictureTimes | None = None,
) -> CarryPlan:
    """Plan everything except the video track at stream index ``encoded_index``, by default the requested one.

    Raises Unsupported: the requested audio does not fit the container, or a selected track does not exist.
    """
    video = _encoded_track(source, spec, encoded_index)
    _check_audio(source, spec, container)
    pictures = pictures or PictureTimes()
    rate = pictures.rate or (None if video is None else video.frame_rate)
    timecode = output_timecode(source, spec, container, rate, pictures.skipped_s)
    fates = Fates(source, spec, container, timecode, burnt_track(source, spec.burn_subtitles))
    tracks = tuple(fates.of(track) for track in source.tracks if track is not video)
    tags = tuple(kept_tags(source.tags, container).items()) if container.tags else ()
    chapters = source.chapters if container.chapters else ()
    plan = CarryPlan(
        container=container,
        video=video,
        tracks=tracks,
        chapters=chapters,
        tags=tags,
        timecode=timecode,
        losses=(),
        end_s=None if source.end_s is None else max(source.end_s, pictures.end_s),
    )
    return replace(plan, losses=tuple(_losses(plan, source, spec)))


def _encoded_track(source: SourceDescription, spec: TranscodeSpec, index: int | None) -> Track | None:
    videos = source.of_kind(TrackKind.VIDEO)
    if index is None:
        return videos[spec.video_track] if spec.video_track < len(videos) else None
    return next((track for track in videos if track.index == index), None)


def _check_audio(source: SourceDescription, spec: TranscodeSpec, container: Container) -> None:
    if spec.audio in ("aac", "opus") and container.holds_tracks and spec.audio not in container.audio_codecs:
        message = f".{container.name} cannot hold {spec.audio} audio"
        fitting = ", ".join(sorted(container.audio_codecs & {"aac", "opus"}))
        raise Unsupported(message, f"Use --audio copy or --audio {fitting}.")
    count = len(source.of_kind(TrackKind.AUDIO))
    for number in spec.audio_tracks or ():
        if number >= count:
            message = f"{source.url} has no audio track {number}: it has {count}"
            raise Unsupported(message, "Count from 0; `codecfleet probe` lists the tracks.")


def _losses(plan: CarryPlan, source: SourceDescription, spec: TranscodeSpec) -> Iterator[Warning_]:
    name = plan.container.name
    for track in plan.tracks:
        yield from track_losses(plan, track)
    if plan.video is not None and plan.container.holds_tracks:
        yield from _label_losses(plan, plan.video)
    if source.chapters and not plan.chapters:
        message = f"{len(source.chapters)} chapters are lost in .{name}"
        yield Warning_(code="chapters-dropped", message=message, checks=("metadata.chapters",))
    if plan.chapters and plan.container.chapters_in_a_row:
        yield from row_losses(plan.chapters, plan.container, plan.end_s)
    if source.timecode is not None and plan.timecode is None and not any(t.track.tag == "tmcd" for t in plan.tracks):
        where = "at another frame rate" if spec.fps else f"in .{name}"
        message = f"the timecode {source.timecode} is lost {where}"
        yield Warning_(code="timecode-dropped", message=message, checks=("metadata.timecode",))
    if renamed := sorted(key for key, _ in plan.tags if not plan.container.spaced_tags and " " in key):
        message = f"tags are renamed, because their names cannot have spaces in .{name}: {', '.join(renamed)}"
        yield Warning_(code="tags-renamed", message=message, checks=("metadata.tags",))
    if lost := unheld_tags(source.tags, plan.container, free_keys=plan.free_keys):
        message = f"tags are lost in .{name}: {', '.join(lost)}"
        yield Warning_(code="tags-dropped", message=message, checks=("metadata.tags",))


def track_losses(plan: CarryPlan, track: TrackPlan) -> Iterator[Warning_]:
    """Yield a warning for each loss in a track of ``plan``."""
    described = track.track
    if track.loss is not None:
        message = f"{described.name} is {track.action.value}: {track.reason}"
        yield Warning_(code=track.loss, message=message, checks=missed_checks(track))
    for code, message in sound_losses(track, plan.container):
        yield Warning_(code=code, message=message, checks=content_checks(plan.tracks, described.index, *SPEAKER_CHECKS))
    if track.kept:
        yield from _label_losses(plan, described)


def _label_losses(plan: CarryPlan, track: Track) -> Iterator[Warning_]:
    """Yield warnings about labels of a kept track that the container cannot state."""
    name, language = plan.container.name, track.language

    def checks(label: str) -> tuple[str, ...]:
        """Return the checks that detect the loss of a label; the labels of the encoded track have no checks."""
        return () if track is plan.video else label_checks(plan.tracks, track.index, label)

    if language is not None and plan.container.language(language) is None:
        message = f".{name} cannot name the language of {track.name}"
        yield Warning_(code="language-dropped", message=message, checks=checks("language"))
    if track.language_tag is not None and plan.container.language_tags is None:
        message = f".{name} keeps only the language code of {track.name}, not its full tag {track.language_tag}"
        yield Warning_(code="language-shortened", message=message, checks=checks("language"))
    if lost := lost_dispositions(track, plan.container):
        message = f".{name} does not say that {track.name} is {', '.join(lost)}"
        yield Warning_(code="disposition-dropped", message=message, checks=checks("disposition"))
