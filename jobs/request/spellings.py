"""Other programs' names for options and values, such as FFmpeg's: each is accepted, or refused with advice."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from ...actors.encode.profiles import PRESETS, PROFILES
from ...actors.encode.settings import Codec
from .values import parse_choice, parse_count, refusal

CODECS: Final[Mapping[str, Codec]] = {
    **{codec.value: codec for codec in Codec},
    **{PROFILES[codec].implementation: codec for codec in Codec},
    **dict.fromkeys(("h.264", "x264", "avc", "avc1"), Codec.H264),
    **dict.fromkeys(("h265", "h.265", "x265", "hvc1", "hev1"), Codec.HEVC),
    **dict.fromkeys(("av01", "svtav1", "svt-av1"), Codec.AV1),
    **dict.fromkeys(("vp09", "libvpx-vp9"), Codec.VP9),
}
"""Every accepted name of a codec, including the names of its encoders."""
PRESET_NAMES: Final[Mapping[str, int]] = {
    dict(options)["preset"]: preset for preset, options in zip(PRESETS, PROFILES[Codec.H264].presets, strict=True)
}
"""x264's preset names, and codecfleet's number for each."""
BETWEEN: Final = {
    "superfast": "ultrafast (1) or veryfast (2)",
    "faster": "veryfast (2) or fast (3)",
    "placebo": "veryslow (7)",
}
"""x264's other presets, and the nearest ones here."""
FFMPEG: Final[Mapping[str, str]] = {
    **dict.fromkeys(("-c:v", "-codec:v", "-vcodec", "-c", "-codec"), "--codec"),
    "-crf": "--crf",
    **dict.fromkeys(("-q:v", "-qscale:v", "-qp", "-cq"), "--quality"),
    **dict.fromkeys(("-b:v", "-b"), "--bitrate"),
    "-maxrate": "--maxrate",
    "-bufsize": "--bufsize",
    "-preset": "--preset",
    **dict.fromkeys(("-g", "-keyint_min", "-sc_threshold", "-force_key_frames"), "--keyframe-interval"),
    **dict.fromkeys(
        ("-tune", "-profile:v", "-level", "-bf", "-refs", "-x264-params", "-x265-params", "-svtav1-params"),
        "--encoder-option NAME=VALUE",
    ),
    "-s": "--scale",
    "-pix_fmt": "--pix-fmt",
    **dict.fromkeys(("-vf", "-filter:v", "-filter_complex"), "the filter's own option, such as --scale or --fps"),
    **dict.fromkeys(("-r", "-r:v"), "--fps"),
    "--subtitle-burned": "--burn-subtitles",
    "-ss": "--start",
    "-to": "--end",
    "-t": "--end (a time, not a length)",
    **dict.fromkeys(("-c:a", "-codec:a", "-acodec"), "--audio copy, aac, opus or none"),
    **dict.fromkeys(("-b:a", "-ab"), "--audio-bitrate"),
    "-ac": "--audio-channels",
    **dict.fromkeys(("-af", "-filter:a"), "--loudness for loudnorm; there are no other filters for sound"),
    "-an": "--audio none",
    "-sn": "--subtitles none",
    "-map": "--video-track and --audio-track",
    "-i": "codecfleet transcode INPUT OUTPUT",
    "-f": "an OUTPUT whose extension names the container",
    "-y": "--overwrite",
    "-movflags": "--fragmented (the index of a plain mp4 is always in front)",
    **dict.fromkeys(("-threads", "-filter_threads"), "--workers"),
    **dict.fromkeys(("-loglevel", "-v", "-hide_banner", "-nostats"), "--quiet"),
    "-progress": "--json",
}
"""FFmpeg's options, one of HandBrake's, and codecfleet's option for each."""
GUESSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("--profile", "--level", "--bframes", "--refs"), "--encoder-option NAME=VALUE"),
    **dict.fromkeys(("--resolution", "--width", "--height", "--max-height"), "--scale"),
    **dict.fromkeys(("--framerate", "--frame-rate", "--rate"), "--fps"),
    **dict.fromkeys(("--gop", "--keyint", "--gop-size"), "--keyframe-interval"),
    **dict.fromkeys(("--duration", "--length", "--stop"), "--end (a time, not a length)"),
    **dict.fromkeys(("--gpu", "--hwaccel", "--cuda", "--nvdec"), "--device gpu"),
    "--nvenc": "--encoder nvenc",
    "--cpu": "--device cpu",
    **dict.fromkeys(("--jobs", "-j", "--concurrency", "--parallel"), "--workers"),
    "--copy": "--audio copy (pictures are always encoded)",
    "--no-audio": "--audio none",
    **dict.fromkeys(("--no-subs", "--no-subtitles"), "--subtitles none"),
    **dict.fromkeys(("--format", "--container"), "an OUTPUT whose extension names the container"),
    "--faststart": "--fragmented (the index of a plain mp4 is always in front)",
    **dict.fromkeys(("--verbose", "--debug", "--log-level"), "CODECFLEET_LOG=text in the environment"),
    **dict.fromkeys(("--force-overwrite", "--yes"), "--overwrite"),
    **dict.fromkeys(("--target-vmaf", "--vmaf"), "--target-quality vmaf:94"),
    "--target-ssim": "--target-quality ssim:0.98",
    **dict.fromkeys(("--input", "--output"), "the input and the output without an option"),
}
"""Options that users may guess, and codecfleet's option for each."""
MISSING: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("--two-pass", "--2-pass", "--2pass", "--pass", "--passes"), "--bitrate and --size need no such option."
    ),
    **dict.fromkeys(
        ("--metadata", "--title", "--tag"), "Tags are copied unchanged; edit them with another program afterwards."
    ),
    **dict.fromkeys(("--hls", "--dash", "--ladder"), "`codecfleet ladder INPUT DIR` writes HLS and DASH."),
    "--watch": "No folder is watched; run codecfleet batch again to encode new files.",
}
"""Features that do not exist, and the alternative to each."""
_NEAR: Final = 0.8  #: A name counts as a typo of another if their ratio by ``difflib`` is at least this
_KEYWORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("vcodec", "video_codec"), "codec"),
    "acodec": "audio",
    "size": "scale",
    "overwrite_output": "overwrite",
}
"""Common wrong names for fields in Python and in files."""


def parse_codec(name: str, text: str) -> str:
    """Return the codec that ``text`` names; ``h265``, ``x265`` and ``libx265`` also name ``hevc``."""
    if (known := CODECS.get(text.lower())) is not None:
        return known.value
    codec, _, encoder = text.lower().partition("_")
    if encoder == "nvenc" and codec in CODECS:
        how = f"Did you mean --codec {CODECS[codec].value} --encoder nvenc?"
        raise refusal(name, text, "an encoder, not a codec", how)
    return parse_choice(name, text, [each.value for each in Codec])


def parse_preset(name: str, text: str) -> int:
    """Return the preset, 1 to 7, that ``text`` names by number or by a name from x264."""
    if (known := PRESET_NAMES.get(text.lower())) is not None:
        return known
    if text.lower() in BETWEEN:
        raise refusal(name, text, "not one of the seven presets", f"Did you mean {BETWEEN[text.lower()]}?")
    if text.isascii() and text.isdigit():
        return parse_count(name, text, least=PRESETS[0], most=PRESETS[-1])
    named = "`codecfleet presets` lists the named ones, for --preset and load_preset"
    how = f"Write a number from {PRESETS[0]} to {PRESETS[-1]}, or {', '.join(PRESET_NAMES)}; {named}."
    raise refusal(name, text, "not a preset", how)


def near_to(name: str, flags: Iterable[str]) -> list[str]:
    """Return the flags that resemble a name, the nearest first."""
    plain = {flag.lstrip("-"): flag for flag in flags if flag.startswith("--")}
    return [plain[near] for near in get_close_matches(name.lstrip("-").lower(), plain, n=2, cutoff=_NEAR)]


def option_for(arguments: Sequence[str], flags: Collection[str]) -> tuple[str, str]:
    """Return the first option of another program, and codecfleet's option for it; ("", "") if there is none.

    ``flags`` are the command's own options.
    """
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in flags:
            continue
        # FFmpeg numbers streams: -c:v:0 is -c:v for the first stream. Many people write FFmpeg's options with two
        # dashes.
        spelled = (name, name.rpartition(":")[0] if name.count(":") > 1 else "", f"-{name.lstrip('-')}")
        found = next((FFMPEG[each] for each in spelled if each in FFMPEG), "") or GUESSED.get(name, "")
        if found and (not found.startswith("--") or found.split()[0].rstrip(",") in flags):
            return name, found
    return "", ""


def name_for(name: str, fields: Iterable[str], written: Mapping[str, str]) -> str:
    """Return the field that ``name`` means or resembles; "" if there is none.

    ``written`` maps more names to fields.
    """
    known = dict.fromkeys(fields)
    plain = name.lower().replace("-", "_")
    for candidate in (plain, written.get(plain), _KEYWORDS.get(plain)):
        if candidate in known:
            return str(candidate)
    near = get_close_matches(plain, [*known, *written], n=1, cutoff=_NEAR)
    return written.get(near[0], near[0]) if near else ""
