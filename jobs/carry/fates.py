"""Decides whether each track except the encoded video is copied, converted, encoded or lost, and why. Pure."""

from dataclasses import dataclass

from ...actors.tracks.audio import bit_rates
from ...actors.tracks.speakers import speakers
from ...cluster.grouping import counted
from ...errors import Unsupported
from ..request.spec import TranscodeSpec
from ..source.tracks import SourceDescription, Track, TrackKind
from .containers import Container
from .sound import copy_obstacle, mixed_to, output_layout
from .track_plan import Action, TrackPlan

_TEXT_SUBTITLES = frozenset({"mov_text", "subrip", "ass", "webvtt", "text"})
_BIT_FOR_BIT = "copied bit for bit"


def _copy(track: Track, why: str = _BIT_FOR_BIT) -> TrackPlan:
    return TrackPlan(track, Action.COPY, track.codec, why)


def _drop(track: Track, why: str, loss: str) -> TrackPlan:
    return TrackPlan(track, Action.DROP, None, why, loss)


@dataclass(frozen=True, slots=True)
class Fates:
    """Plans all tracks of ``source`` except the encoded one."""

    source: SourceDescription
    spec: TranscodeSpec
    container: Container
    timecode: str | None  #: the timecode of the output
    burnt: Track | None  #: the subtitle track that is burnt into the pictures

    def of(self, track: Track) -> TrackPlan:
        """Return whether a track is copied, converted, encoded or dropped, and why."""
        decide = {TrackKind.AUDIO: self._audio, TrackKind.SUBTITLE: self._subtitle, TrackKind.DATA: self._data}
        if track.kind in decide:
            return decide[track.kind](track)
        container = self.container
        fits, loss = {
            TrackKind.VIDEO: (track.codec in container.extra_video_codecs, "video-track-dropped"),
            TrackKind.COVER: (track.codec in container.cover_codecs, "cover-dropped"),
            TrackKind.ATTACHMENT: (container.attachments, "attachment-dropped"),
        }[track.kind]
        if fits:
            return _copy(track, "a further video track is copied" if track.kind is TrackKind.VIDEO else _BIT_FOR_BIT)
        is_attachment = track.kind is TrackKind.ATTACHMENT
        why = f".{container.name} cannot hold attachments" if is_attachment else self._refused(track)
        return _drop(track, why, loss)

    def _refused(self, track: Track) -> str:
        return f".{self.container.name} cannot hold {track.codec or track.tag or 'this kind of'} {track.kind.value}"

    def _audio(self, track: Track) -> TrackPlan:
        if self.spec.audio == "none":
            return TrackPlan(track, Action.DROP, None, "no audio was requested", asked=True)
        number = self.source.of_kind(TrackKind.AUDIO).index(track)
        if self.spec.audio_tracks is not None and number not in self.spec.audio_tracks:
            return TrackPlan(track, Action.DROP, None, "not among the requested audio tracks", asked=True)
        wanted = track.codec if self.spec.audio == "copy" else self.spec.audio
        fits = wanted == track.codec and track.codec in self.container.audio_codecs and self._obstacle(track) is None
        is_changed = self.spec.audio_bitrate_bps is not None or self.spec.loudness_lufs is not None
        copied = fits and not is_changed and mixed_to(track, self.spec.audio_channels) is None
        if (impossible := self._no_sound(track, copied=copied)) is not None:
            return _drop(track, impossible, "audio-dropped")
        if copied:
            return _copy(track)
        return self._encoded(track, None if self.spec.audio == "copy" else self.spec.audio)

    def _no_sound(self, track: Track, *, copied: bool) -> str | None:
        if not self.container.holds_tracks:
            return f".{self.container.name} holds only one video track"
        if not track.decodable or track.audio is None:
            return "its codec or its parameters are unknown"
        if track.silent and not (self.container.empty_tracks and copied):
            return "it has no packets"
        return None

    def _obstacle(self, track: Track) -> str | None:
        return copy_obstacle(track, self.container, self.source.format)

    def _encoded(self, track: Track, asked: str | None) -> TrackPlan:
        if asked is not None:
            return self._encoded_as_asked(track, asked)
        codec, held = self.container.audio_fallback or "", track.codec in self.container.audio_codecs
        output_layout(track, codec, None, self.container)
        why = self._obstacle(track) if held else self._refused(track)
        return TrackPlan(track, Action.ENCODE, codec, f"{why}: encoded to {codec}", "audio-converted")

    def _encoded_as_asked(self, track: Track, codec: str) -> TrackPlan:
        rate_bps, channels = self.spec.audio_bitrate_bps, mixed_to(track, self.spec.audio_channels)
        count = len(speakers(output_layout(track, codec, channels, self.container)))
        if rate_bps is not None and track.audio is not None:
            _check_bit_rate(track, codec, rate_bps, count, track.audio.sample_rate)
        asked = codec if rate_bps is None else f"{codec} at {rate_bps / 1000:g} kbit/s"
        mixed = "" if channels is None else f" in {self.spec.audio_channels}"
        lufs = self.spec.loudness_lufs
        reason = f"{asked}{mixed}{'' if lufs is None else f' at {float(lufs):g} LUFS'} was requested"
        return TrackPlan(
            track, Action.ENCODE, codec, reason, bit_rate_bps=rate_bps, channels=channels, loudness_lufs=lufs
        )

    def _subtitle(self, track: Track) -> TrackPlan:
        if track is self.burnt:
            return TrackPlan(track, Action.DROP, None, "it is burnt into the pictures", asked=True)
        if self.spec.subtitles == "none":
            return TrackPlan(track, Action.DROP, None, "no subtitles were requested", asked=True)
        if track.codec in self.container.subtitle_codecs:
            return _copy(track)
        target = self.container.text_subtitles
        if track.codec in _TEXT_SUBTITLES and target is not None:
            reason = f"{self._refused(track)}: its text became {target}, without styles"
            return TrackPlan(track, Action.CONVERT, target, reason, "subtitle-converted")
        return _drop(track, self._refused(track), "subtitle-dropped")

    def _data(self, track: Track) -> TrackPlan:
        if track.tag == "tmcd":
            if self.timecode is not None:
                return TrackPlan(track, Action.CONVERT, "timecode", f"its timecode {self.timecode} is written again")
            unheld = f".{self.container.name} cannot hold this timecode"
            return _drop(track, "it counts the source's pictures" if self.spec.fps else unheld, "timecode-dropped")
        if track.tag == "text" and self.source.chapters:
            if self.container.chapters:
                return TrackPlan(track, Action.CONVERT, "chapters", "it names the chapters, which are written again")
            return TrackPlan(track, Action.DROP, None, "it names the chapters, which this container cannot hold")
        # Not even mov keeps timed metadata: FFmpeg's muxer writes an empty sample description for it.
        return _drop(track, self._refused(track), "data-track-dropped")


def _check_bit_rate(track: Track, codec: str, rate_bps: int, channels: int, sample_rate: int) -> None:
    least_bps, most_bps = bit_rates(codec, channels, sample_rate)
    if not least_bps <= rate_bps <= most_bps:
        of = f"{counted(channels, 'channel')} of {track.name}"
        least, most, asked = (f"{bps / 1000:.12g}" for bps in (least_bps, most_bps, rate_bps))
        message = f"{codec} takes {least} to {most} kbit/s for {of}, not {asked}"
        raise Unsupported(message, "Choose another --audio-bitrate, or leave it out.")
