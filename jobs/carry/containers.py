"""What each output container is, can hold, and how it is written: one frozen value per file extension.

The tables say what a player can be expected to read, which is less than what FFmpeg's muxers let through; every entry
is written and read back by a test. docs/containers.md is the same table for people.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import PurePosixPath

from ...actors.encode.settings import Codec
from ...errors import Unsupported

_MIN_MOV_TIMESCALE = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One way to write an output file; ``name`` is the extension without its dot, ``muxer`` and codecs FFmpeg's names.

    The codecs are those this container is known to be read with, not all that the muxer would take.
    """

    name: str
    muxer: str
    default_codec: Codec
    video_codecs: frozenset[Codec]
    audio_codecs: frozenset[str] = frozenset()
    audio_fallback: str | None = None
    """What a track is encoded to when its own codec does not fit; None where the container holds no audio."""
    counted_audio: frozenset[str] = frozenset()
    """Of these codecs it states no times: their samples are counted, so gaps are written as silence."""
    subtitle_codecs: frozenset[str] = frozenset()
    text_subtitles: str | None = None
    """The same of text subtitles."""
    extra_video_codecs: frozenset[str] = frozenset()
    """Of further tracks that are copied beside the encoded one."""
    attachments: bool = False
    cover_codecs: frozenset[str] = frozenset()
    cover_as_attachment: bool = False
    chapters: bool = False
    chapters_in_a_row: bool = False
    """Whether chapters lie end to end from 0 on, as in QuickTime's track of their titles."""
    tags: bool = False
    dispositions: bool = False
    carries_times: bool = True
    """False for raw bitstreams: pictures only, in order."""
    fragmented: bool = False

    @property
    def is_isobmff(self) -> bool:
        """Whether this is mp4 or mov: edit lists, one timescale per track."""
        return self.muxer in ("mp4", "mov")

    @property
    def is_matroska(self) -> bool:
        """Whether this is Matroska or WebM: millisecond ticks, codec delay instead of edit lists."""
        return self.muxer in ("matroska", "webm")

    @property
    def holds_tracks(self) -> bool:
        """Whether anything beside the one video track fits in."""
        return self.audio_fallback is not None

    def video_tick(self, source_time_base: Fraction) -> Fraction:
        """Return the tick, in seconds, in which this container stores video times.

        In mp4 and mov every multiple of ``source_time_base`` is a whole number of ticks, so times stay exact; the
        muxer doubles small timescales until they reach 10,000, and so does this.

        Raises:
            ValueError: the time base is not positive.
        """
        if source_time_base <= 0:
            raise ValueError(f"a time base must be positive: {source_time_base}")
        if self.is_isobmff:
            timescale = source_time_base.denominator
            while timescale < _MIN_MOV_TIMESCALE:
                timescale *= 2
            return Fraction(1, timescale)
        if self.is_matroska:
            return Fraction(1, 1000)
        return Fraction(1, 90_000) if self.muxer == "mpegts" else source_time_base

    def options(self, video_tick: Fraction) -> dict[str, str]:
        """Return the muxer's options: no date, no random id, index in front, times exact to ``video_tick``."""
        options = {"fflags": "+bitexact"}
        if self.is_isobmff:
            # Start offsets are stored in the movie's own timescale; its default of 1000 would round them.
            timescale = str(video_tick.denominator)
            options |= {"movie_timescale": timescale, "video_track_timescale": timescale, "strict": "unofficial"}
            return options | {"movflags": _FRAGMENTED_FLAGS if self.fragmented else "+faststart"}
        return options | ({"cues_to_front": "1", "default_mode": "passthrough"} if self.is_matroska else {})

    def check_video_codec(self, codec: Codec) -> None:
        """Make sure that ``codec`` fits.

        Raises:
            Unsupported: it does not; the next step names those that do.
        """
        if codec not in self.video_codecs:
            message = f".{self.name} cannot hold {codec.value} video"
            fitting = ", ".join(sorted(c.value for c in self.video_codecs))
            raise Unsupported(message, f"Use --codec {fitting}, or write to .mkv, which holds every codec.")


def container_for(output: str, *, fragmented: bool = False) -> Container:
    """Return the container that ``output``, a path or an address, names by its extension.

    Raises:
        Unsupported: the extension is not one of ours, or the container has no fragmented form.
    """
    path = output.split("://", 1)[-1].split("?", 1)[0] if "://" in output else output
    extension = PurePosixPath(path).suffix.lower().removeprefix(".")
    container = _BY_EXTENSION.get(extension)
    if container is None:
        known = ", ".join(f".{name}" for name in sorted(_BY_EXTENSION))
        named = f"unknown container .{extension}" if extension else f"{output} has no extension to name a container"
        raise Unsupported(named, f"Known are {known}.")
    if not fragmented:
        return container
    if not container.is_isobmff:
        message = f".{extension} has no fragmented form"
        raise Unsupported(message, "Only mp4, m4v and mov can be fragmented; write to one of them or leave it out.")
    return replace(container, fragmented=True)


# delay_moov lets the header wait for the first packets: without it the edit lists are wrong by the reorder delay.
_FRAGMENTED_FLAGS = "+frag_keyframe+empty_moov+delay_moov+default_base_moof"

_PCM_ISO = frozenset({"pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s24be", "pcm_s32le", "pcm_f32le", "pcm_f64le"})
_PCM_MOV = frozenset({"pcm_u8", "pcm_s8", "pcm_mulaw", "pcm_alaw"})
_SAMPLED = frozenset({"aac", "mp3", "mp2", "ac3", "eac3", "dts", "opus", "flac", "alac"})

_MP4 = Container(
    name="mp4",
    muxer="mp4",
    default_codec=Codec.H264,
    video_codecs=frozenset(Codec),
    audio_codecs=_SAMPLED | _PCM_ISO,
    audio_fallback="aac",
    counted_audio=_PCM_ISO,
    subtitle_codecs=frozenset({"mov_text", "dvd_subtitle"}),
    text_subtitles="mov_text",
    extra_video_codecs=frozenset({"h264", "hevc", "av1", "vp9", "vvc", "mpeg4", "mpeg2video", "mpeg1video"}),
    cover_codecs=frozenset({"mjpeg", "png"}),
    chapters=True,
    chapters_in_a_row=True,
    tags=True,
    dispositions=True,
)
_MOV = replace(
    _MP4,
    name="mov",
    muxer="mov",
    video_codecs=frozenset({Codec.H264, Codec.HEVC}),
    # Opus and FLAC in QuickTime are read by FFmpeg alone, and its muxer refuses them.
    audio_codecs=(_SAMPLED - {"opus", "flac"}) | _PCM_ISO | _PCM_MOV,
    counted_audio=_PCM_ISO | _PCM_MOV,
    extra_video_codecs=frozenset({"h264", "hevc", "mpeg4", "mpeg2video", "prores", "mjpeg", "dnxhd"}),
    subtitle_codecs=frozenset({"mov_text"}),
    cover_codecs=frozenset(),  # FFmpeg writes a cover into mp4's metadata alone
)
_MKV = Container(
    name="mkv",
    muxer="matroska",
    default_codec=Codec.H264,
    video_codecs=frozenset(Codec),
    audio_codecs=_SAMPLED | _PCM_ISO | {"mp1", "truehd", "vorbis", "wavpack", "tta", "pcm_u8"},
    audio_fallback="aac",
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
    dispositions=True,
)
_WEBM = Container(
    name="webm",
    muxer="webm",
    default_codec=Codec.VP9,
    video_codecs=frozenset({Codec.VP9, Codec.AV1}),
    audio_codecs=frozenset({"opus", "vorbis"}),
    audio_fallback="opus",
    subtitle_codecs=frozenset({"webvtt"}),
    text_subtitles="webvtt",
    extra_video_codecs=frozenset({"vp8", "vp9", "av1"}),
    chapters=True,
    tags=True,
    dispositions=True,
)
_TS = Container(
    name="ts",
    muxer="mpegts",
    default_codec=Codec.H264,
    video_codecs=frozenset({Codec.H264, Codec.HEVC}),
    audio_codecs=frozenset({"aac", "mp1", "mp2", "mp3", "ac3", "eac3", "dts", "truehd", "opus"}),
    audio_fallback="aac",
    subtitle_codecs=frozenset({"dvb_subtitle", "dvb_teletext"}),
    extra_video_codecs=frozenset({"h264", "hevc", "mpeg2video", "mpeg1video"}),
    dispositions=True,
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

EXTENSIONS = frozenset(_BY_EXTENSION)
"""The extensions, without a dot, that name a container."""
