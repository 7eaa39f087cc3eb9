"""Turns a request into a software encoder's settings, with every option that can change an output byte.

Segments are encoded on different machines and joined, so the same pictures must give the same bytes everywhere; the
options that each library needs for that were measured (docs/encoders.md).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from ...errors import EncoderFailed, Unsupported
from ..encode.libraries import check_parameter, library_version
from ..encode.profiles import (
    INITIAL_FULLNESS,
    PROFILES,
    EncoderProfile,
    Options,
    SoftwareProfile,
    gop_frames,
    preset_index,
)
from ..encode.reserved import check_not_reserved, spellings
from ..encode.settings import Codec, EncoderSettings, RateControl
from ..encode.software import SoftwareEncoder
from ..encode.target import QualityMetric, QualityTarget
from ..media.values import ContentLight, MasteringDisplay, VideoFormat
from ..quality.vmaf import vmaf_tool
from .nvenc_options import SETTINGS as NVENC_SETTINGS

THREADS = 2
"""Encoder threads per segment if the bytes depend on them; more segments use a machine better than more threads."""
_CORES_FILLED: Final = 16
_MOST_X264_THREADS: Final = 8
_ROWS_PER_THREAD: Final = 135
"""The picture rows for each thread: x264 codes one picture per thread, each some rows behind its reference picture."""

_CHROMATICITY_UNITS, _LUMINANCE_UNITS = 50_000, 10_000  # units of ST 2086 messages in H.264 and HEVC
_TRIED_KEPT: Final = 64
"""How many successfully opened settings are cached: the files of a batch use few different settings."""
_LARGEST_TREE: Final = 64
"""The side of x265's largest coding tree unit.

A picture that fits into a single unit gets different bytes in every run.
"""
_WIDEST_OVERRUN: Final = 48
"""Up to this width x265 4.2 writes past the end of a buffer while it follows references between pictures (cutree).

Its SIMD code handles four blocks of 16 columns at a time, the first four even if a row has fewer blocks.
"""
_INTERLACED_ROWS = {"yuv420p": 4, "yuv420p10le": 4}
_SHARED_NAMES: Final = frozenset({"bf", "level", "preset", "qmax", "tier"})
"""Settings of NVENC that exist in FFmpeg's software encoders under the same names."""

_NO_GOP_FRAMES: Final = 1 << 30
"""A keyframe interval longer than any track: x264's own number for "never" (X264_KEYINT_MAX_INFINITE), which all
libraries accept.
"""

_AHEAD_FRAMES: Final = 12
"""How many pictures x264 and x265 see after a segment.

Only two pictures after the segment are decoded, and given in turn. With 12, the last pictures get about as many bits as
in one encode of the whole film (docs/encoders.md).
"""
_AHEAD_CODECS: Final = frozenset({Codec.H264, Codec.HEVC})
_FIRST_IN_TREE: Final = "0,0,b=1.4"
"""A zone of x264 that divides the quantizer of a segment's first picture by x264's ``ipratio``.

With mbtree, x264 does that for each later keyframe, but not for the first (encoder/ratecontrol.c,
``rate_estimate_qscale``).
"""

_Params = dict[str, str]
_NO_SCENE_CUTS: Final[Mapping[Codec, _Params]] = {Codec.H264: {"scenecut": "0"}, Codec.HEVC: {"scenecut": "0"}}
"""The options that turn off keyframes at scene changes; libsvtav1 and libvpx never make such keyframes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareRequest:
    """A request for a software encoder; made by ``software_request``."""

    codec: Codec
    rate: RateControl | None = None  # None means the codec's default quality
    preset: int = 4
    options: Options = ()  # by FFmpeg's names; they override codecfleet's, except that ``x264-params`` are merged
    dolby_vision: bool = False  # whether to keep Dolby Vision data (RPUs): HEVC in 10 bits, profile 8
    keyframe_interval_s: Fraction | None = None  # if set, the encoder makes only the requested keyframes
    captions: bool = True  # whether to write closed captions, if pictures have captions and the codec can carry them
    segments: int | None = None  # how many segments the track has; None if unknown
    target: QualityTarget | None = None  # if set, each segment has the CRF that reaches this
    chosen_crf: bool = False  # whether the job chooses each segment's CRF, to reach a size or an average bitrate


def software_request(
    codec: Codec,
    *,
    rate: RateControl | None = None,
    preset: int = 4,
    options: Options = (),
    without_nvenc: str = "",
    keyframe_interval_s: Fraction | None = None,
    target: QualityTarget | None = None,
    chosen_crf: bool = False,
) -> SoftwareRequest:
    """Return a request for a software encoder, with options checked; ``without_nvenc`` says why NVENC does not encode.

    ``Unsupported`` if an option belongs to NVENC, is reserved, or is a parameter that its library does not know.
    """
    nvencs = [key for key, _ in options if key in NVENC_SETTINGS and key not in _SHARED_NAMES]
    if nvencs:
        because = f": {without_nvenc}" if without_nvenc else ""
        message = f"only NVENC has the options {', '.join(nvencs)}, and software encodes{because}"
        raise Unsupported(message, "Use --encoder nvenc, or the options of the software encoder.")
    profile, on_grid = PROFILES[codec], keyframe_interval_s is not None
    for key, value in options:
        if key != profile.params_key:
            check_not_reserved(profile.implementation, key, parameter=False, on_grid=on_grid)
            continue
        for name, setting in _split(value).items():
            check_not_reserved(profile.implementation, name, parameter=True, on_grid=on_grid)
            check_parameter(profile.implementation, name, setting)
    return SoftwareRequest(
        codec=codec,
        rate=rate,
        preset=preset,
        options=options,
        keyframe_interval_s=keyframe_interval_s,
        target=target,
        chosen_crf=chosen_crf,
    )


def settle_software(request: SoftwareRequest, picture: VideoFormat, time_base: Fraction) -> EncoderSettings:
    """Return a software encoder's settings, after opening an encoder with them; raises the errors of ``settle``."""
    codec, profile = request.codec, PROFILES[request.codec]
    preset = profile.presets[preset_index(request.preset)]
    if picture.pix_fmt not in profile.pix_fmts:
        message = f"{profile.implementation} does not encode {picture.pix_fmt}"
        raise Unsupported(message, f"It encodes {', '.join(profile.pix_fmts)}.")
    if request.dolby_vision and (codec is not Codec.HEVC or picture.pix_fmt != "yuv420p10le"):
        message = f"Dolby Vision needs HEVC in yuv420p10le, not {codec} in {picture.pix_fmt}"
        raise Unsupported(message, "Leave Dolby Vision out, or use --codec hevc --pix-fmt yuv420p10le.")
    rate = profile.settled_rate(request.rate)
    interval_s = request.keyframe_interval_s
    if interval_s is not None and codec is Codec.AV1 and rate.bitrate_bps is not None:
        message = "with an average bitrate and requested keyframes, SVT-AV1 gives different bytes in every run"
        raise Unsupported(message, "Use --quality with --keyframe-interval, or another --codec.")
    if codec is Codec.HEVC and picture.width <= _WIDEST_OVERRUN:
        _check_cutree(request.options, picture)
    options = dict(preset) | {"g": str(gop_frames(picture.frame_rate) if interval_s is None else _NO_GOP_FRAMES)}
    options |= _rate_options(codec, rate) | _codec_options(codec, picture, captions=request.captions)
    params = _params(codec, picture, rate) | ({} if interval_s is None else _NO_SCENE_CUTS.get(codec, {}))
    follows_references = preset_index(request.preset) > 0  # with mbtree or cutree
    if _starts_coarse(request, rate) and follows_references:
        params["zones"] = _FIRST_IN_TREE
    target = None if request.target is None else settled_target(request.target, profile, picture)
    if target is not None or request.chosen_crf:
        del options["crf"]  # each segment has its own
        # Otherwise x264's parameter sets state the CRF; those of the other encoders do not.
        params |= {"stitchable": "1"} if codec is Codec.H264 else {}
    settings = EncoderSettings(
        codec=codec,
        implementation=profile.implementation,
        options=_with_extra(profile, options, params, request.options),
        format=picture,
        time_base=time_base,
        threads=_threads(request, rate, picture.height),
        rate=rate,
        dolby_vision=request.dolby_vision,
        # A user's options may make the bytes depend on the threads, as VP9's row-based threading does.
        any_threads=not request.options and _gives_the_same_bytes(codec, rate),
        keyframe_interval_s=interval_s,
        target=target,
        chosen_crf=request.chosen_crf,
        ahead_frames=_AHEAD_FRAMES if codec in _AHEAD_CODECS and follows_references else 0,
    )
    _try(settings, request.options)
    return settings


def settled_target(target: QualityTarget, profile: EncoderProfile, picture: VideoFormat) -> QualityTarget:
    """Return the target with the limits and the measuring tool's version settled; raises the errors of ``settled``."""
    tool = vmaf_tool() if target.metric is QualityMetric.VMAF else None
    return target.settled(profile, picture, None if tool is None else tool.version)


def software_kind(settings: EncoderSettings) -> str:
    """Return one stable line with everything, apart from the pictures, that the output's bytes depend on."""
    options = " ".join(f"{key}={value}" for key, value in settings.options)
    dovi = " dolby_vision=1" if settings.dolby_vision else ""
    version = library_version(settings.implementation)
    threads = f"{'frame-' if settings.codec is Codec.H264 else ''}threads={settings.threads}"
    ahead = f" ahead={settings.ahead_frames}" if settings.ahead_frames else ""
    return f"{settings.implementation} {version} {threads} {options}{dovi}{ahead}"


def software_fullness(settings: EncoderSettings, fullness: Fraction) -> EncoderSettings:
    """Set the leaky bucket's initial fullness (0 to 1) in settings for x264 or x265; return others unchanged."""
    key = PROFILES[settings.codec].params_key
    if key not in ("x264-params", "x265-params"):
        return settings
    options = dict(settings.options)
    options[key] = _joined(_split(options[key]) | {"vbv-init": _decimal(fullness)})
    return replace(settings, options=tuple(sorted(options.items())))


def _threads(request: SoftwareRequest, rate: RateControl, height: int) -> int:
    """Return how many threads a session has if the bytes depend on the number; one if the library's threads race."""
    if request.codec is Codec.AV1:
        return _av1_threads(rate)
    if request.codec is not Codec.H264:
        return THREADS
    if rate.maxrate_bps is not None:
        return 1  # each thread reads how many bits the other threads have spent so far
    if rate.bitrate_bps is not None or request.segments is None:
        return THREADS
    return x264_threads(request.segments, height)


def x264_threads(segments: int, height: int) -> int:
    """Return how many threads encode each segment of a track: more if there are too few segments to fill a machine.

    The number is the same on every machine, since the bytes depend on it. More threads need neither more CPU time nor
    more bits at equal quality (docs/speed.md).
    """
    return max(THREADS, min(_CORES_FILLED // segments, height // _ROWS_PER_THREAD, _MOST_X264_THREADS))


def _av1_threads(rate: RateControl) -> int:
    return 1 if _is_steered(rate) else THREADS  # two threads race for the bit budget


def _gives_the_same_bytes(codec: Codec, rate: RateControl) -> bool:
    """Return whether any number of threads gives the same bytes (docs/speed.md)."""
    return codec is Codec.VP9 or (codec in (Codec.HEVC, Codec.AV1) and not _is_steered(rate))


def _is_steered(rate: RateControl) -> bool:
    return rate.bitrate_bps is not None or rate.maxrate_bps is not None


def _starts_coarse(request: SoftwareRequest, rate: RateControl) -> bool:
    """Return whether x264 gives each segment's first picture too few bits; a user's options may prevent that."""
    return request.codec is Codec.H264 and rate.quality is not None and not request.options


def _rate_options(codec: Codec, rate: RateControl) -> dict[str, str]:
    options = {"b": str(rate.bitrate_bps)} if rate.quality is None else {"crf": str(rate.quality)}
    if rate.quality is not None and codec is Codec.VP9:
        # libvpx takes a quality only with a rate: 0 means no limit; a maximum rate makes this "constrained quality".
        options["b"] = str(rate.maxrate_bps or 0)
    if rate.maxrate_bps is not None:
        if codec is Codec.AV1 and rate.quality is None:
            message = "SVT-AV1 has no maximum rate with an average bitrate"
            raise Unsupported(message, "Use --quality with --maxrate and --bufsize, or only --bitrate.")
        options |= {"maxrate": str(rate.maxrate_bps), "bufsize": str(rate.bufsize_bits)}
    return options


def _codec_options(codec: Codec, picture: VideoFormat, *, captions: bool) -> dict[str, str]:
    both = {"forced-idr": "1", "a53cc": str(int(captions))}
    if codec is Codec.H264:
        return both | {"flags": "+ildct+ilme"} if codes_interlaced(codec, picture) else both
    if codec is Codec.HEVC:
        return both
    # FFmpeg ignores a misspelt parameter of SVT-AV1 unless errors are fatal.
    return {"err_detect": "explode"} if codec is Codec.AV1 else {"row-mt": "0"}


def codes_interlaced(codec: Codec, picture: VideoFormat) -> bool:
    """Return whether interlaced pictures are coded as interlaced, which keeps their field order.

    Only x264 does that, if each field has whole pairs of chroma rows. (x265 would code each field as a picture; the
    other encoders have no fields.) Otherwise whole frames are coded: every line is kept, but the field order is lost.
    """
    rows = _INTERLACED_ROWS.get(picture.pix_fmt, 2)
    return codec is Codec.H264 and picture.interlaced and picture.height % rows == 0


def _params(codec: Codec, picture: VideoFormat, rate: RateControl) -> _Params:
    bucket = {"vbv-init": _decimal(INITIAL_FULLNESS)} if rate.maxrate_bps is not None else {}
    mastering, light = picture.hdr.mastering, picture.hdr.light
    if codec is Codec.H264:
        # x264 takes the field order from each picture, but a few pictures late.
        fields = {"bff": "1"} if picture.bottom_first and codes_interlaced(codec, picture) else {}
        params = {"cpu-independent": "1", "open-gop": "0"} | fields | bucket
        return params | _named_hdr(("mastering-display", "cll"), mastering, light)
    if codec is Codec.HEVC:
        params = {"pools": str(THREADS), "frame-threads": "1", "open-gop": "0", "info": "0", "log-level": "none"}
        params |= bucket | ({"const-vbv": "1"} if bucket else {})
        params |= {"ctu": "16"} if max(picture.width, picture.height) <= _LARGEST_TREE else {}
        params |= {"cutree": "0"} if picture.width <= _WIDEST_OVERRUN else {}
        hdr = _named_hdr(("master-display", "max-cll"), mastering, light)
        return params | hdr | ({"hdr10": "1"} if hdr else {})
    if codec is Codec.AV1:
        params = {"lp": str(_av1_threads(rate))}
        if mastering is not None:
            params["mastering-display"] = _mastering(mastering, _decimal, _decimal)  # precise enough for AV1's units
        if light is not None:
            params["content-light"] = f"{light.max_cll},{light.max_fall}"
        return params
    return {}


def _named_hdr(names: tuple[str, str], mastering: MasteringDisplay | None, light: ContentLight | None) -> _Params:
    params: _Params = {}
    if mastering is not None:  # values in the units of the SEI message (H.264 and H.265, annex D)
        units = (lambda x: round(x * _CHROMATICITY_UNITS)), (lambda y: round(y * _LUMINANCE_UNITS))
        params[names[0]] = _mastering(mastering, *units)
    if light is not None:
        params[names[1]] = f"{light.max_cll},{light.max_fall}"
    return params


def _mastering(
    display: MasteringDisplay, chromaticity: Callable[[Fraction], object], luminance: Callable[[Fraction], object]
) -> str:
    points = (("G", display.green), ("B", display.blue), ("R", display.red), ("WP", display.white))
    written = "".join(f"{name}({chromaticity(x)},{chromaticity(y)})" for name, (x, y) in points)
    return f"{written}L({luminance(display.max_luminance)},{luminance(display.min_luminance)})"


def _decimal(value: Fraction) -> str:
    scaled = round(value * 10**9)
    return f"{scaled // 10**9}.{scaled % 10**9:09d}".rstrip("0").rstrip(".")


def _with_extra(profile: SoftwareProfile, options: dict[str, str], params: _Params, extra: Options) -> Options:
    for key, value in extra:
        if key == profile.params_key:
            params |= _split(value)
        else:
            options[key] = value
    if profile.params_key is not None:
        options[profile.params_key] = _joined(params)
    return tuple(sorted(options.items()))


def _check_cutree(extra: Options, picture: VideoFormat) -> None:
    """Raise Unsupported if a user's option sets cutree, which must be off for narrow pictures (``_WIDEST_OVERRUN``)."""
    profile = PROFILES[Codec.HEVC]
    for name in (name for key, value in extra if key == profile.params_key for name in _split(value)):
        if "cutree" in spellings(profile.implementation, name):
            message = f"the encoder option {name} cannot be set for pictures of {picture.width}x{picture.height}"
            step = (
                f"Leave it out, or use more than {_WIDEST_OVERRUN} columns: libx265 fails with it in narrow pictures."
            )
            raise Unsupported(message, step)


def _split(text: str) -> _Params:
    pairs = [pair.partition("=") for pair in text.split(":") if pair]
    # A parameter without a value is an on/off switch.
    return {name.strip(): value if equals else "1" for name, equals, value in pairs}


def _joined(params: _Params) -> str:
    return ":".join(f"{name}={value}" for name, value in params.items())


@lru_cache(_TRIED_KEPT)
def _try(settings: EncoderSettings, extra: Options) -> None:
    try:
        SoftwareEncoder(settings)
    except EncoderFailed as error:
        suspects = [pair for pair in extra if _opens_without(settings, pair)] or extra
        named = ", ".join(f"{key}={value}" for key, value in suspects)
        advice = f"Check the encoder options: {named}." if named else "Choose another --codec, size or --pix-fmt."
        raise Unsupported(error.message, advice) from error


def _opens_without(settings: EncoderSettings, pair: tuple[str, str]) -> bool:
    key, value = pair
    options = dict(settings.options)
    ours = options.pop(key, "")
    if key == PROFILES[settings.codec].params_key:
        suspects = _split(value)
        options[key] = _joined({name: kept for name, kept in _split(ours).items() if name not in suspects})
    try:
        SoftwareEncoder(replace(settings, options=tuple(sorted(options.items()))))
    except EncoderFailed:
        return False
    return True
