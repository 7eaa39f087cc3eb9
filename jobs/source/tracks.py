"""Describes a source's tracks, chapters, tags and attachments, without decoding.

Packets are read until each audio and video track has had one, or too many were read. The first packet of an audio
track shows its start and priming.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING

import av
import av.error
from av.audio.codeccontext import AudioCodecContext
from av.stream import Discard, Disposition

from ...actors.media.av_abi import structures
from ...actors.media.av_stream import extradata
from ...actors.media.headers import HeaderWatch, LanguageForm, StatedLanguage, iso_639_2, read_language_tags
from ...actors.media.opening import demux, open_source, side_data
from .sound_life import SoundFormat

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Stream


_SEARCH_PACKETS = 20_000  #: The most packets that are read to find the first packet of each track
_UNDETERMINED = "und"  #: ISO 639-2's code for an unknown language


class TrackKind(Enum):
    """The kind of a track's content."""

    VIDEO = "video"
    AUDIO = "audio"
    SUBTITLE = "subtitle"
    DATA = "data"
    ATTACHMENT = "attachment"
    COVER = "cover"  #: Cover art: a still picture


TIMECODE_TAG = "tmcd"  #: QuickTime's code for a track of timecodes
_TIMED = (TrackKind.AUDIO, TrackKind.VIDEO)


@dataclass(frozen=True, slots=True)
class AudioTrack:
    """The sampling and the speaker layout of an audio track."""

    sample_rate: int
    channels: int
    layout: str  #: FFmpeg's name
    frame_samples: int  #: 0 if it varies
    priming_samples: int  #: The number of samples that a decoder drops at the start of the first packet


@dataclass(frozen=True, slots=True)
class Attachment:
    """An attachment: a file inside the media file."""

    name: str
    mime: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Chapter:
    """A named time span on the source's clock, in seconds."""

    start_s: Fraction
    end_s: Fraction
    tags: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One track, described from its container."""

    index: int  #: The container's stream index
    kind: TrackKind
    codec: str | None  #: FFmpeg's canonical name; None if FFmpeg does not know the codec
    time_base: Fraction
    tag: str = ""  #: The container's four-letter code
    language: str | None = None  #: The language as an ISO 639-2 code
    language_tag: str | None = None  #: The BCP 47 tag if it is more specific than ``language``: pt-BR, zh-Hans
    tags: tuple[tuple[str, str], ...] = ()
    disposition: int = 0  #: FFmpeg's disposition flags
    decodable: bool = True
    start_s: Fraction | None = None  #: When the track is first heard or seen, on the source's clock, after priming
    audio: AudioTrack | None = None
    silent: bool = False  #: Whether this is an audio track without packets
    formats: tuple[SoundFormat, ...] = ()  #: The formats of the track's sound, in order; () if the format never changes
    attachment: Attachment | None = None
    frame_rate: Fraction | None = None  #: The frame rate of the pictures, or of a timecode track

    @property
    def name(self) -> str:
        """The track's name in messages: "audio track 1 (aac, eng)", with the stream index."""
        details = ", ".join(part for part in (self.codec or self.tag or "unknown codec", self.language) if part)
        return f"{self.kind.value} track {self.index} ({details})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDescription:
    """The container's statements about the file and its tracks."""

    url: str
    format: str  #: FFmpeg's name of the demuxer
    tags: tuple[tuple[str, str], ...] = ()
    chapters: tuple[Chapter, ...] = ()
    tracks: tuple[Track, ...] = ()
    end_s: Fraction | None = None  #: The end of the last track according to the container

    def of_kind(self, kind: TrackKind) -> tuple[Track, ...]:
        """Return the tracks of one kind, in the container's order."""
        return tuple(track for track in self.tracks if track.kind is kind)

    @property
    def timecode(self) -> str | None:
        """The start timecode (SMPTE ST 12) that a track or the file itself states."""
        stated = (tag_value(track.tags, "timecode") for track in self.tracks)
        own = tag_value(self.tags, "timecode")
        return next((value for value in stated if value), own)

    @property
    def timecode_rate(self) -> Fraction | None:
        """The frame rate of the timecode track; None if there is no such track."""
        return next((track.frame_rate for track in self.tracks if track.tag == TIMECODE_TAG), None)


def describe_tracks(url: str) -> SourceDescription:
    """Describe the source at ``url``. Raises InputError: the source cannot be opened."""
    watch = HeaderWatch()
    with open_source(url, watch=watch) as container:
        languages = stated_languages(container, watch)
        starts = TrackStarts(container)
        for stream in container.streams:
            stream.discard = Discard.default if stream in starts.streams else Discard.all
        # If a track is damaged before its first packet, only the track's header is used.
        with suppress(av.error.FFmpegError):
            for packet in demux(container, *starts.streams) if starts.streams else ():
                starts.see(packet)
                if starts.are_known:
                    break
        return describe_container(url, container, starts, languages)


def stated_languages(container: "InputContainer", watch: HeaderWatch) -> dict[int, StatedLanguage]:
    """Return the BCP 47 languages of an open source's streams; ``watch`` has the bytes read at its opening."""
    name, streams = container.format.name.partition(",")[0], container.streams
    form = {"matroska": LanguageForm.MATROSKA, "mov": LanguageForm.MP4}.get(name)
    if form is None:
        return {}
    kinds = [stream.type for stream in streams if stream.type != "attachment" and _kind(stream) is not TrackKind.COVER]
    return read_language_tags(watch.read, kinds, [stream.id for stream in streams], form)


class TrackStarts:
    """Watches an open source's packets until every sound and video track except ``other`` has had a packet."""

    def __init__(self, container: "InputContainer", other: "Stream | None" = None) -> None:
        self.streams: tuple[Stream, ...] = tuple(
            each for each in container.streams if each is not other and _kind(each) in _TIMED
        )
        self._awaited = {stream.index: stream for stream in self.streams}
        self.first: dict[int, _FirstPacket] = {}
        self.missed: frozenset[int] = frozenset()  #: Tracks without any packet
        self._seen = 0

    @property
    def are_known(self) -> bool:
        """Whether all tracks have started, or the search has ended."""
        return not self._awaited

    def see(self, packet: "Packet[Stream]") -> None:
        """Take the next packet of one of the watched tracks."""
        self._seen += 1
        stream = None if packet.pts is None else self._awaited.pop(packet.stream_index, None)
        # The first packet of a video track need not hold the first picture; the demuxer knows where the track starts.
        if stream is not None and stream.type == "audio":
            self.first[stream.index] = _first_packet(stream, packet)
        if self._seen > _SEARCH_PACKETS:
            self._awaited.clear()

    def give_up(self) -> None:
        """End the search at the end of the file, where tracks that have not started have no packets."""
        self.missed = frozenset(self._awaited)
        self._awaited.clear()


def describe_container(
    url: str, container: "InputContainer", starts: TrackStarts, languages: Mapping[int, StatedLanguage]
) -> SourceDescription:
    """Describe an open source.

    ``starts`` has seen the first packets; ``languages`` maps stream indices to languages.
    """
    return SourceDescription(
        url=url,
        format=container.format.name,
        tags=_pairs(container.metadata),
        chapters=tuple(_chapters(container)),
        tracks=tuple(_track(stream, starts, languages.get(stream.index)) for stream in container.streams),
        end_s=_end_s(container),
    )


def _end_s(container: "InputContainer") -> Fraction | None:
    if container.duration is None:
        return None
    return Fraction((container.start_time or 0) + container.duration, av.time_base)


def skipped_samples(packet: "Packet[Stream]") -> tuple[int, int]:
    """Return how many samples a decoder drops at the start and at the end of a packet of sound."""
    data = bytes(side_data(packet).get("skip_samples", b""))
    return int.from_bytes(data[:4], "little"), int.from_bytes(data[4:8], "little")


def tag_value(tags: Iterable[tuple[str, str]], key: str) -> str | None:
    """Return a tag's value; ``key`` is the name in lower case, while the file may use any case."""
    return next((value for name, value in tags if name.lower() == key), None)


def _pairs(tags: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(tags.items()))


def _chapters(container: "InputContainer") -> Iterator[Chapter]:
    for chapter in container.chapters():
        tick = Fraction(chapter["time_base"] or Fraction(1, 1000))
        yield Chapter(chapter["start"] * tick, chapter["end"] * tick, _pairs(chapter["metadata"]))


def container_tag(stream: "Stream") -> str:
    """Return the container's four-letter code of a track; "" if it has none."""
    number: int = structures(stream)[1].codec_tag
    letters = number.to_bytes(4, "little").rstrip(b"\0 ").decode("latin-1")
    return letters if len(letters) == len("avc1") and letters.isprintable() else ""


def _track(stream: "Stream", starts: TrackStarts, stated: StatedLanguage | None) -> Track:
    context, first = stream.codec_context, starts.first.get(stream.index)
    kind = _kind(stream)
    tag = container_tag(stream)
    rate = timecode_rate(stream) if tag == TIMECODE_TAG else getattr(stream, "average_rate", None)
    language = _language(stream, stated)
    audio = _audio(stream, 0 if first is None else first.priming_samples) if kind is TrackKind.AUDIO else None
    return Track(
        index=stream.index,
        kind=kind,
        codec=None if context is None else context.codec.canonical_name,
        time_base=Fraction(stream.time_base or 1),
        tag=tag,
        language=language,
        language_tag=stated.tag if stated is not None and "-" in stated.tag else None,
        tags=_pairs({**stream.metadata, **({} if stated is None else {"language": language or _UNDETERMINED})}),
        disposition=int(stream.disposition),
        decodable=context is not None,
        start_s=None if stream.index in starts.missed else _start(stream, first, audio),
        audio=audio,
        silent=kind is TrackKind.AUDIO and stream.index in starts.missed,
        attachment=_attachment(stream) if kind is TrackKind.ATTACHMENT else None,
        frame_rate=Fraction(rate) if rate and (kind is TrackKind.VIDEO or tag == TIMECODE_TAG) else None,
    )


def timecode_rate(stream: "Stream") -> Fraction | None:
    """Return the frame rate in QuickTime's timecode description."""
    stated = structures(stream)[0].average_frame_rate
    return Fraction(stated.num, stated.den) if stated.num > 0 and stated.den > 0 else None


def _language(stream: "Stream", stated: StatedLanguage | None) -> str | None:
    """Return a track's language as FFmpeg reads it, or from the BCP 47 tag if the container states nothing else."""
    language = tag_value(stream.metadata.items(), "language") or ""
    if stated is not None and (stated.is_alone or language in ("", _UNDETERMINED)):
        language = iso_639_2(stated.tag) or ""
    return language if language.isascii() and language.isprintable() and language not in ("", _UNDETERMINED) else None


def _kind(stream: "Stream") -> TrackKind:
    if stream.type == "video" and int(stream.disposition) & Disposition.attached_pic:
        return TrackKind.COVER
    try:
        return TrackKind(stream.type)
    except ValueError:
        return TrackKind.DATA


def _audio(stream: "Stream", priming_samples: int) -> AudioTrack | None:
    context = stream.codec_context
    if not isinstance(context, AudioCodecContext) or context.sample_rate <= 0:
        return None
    return AudioTrack(
        sample_rate=context.sample_rate,
        channels=context.layout.nb_channels,
        layout=context.layout.name,
        frame_samples=context.frame_size or 0,
        priming_samples=priming_samples,
    )


def _attachment(stream: "Stream") -> Attachment:
    tags = {name.lower(): value for name, value in stream.metadata.items()}
    return Attachment(
        name=tags.get("filename", f"attachment-{stream.index}"),
        mime=tags.get("mimetype", "application/octet-stream"),
        size_bytes=len(extradata(stream)),
    )


@dataclass(frozen=True, slots=True)
class _FirstPacket:
    pts_s: Fraction
    priming_samples: int
    #: The time by which the packet's stated duration exceeds its samples, if the packet holds only priming
    silent_s: Fraction = Fraction(0)


def _first_packet(stream: "Stream", packet: "Packet[Stream]") -> _FirstPacket:
    priming = skipped_samples(packet)[0]
    codec = "" if stream.codec_context is None else stream.codec_context.name
    if not priming and codec in ("opus", "libopus"):
        # Opus decoders drop as much as the codec's own header says, even if the container does not repeat the number.
        priming = structures(stream)[1].initial_padding
    if not priming and codec == "vorbis":
        # In Vorbis the first packet gives no sound (Vorbis I, 4.3.8).
        rate = stream.codec_context.sample_rate if isinstance(stream.codec_context, AudioCodecContext) else 0
        priming = floor((packet.duration or 0) * Fraction(packet.time_base) * rate + Fraction(1, 2))
    tick = Fraction(packet.time_base)
    return _FirstPacket((packet.pts or 0) * tick, priming, _silence(stream, (packet.duration or 0) * tick, priming))


def _silence(stream: "Stream", duration_s: Fraction, priming_samples: int) -> Fraction:
    """Return by how much the stated duration of a packet exceeds its samples, if the packet holds only priming."""
    context = stream.codec_context
    if not isinstance(context, AudioCodecContext) or not 0 < context.frame_size <= priming_samples:
        return Fraction(0)
    frame_s = Fraction(context.frame_size, context.sample_rate or 1)
    # With SBR, which need not be stated, the samples last twice as long (ISO/IEC 14496-3, 1.6.5).
    doubled = duration_s <= 2 * frame_s + Fraction(stream.time_base or 1)
    return Fraction(0) if doubled else duration_s - frame_s


def _start(stream: "Stream", first: _FirstPacket | None, audio: AudioTrack | None) -> Fraction | None:
    if first is not None and audio is not None:
        start_s = first.pts_s + first.silent_s + Fraction(first.priming_samples, audio.sample_rate)
        tick = Fraction(stream.time_base or 1)
        # If ticks are coarser than samples, the first packet's time was rounded, so the start is rounded too.
        return start_s if tick * audio.sample_rate <= 1 else floor(start_s / tick + Fraction(1, 2)) * tick
    if stream.start_time is None or not stream.time_base:
        return None
    return stream.start_time * Fraction(stream.time_base)
