"""What each output container can hold and how it is written: one frozen value per file extension.

The tables say what players can be expected to read, less than what FFmpeg's muxers accept; a test writes and reads
every entry. docs/containers.md is the same table for people.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from pathlib import PurePosixPath

from av.stream import Disposition

from ...actors.encode.settings import Codec
from ...actors.media.headers import LanguageForm
from ...errors import Unsupported
from ..source.tracks import TrackKind
from .languages import as_it_is, in_quicktime, iso_code, nameless


class SampleShape(Enum):
    """How exactly a container states the shape of samples."""

    EXACT = "two numbers of 32 bits, or a display matrix that stretches"
    PIXELS = "whole pixels of the picture as it is shown"
    BITSTREAM = "not at all: the bitstream does"


class SoundChanges(Enum):
    """How a copied track of sound may change its format in mid-stream."""

    NEVER = "its header describes one"
    DESCRIPTIONS = "one sample description after another"
    PACKETS = "a header in each packet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One way to write an output file; nothing else depends on which one it is. Codecs are those that players read."""

    name: str  #: the file's extension, without its dot
    muxer: str  #: FFmpeg's name of what writes it; codecs have FFmpeg's names too
    own_options: Mapping[str, str] = field(default_factory=dict)  #: the muxer's, beside those of ``options``
    fragment_flags: str = ""  #: the muxer's flags for fragments; "" where there is no such form
    fragmented: bool = False  #: whether it is written so

    # Pictures
    default_codec: Codec
    video_codecs: frozenset[Codec]
    carries_times: bool = True  #: false for raw bitstreams: pictures only, in order
    tick_s: Fraction | None = None  #: the tick of all times; None where it is the source's, or a track's own
    least_timescale: int = 0  #: the least timescale of a track; 0 where tracks have none of their own
    clock_s: Fraction | None = None  #: after this its clock starts again
    counts_decoding: bool = False  #: whether decoding times are sums of durations
    has_header: bool = False  #: Whether a header in front states parameter sets, colours, HDR and orientation
    sample_shape: SampleShape = SampleShape.BITSTREAM
    dolby_vision: bool = False  #: whether Dolby Vision's configuration has a place
    hevc_tag: str = ""  #: by which four letters players know HEVC

    # Sound
    audio_codecs: frozenset[str] = frozenset()
    audio_fallback: str | None = None  #: The codec for tracks that do not fit; None where no audio fits
    counted_audio: frozenset[str] = frozenset()  #: Codecs without times: samples are counted, gaps become silence
    edit_lists: bool = False  #: whether an edit list hides a track's beginning, and its last packet's duration the end
    codec_delay: bool = False  #: whether it states priming as a delay that is part of all times
    stated_ends: bool = False  #: whether it states when each track ends
    empty_tracks: bool = True  #: whether it can hold a track without packets
    describes_ac3: bool = False  #: whether its header repeats what AC-3's packets say
    sound_changes: SoundChanges = SoundChanges.NEVER
    unread_layouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By codec, what FFmpeg writes and cannot decode again."""
    unnamed_refused: frozenset[str] = frozenset()  #: codecs whose channels no decoder takes without names
    pcm_needs_names: bool = False  #: whether channels of PCM must have names
    channels_alone: frozenset[str] = frozenset()  #: Codecs of which it states the number of channels, no speakers

    # Everything else
    subtitle_codecs: frozenset[str] = frozenset()
    text_subtitles: str | None = None  #: what text subtitles are converted to when their own codec does not fit
    one_cue_at_a_time: bool = False  #: whether text subtitles cannot overlap
    extra_video_codecs: frozenset[str] = frozenset()  #: of further tracks that are copied beside the encoded one
    attachments: bool = False
    cover_codecs: frozenset[str] = frozenset()
    cover_as_attachment: bool = False
    chapters: bool = False
    chapters_in_a_row: bool = False  #: Whether chapters lie end to end from 0 on, as in QuickTime's text track
    tags: bool = False
    tag_boxes: frozenset[str] | None = None  #: Tags with boxes that every player knows; None where all are alike
    spaced_tags: bool = True  #: whether names of tags may have spaces
    any_timecode: bool = False  #: whether a timecode is text, of any rate
    language: Callable[[str], str | None] = nameless  #: how it spells a language; None where it cannot
    language_tags: LanguageForm | None = None  #: how it states languages by BCP 47
    dispositions: bool = False
    held_dispositions: Mapping[TrackKind | None, Disposition] = field(default_factory=dict)
    """What it says that tracks are for, besides the default: all tracks (None), and those of one kind."""
    holds_more: str = ".mkv"  #: which container holds what this one refuses; "" for none

    @property
    def holds_tracks(self) -> bool:
        """Whether anything beside the one video track fits in."""
        return self.audio_fallback is not None

    def video_tick(self, source_time_base: Fraction) -> Fraction:
        """Return the tick, in seconds, in which this container stores video times.

        In mp4 and mov multiples of ``source_time_base`` stay whole; as in FFmpeg's muxer, small timescales are doubled.
        Raises ValueError: the time base is not positive.
        """
        if source_time_base <= 0:
            raise ValueError(f"a time base must be positive: {source_time_base}")
        if not self.least_timescale:
            return self.tick_s or source_time_base
        timescale = source_time_base.denominator
        while timescale < self.least_timescale:
            timescale *= 2
        return Fraction(1, timescale)

    def options(self, video_tick: Fraction) -> dict[str, str]:
        """Return the muxer's options: no date, no random id, index in front, times exact to ``video_tick``."""
        options = {"fflags": "+bitexact", **self.own_options}
        if self.least_timescale:
            # Start offsets are stored in the movie's own timescale; its default of 1000 would round them.
            timescale = str(video_tick.denominator)
            options |= {"movie_timescale": timescale, "video_track_timescale": timescale}
        return options | ({"movflags": self.fragment_flags} if self.fragmented else {})

    def check_video_codec(self, codec: Codec) -> None:
        """Make sure that ``codec`` fits. Raises Unsupported: it does not; the next step names those that do."""
        if codec not in self.video_codecs:
            message = f".{self.name} cannot hold {codec.value} video"
            fitting = ", ".join(sorted(c.value for c in self.video_codecs))
            raise Unsupported(message, f"Use --codec {fitting}, or write to .mkv, which holds every codec.")


def container_for(output: str, *, fragmented: bool = False) -> Container:
    """Return the container for a path's or address's extension. Raises Unsupported: unknown, or never fragmented."""
    path = output.split("://", 1)[-1].split("?", 1)[0] if "://" in output else output
    extension = PurePosixPath(path).suffix.lower().removeprefix(".")
    container = _BY_EXTENSION.get(extension)
    if container is None:
        known = ", ".join(f".{name}" for name in sorted(_BY_EXTENSION))
        named = f"unknown container .{extension}" if extension else f"{output} has no extension to name a container"
        raise Unsupported(named, f"Known are {known}.")
    if not fragmented:
        return container
    if not container.fragment_flags:
        message = f".{extension} has no fragmented form"
        raise Unsupported(message, "Only mp4, m4v and mov can be fragmented; write to one of them or leave it out.")
    return replace(container, fragmented=True)


_D = Disposition
_SPOKEN = _D.hearing_impaired | _D.visual_impaired | _D.comment | _D.dub
_PCM_ISO = frozenset({"pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s24be", "pcm_s32le", "pcm_f32le", "pcm_f64le"})
_PCM_MOV = frozenset({"pcm_u8", "pcm_s8", "pcm_mulaw", "pcm_alaw"})
COMMON_TAGS = frozenset(
    {
        *("title", "artist", "album_artist", "composer", "album", "date", "comment", "genre", "copyright", "grouping"),
        *("lyrics", "description", "synopsis", "show", "episode_id", "network", "keywords", "creation_time"),
        *("location", "track", "disc", "episode_sort", "season_number", "media_type", "hd_video", "compilation"),
    }
)
"""The tags that most containers know, by FFmpeg's names."""
_SAMPLED = frozenset({"aac", "mp3", "mp2", "ac3", "eac3", "dts", "opus", "flac", "alac"})

_MP4 = Container(
    name="mp4",
    muxer="mp4",
    own_options={"strict": "unofficial", "movflags": "+faststart"},
    # delay_moov lets the header wait for the first packets: without it the edit lists are wrong by the reorder delay.
    fragment_flags="+frag_keyframe+empty_moov+delay_moov+default_base_moof",
    default_codec=Codec.H264,
    video_codecs=frozenset(Codec),
    least_timescale=10_000,
    counts_decoding=True,
    has_header=True,
    sample_shape=SampleShape.EXACT,
    dolby_vision=True,
    hevc_tag="hvc1",  # parameter sets in the header alone; Apple's players take no other
    audio_codecs=_SAMPLED | _PCM_ISO,
    audio_fallback="aac",
    counted_audio=_PCM_ISO,
    edit_lists=True,
    empty_tracks=False,
    describes_ac3=True,
    sound_changes=SoundChanges.DESCRIPTIONS,
    pcm_needs_names=True,
    channels_alone=frozenset({"flac"}),
    subtitle_codecs=frozenset({"mov_text", "dvd_subtitle"}),
    text_subtitles="mov_text",
    one_cue_at_a_time=True,
    extra_video_codecs=frozenset({"h264", "hevc", "av1", "vp9", "vvc", "mpeg4", "mpeg2video", "mpeg1video"}),
    cover_codecs=frozenset({"mjpeg", "png"}),
    chapters=True,
    chapters_in_a_row=True,
    tags=True,
    tag_boxes=COMMON_TAGS,  # measured, like QuickTime's, by writing and reading each
    language=iso_code,
    language_tags=LanguageForm.MP4,
    dispositions=True,
    held_dispositions={None: _SPOKEN | _D.captions | _D.descriptions | _D.forced},
)
_MOV = replace(
    _MP4,
    name="mov",
    muxer="mov",
    video_codecs=frozenset({Codec.H264, Codec.HEVC}),
    dolby_vision=False,
    # Opus and FLAC in QuickTime are read by FFmpeg alone, and its muxer refuses them.
    audio_codecs=(_SAMPLED - {"opus", "flac"}) | _PCM_ISO | _PCM_MOV,
    counted_audio=_PCM_ISO | _PCM_MOV,
    pcm_needs_names=False,
    extra_video_codecs=frozenset({"h264", "hevc", "mpeg4", "mpeg2video", "prores", "mjpeg", "dnxhd"}),
    subtitle_codecs=frozenset({"mov_text"}),
    cover_codecs=frozenset(),  # FFmpeg writes a cover into mp4's metadata alone
    tag_boxes=frozenset(
        {"title", "artist", "album", "date", "comment", "genre", "copyright", "location", "make", "model"}
        | {"creation_time"}
    ),
    language=in_quicktime,
    language_tags=LanguageForm.QUICKTIME,
    held_dispositions={},
)
_MKV = Container(
    name="mkv",
    muxer="matroska",
    own_options={"cues_to_front": "1", "default_mode": "passthrough"},
    default_codec=Codec.H264,
    video_codecs=frozenset(Codec),
    tick_s=Fraction(1, 1000),
    has_header=True,
    sample_shape=SampleShape.PIXELS,
    dolby_vision=True,
    audio_codecs=_SAMPLED | _PCM_ISO | {"mp1", "truehd", "vorbis", "wavpack", "tta", "pcm_u8"},
    audio_fallback="aac",
    codec_delay=True,
    stated_ends=True,
    channels_alone=frozenset({"pcm"}),
    subtitle_codecs=frozenset({"subrip", "ass", "webvtt", "hdmv_pgs_subtitle", "dvb_subtitle", "dvd_subtitle"}),
    text_subtitles="subrip",
    extra_video_codecs=frozenset(
        {"h264", "hevc", "av1", "vp9", "vp8", "vvc", "mpeg4", "mpeg2video", "mpeg1video", "prores", "mjpeg", "ffv1"}
    ),
    attachments=True,
    cover_codecs=frozenset({"mjpeg", "png"}),
    cover_as_attachment=True,
    chapters=True,
    tags=True,
    spaced_tags=False,
    any_timecode=True,
    language=as_it_is,
    language_tags=LanguageForm.MATROSKA,
    dispositions=True,
    held_dispositions={None: _SPOKEN | _D.forced | _D.original, TrackKind.SUBTITLE: _D.descriptions},
    holds_more="",
)
_WEBM = replace(
    _MKV,
    name="webm",
    muxer="webm",
    default_codec=Codec.VP9,
    video_codecs=frozenset({Codec.VP9, Codec.AV1}),
    dolby_vision=False,
    audio_codecs=frozenset({"opus", "vorbis"}),
    audio_fallback="opus",
    subtitle_codecs=frozenset({"webvtt"}),
    text_subtitles="webvtt",
    extra_video_codecs=frozenset({"vp8", "vp9", "av1"}),
    attachments=False,
    cover_codecs=frozenset(),
    cover_as_attachment=False,
    held_dispositions={None: _D.forced, TrackKind.SUBTITLE: _D.captions | _D.descriptions},
)
_TS = Container(
    name="ts",
    muxer="mpegts",
    default_codec=Codec.H264,
    video_codecs=frozenset({Codec.H264, Codec.HEVC}),
    tick_s=Fraction(1, 90_000),
    clock_s=Fraction(2**33, 90_000),  # ISO/IEC 13818-1, 2.4.3.7
    audio_codecs=frozenset({"aac", "mp1", "mp2", "mp3", "ac3", "eac3", "dts", "truehd", "opus"}),
    audio_fallback="aac",
    sound_changes=SoundChanges.PACKETS,
    unread_layouts={"opus": ("6.1",)},  # FFmpeg takes the number of streams for another
    unnamed_refused=frozenset({"opus"}),  # RFC 7845, family 255
    subtitle_codecs=frozenset({"dvb_subtitle", "dvb_teletext"}),
    extra_video_codecs=frozenset({"h264", "hevc", "mpeg2video", "mpeg1video"}),
    language=iso_code,
    dispositions=True,
    held_dispositions={TrackKind.AUDIO: _D.hearing_impaired | _D.visual_impaired | _D.clean_effects},
)


def _raw(name: str, muxer: str, codec: Codec) -> Container:
    return Container(name=name, muxer=muxer, default_codec=codec, video_codecs=frozenset({codec}), carries_times=False)


_BY_EXTENSION = {
    "mp4": _MP4,
    "m4v": replace(_MP4, name="m4v"),
    "mov": _MOV,
    "mkv": _MKV,
    "webm": _WEBM,
    "ts": _TS,
    "h264": _raw("h264", "h264", Codec.H264),
    "264": _raw("264", "h264", Codec.H264),
    "hevc": _raw("hevc", "hevc", Codec.HEVC),
    "265": _raw("265", "hevc", Codec.HEVC),
    "obu": _raw("obu", "obu", Codec.AV1),
    "ivf": Container(name="ivf", muxer="ivf", default_codec=Codec.AV1, video_codecs=frozenset({Codec.AV1, Codec.VP9})),
}

EXTENSIONS = frozenset(_BY_EXTENSION)  #: The extensions, without a dot, that name a container
