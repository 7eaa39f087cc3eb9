"""The output containers: for each file extension, one frozen value with its codecs, tracks and muxer options.

The tables list only what players can be expected to read; FFmpeg's muxers accept more. In tests, every entry is written
and read. docs/containers.md shows the same table.
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

_MOV_LANGUAGES = (
    "alb amh ara arm asm aym aze baq bel ben bul bur cat ces chi dan dut dzo eng epo est fin fra geo ger gre grn guj "
    "heb hin hun ice ind iri ita jav jpn kan kas kaz khm kin kir kor kur lao lat lav lit mac mal mar may mlg mlt mol "
    "mon nep nor nya ori orm per pol por pus que ron run rus san sin slk slv smi snd som spa sve swa tam tat tel tgk "
    "tgl tha tib tir tuk tur uig ukr urd uzb vie wel yid"
)
"""FFmpeg's names of the languages that QuickTime numbers, as measured."""
_OTHER_NAMES = (
    "fre:fra deu:ger nld:dut swe:sve ell:gre isl:ice zho:chi cze:ces rum:ron slo:slk kat:geo fas:per eus:baq cym:wel "
    "mya:bur bod:tib hye:arm sqi:alb mkd:mac msa:may"
)
#: FFmpeg's code of a language, by the other ISO 639-2 code of the same language
_MOV_SPELLINGS = dict(pair.split(":") for pair in _OTHER_NAMES.split())


def _in_quicktime(language: str) -> str | None:
    """Return FFmpeg's name of a language that QuickTime numbers, otherwise None."""
    spelt = _MOV_SPELLINGS.get(language, language)
    return spelt if spelt in _MOV_LANGUAGES.split() else None


def _iso_code(language: str) -> str | None:
    """Return a language if it is a code of three letters, otherwise None."""
    is_code = len(language) == len("eng") and language.isascii() and language.isalpha() and language.islower()
    return language if is_code else None


def _nameless(_language: str) -> None:
    """Return None: the container states no language."""


class SampleShape(Enum):
    """How precisely a container states the shape of samples (their aspect ratio)."""

    EXACT = "two numbers of 32 bits, or a display matrix that stretches"
    PIXELS = "whole pixels of the picture as it is shown"
    BITSTREAM = "not at all: the bitstream does"


class SoundChanges(Enum):
    """How the format of copied sound may change in mid-stream."""

    NEVER = "not at all: the header describes one format"
    DESCRIPTIONS = "one sample description after another"
    PACKETS = "a header in each packet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One way to write an output file. Other modules use these fields, never the container's name.

    Codecs have FFmpeg's names.
    """

    name: str  #: the file's extension, without the dot
    muxer: str  #: FFmpeg's name
    #: muxer options in addition to the common ones in ``options``
    own_options: Mapping[str, str] = field(default_factory=dict)
    fragment_flags: str = ""  #: the muxer's flags for fragments; "" if the container cannot be fragmented
    fragmented: bool = False  #: whether fragments are written

    # Pictures
    default_codec: Codec
    video_codecs: frozenset[Codec]
    carries_times: bool = True  #: False for raw bitstreams, which hold only pictures, in order
    #: the tick of all times; None if the container takes the source's tick, or if each track has its own tick
    tick_s: Fraction | None = None
    least_timescale: int = 0  #: the smallest timescale of a track; 0 if tracks have no timescale
    clock_s: Fraction | None = None  #: the time after which the container's clock wraps
    counts_decoding: bool = False  #: whether decoding times are sums of durations
    has_header: bool = False  #: whether a header states parameter sets, colours, HDR and orientation
    sample_shape: SampleShape = SampleShape.BITSTREAM
    dolby_vision: bool = False  #: whether the container can state Dolby Vision's configuration
    hevc_tag: str = ""  #: the four-character code by which players recognize HEVC

    # Sound
    audio_codecs: frozenset[str] = frozenset()
    audio_fallback: str | None = None  #: the codec for tracks that do not fit; None if no audio fits
    #: codecs whose packets get no times: samples are counted, and gaps become silence
    counted_audio: frozenset[str] = frozenset()
    edit_lists: bool = False  #: whether an edit list hides a track's beginning, and a short last packet hides the end
    codec_delay: bool = False  #: whether the container states priming as a delay, which all times include
    stated_ends: bool = False  #: whether the container states when each track ends
    empty_tracks: bool = True  #: whether the container can hold a track without packets
    describes_ac3: bool = False  #: whether the header repeats values from AC-3 packets
    sound_changes: SoundChanges = SoundChanges.NEVER
    #: for each codec, the layouts that are read back wrongly
    unread_layouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unnamed_refused: frozenset[str] = frozenset()  #: codecs whose decoders refuse channels without names
    pcm_needs_names: bool = False  #: whether PCM channels must be named
    channels_alone: frozenset[str] = frozenset()  #: codecs whose channels the container counts without naming speakers

    # Everything else
    subtitle_codecs: frozenset[str] = frozenset()
    text_subtitles: str | None = None  #: the codec to which text subtitles that do not fit are converted
    one_cue_at_a_time: bool = False  #: whether text subtitles cannot overlap
    #: the codecs that a further video track, which is copied, may have
    extra_video_codecs: frozenset[str] = frozenset()
    attachments: bool = False
    cover_codecs: frozenset[str] = frozenset()
    cover_as_attachment: bool = False
    chapters: bool = False
    chapters_in_a_row: bool = False  #: whether each chapter begins where the previous one ends, as in a text track
    tags: bool = False
    #: tags stored in boxes that every player knows; None if the container stores all tags in the same way
    tag_boxes: frozenset[str] | None = None
    spaced_tags: bool = True  #: whether names of tags may have spaces
    any_timecode: bool = False  #: whether a timecode is stored as text, which allows any rate
    language: Callable[[str], str | None] = _nameless  #: returns the container's spelling of a language, or None
    language_tags: LanguageForm | None = None  #: how the container states language tags (BCP 47)
    dispositions: bool = False
    held_dispositions: Mapping[TrackKind | None, Disposition] = field(default_factory=dict)
    """The dispositions, besides the default one, that the container states: for all tracks (key None), and for each
    kind.
    """
    holds_more: str = ".mkv"  #: a container for the tracks that this one cannot hold; "" if there is none

    @property
    def holds_tracks(self) -> bool:
        """Whether the container can hold anything besides one video track."""
        return self.audio_fallback is not None

    def video_tick(self, source_time_base: Fraction) -> Fraction:
        """Return the tick, in seconds, in which this container stores video times.

        In mp4 and mov, multiples of ``source_time_base`` are whole ticks. A timescale is doubled until it is at least
        ``least_timescale``, as in FFmpeg. Raises ValueError: the time base is not positive.
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
        """Return the muxer's options: no date, no random id, the index first, and times in ``video_tick``."""
        options = {"fflags": "+bitexact", **self.own_options}
        if self.least_timescale:
            # Start offsets are in the movie's timescale; the default, 1000, would round them.
            timescale = str(video_tick.denominator)
            options |= {"movie_timescale": timescale, "video_track_timescale": timescale}
        return options | ({"movflags": self.fragment_flags} if self.fragmented else {})

    def check_video_codec(self, codec: Codec) -> None:
        """Check that the container holds ``codec``.

        Raises Unsupported, which names the codecs that the container holds.
        """
        if codec not in self.video_codecs:
            message = f".{self.name} cannot hold {codec.value} video"
            fitting = ", ".join(sorted(c.value for c in self.video_codecs))
            raise Unsupported(message, f"Use --codec {fitting}, or write to .mkv, which holds every codec.")


def container_for(output: str, *, fragmented: bool = False) -> Container:
    """Return the container for the extension of a path or address.

    Raises Unsupported: the extension is unknown, or the container has no fragmented form.
    """
    path = output.split("://", 1)[-1].split("?", 1)[0] if "://" in output else output
    extension = PurePosixPath(path).suffix.lower().removeprefix(".")
    container = _BY_EXTENSION.get(extension)
    if container is None:
        known = ", ".join(f".{name}" for name in sorted(_BY_EXTENSION))
        named = f"unknown container .{extension}" if extension else f"{output} has no extension to select a container"
        raise Unsupported(named, f"Use one of {known}.")
    if not fragmented:
        return container
    if not container.fragment_flags:
        message = f".{extension} has no fragmented form"
        advice = "Only mp4, m4v and mov can be fragmented; write to one of them, or leave --fragmented out."
        raise Unsupported(message, advice)
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
"""The tags that most containers have, by FFmpeg's names."""
_SAMPLED = frozenset({"aac", "mp3", "mp2", "ac3", "eac3", "dts", "opus", "flac", "alac"})

_MP4 = Container(
    name="mp4",
    muxer="mp4",
    own_options={"strict": "unofficial", "movflags": "+faststart"},
    # With delay_moov the header is written after the first packets; without it, edit lists are off by the reorder
    # delay.
    fragment_flags="+frag_keyframe+empty_moov+delay_moov+default_base_moof",
    default_codec=Codec.H264,
    video_codecs=frozenset(Codec),
    least_timescale=10_000,
    counts_decoding=True,
    has_header=True,
    sample_shape=SampleShape.EXACT,
    dolby_vision=True,
    hevc_tag="hvc1",  # parameter sets are only in the header, since Apple's players accept nothing else
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
    tag_boxes=COMMON_TAGS,  # These tags were found by writing each tag and reading it back, as for QuickTime.
    language=_iso_code,
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
    # Opus and FLAC in QuickTime are read only by FFmpeg, whose muxer refuses to write them.
    audio_codecs=(_SAMPLED - {"opus", "flac"}) | _PCM_ISO | _PCM_MOV,
    counted_audio=_PCM_ISO | _PCM_MOV,
    pcm_needs_names=False,
    extra_video_codecs=frozenset({"h264", "hevc", "mpeg4", "mpeg2video", "prores", "mjpeg", "dnxhd"}),
    subtitle_codecs=frozenset({"mov_text"}),
    cover_codecs=frozenset(),  # FFmpeg writes a cover only into mp4's metadata
    tag_boxes=frozenset(
        {"title", "artist", "album", "date", "comment", "genre", "copyright", "location", "make", "model"}
        | {"creation_time"}
    ),
    language=_in_quicktime,
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
    language=str,  # any text is kept as it is
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
    unread_layouts={"opus": ("6.1",)},  # FFmpeg reads back a wrong number of streams
    unnamed_refused=frozenset({"opus"}),  # RFC 7845, family 255
    subtitle_codecs=frozenset({"dvb_subtitle", "dvb_teletext"}),
    extra_video_codecs=frozenset({"h264", "hevc", "mpeg2video", "mpeg1video"}),
    language=_iso_code,
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

EXTENSIONS = frozenset(_BY_EXTENSION)  #: The extensions, without the dot, by which a container is selected
