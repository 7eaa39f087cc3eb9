"""From a request's quality, rates and preset to one settled NVENC encoder.

The same request gives the same settings everywhere, but for what a device lacks (B pictures, look-ahead): that is
looked up first and is part of the settings, so that two kinds of device are two encoder kinds and never meet in one
track. Sources: PyNvVideoCodec programming guide, sections 2.4 and 2.5; the Video Codec SDK's advice for encoding where
delay does not matter (variable rate, a buffer of some seconds, B pictures, look-ahead, adaptive quantization). The
scales and presets here were chosen by those documents; none of them was measured on NVENC.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ...errors import Unsupported, UsageError
from ..encoder_profiles import PRESETS
from ..encoder_settings import Codec, EncoderSettings, RateControl, check_rate
from ..encoder_tables import INITIAL_FULLNESS, gop_frames
from ..media import VideoFormat
from .nvenc_device import EncoderCapabilities
from .nvenc_options import settings_from_options, settings_to_options
from .nvenc_settings import Multipass, Preset, RateMode, TuningInfo
from .nvenc_surfaces import surface_for

__all__ = ["NVENC_PROFILES", "NvencProfile", "nvenc_kind", "settle_nvenc"]

_PEAK_SHARE, _BUFFER_S = 2, 4
"""Without --maxrate: the peak over the average, and the seconds of the average that the decoder's buffer holds."""
_RESERVED: Final[Mapping[str, str]] = {
    "codec": "use the codec of the request",
    "fps": "the picture settles it",
    "repeatspspps": "codecfleet settles how parameter sets are laid out",
}
"""Settings that are never a request's, and why or by what."""
_OF_ONE_SESSION: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("rc", "bitrate", "maxbitrate", "vbvbufsize", "vbvinit", "cq", "constqp"),
        "use --quality, --bitrate, --maxrate and --bufsize",
    ),
    **dict.fromkeys(("gop", "idrperiod"), "every segment begins with an IDR picture, and every group of pictures"),
    "timinginfo": "pictures are shown at the source's times",
}
"""Settings that a job of many segments settles itself; ``Fleet.encode`` has one session, and takes them."""
_RATES: Final = ("cq", "bitrate", "maxbitrate", "vbvbufsize", "vbvinit")
_STEERED: Final = (*_RATES, "multipass", "lookahead", "aq")
_LOSSLESS: Final = {"constqp": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effort:
    """What a preset of ours asks of NVENC, where the device has it."""

    preset: Preset
    b_frames: int
    multipass: Multipass | None = None
    lookahead: int = 0
    adaptive: bool = False


_EFFORTS: Final = (
    _Effort(preset=Preset.P1, b_frames=0),
    _Effort(preset=Preset.P2, b_frames=0),
    _Effort(preset=Preset.P3, b_frames=2),
    _Effort(preset=Preset.P4, b_frames=3, multipass=Multipass.QUARTER, adaptive=True),
    _Effort(preset=Preset.P5, b_frames=3, multipass=Multipass.QUARTER, lookahead=16, adaptive=True),
    _Effort(preset=Preset.P6, b_frames=3, multipass=Multipass.FULL, lookahead=16, adaptive=True),
    _Effort(preset=Preset.P7, b_frames=4, multipass=Multipass.FULL, lookahead=24, adaptive=True),
)
"""By our presets 1 to 7."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvencProfile:
    """One codec of NVENC. ``implementation`` is how plans name it; quality is 1 (best) to ``worst_quality``."""

    codec: Codec
    implementation: str
    default_quality: int
    worst_quality: int
    pix_fmts: tuple[str, ...]


_ALL_FORMATS: Final = ("yuv420p", "yuv420p10le", "yuv422p", "yuv422p10le", "yuv444p", "yuv444p10le")
NVENC_PROFILES: Final[Mapping[Codec, NvencProfile]] = {
    Codec.H264: NvencProfile(
        codec=Codec.H264,
        implementation="h264_nvenc",
        default_quality=23,
        worst_quality=51,
        pix_fmts=_ALL_FORMATS,
    ),
    Codec.HEVC: NvencProfile(
        codec=Codec.HEVC,
        implementation="hevc_nvenc",
        default_quality=26,
        worst_quality=51,
        pix_fmts=_ALL_FORMATS,
    ),
    Codec.AV1: NvencProfile(
        codec=Codec.AV1,
        implementation="av1_nvenc",
        default_quality=32,
        worst_quality=63,
        pix_fmts=_ALL_FORMATS[:2],
    ),
}
"""By the codec; NVENC has no VP9."""


def settle_nvenc(
    codec: Codec,
    *,
    format: VideoFormat,  # noqa: A002 - the settings' own word
    rate: RateControl | None,
    preset: int,
    time_base: Fraction,
    capabilities: EncoderCapabilities,
    extra_options: tuple[tuple[str, str], ...] = (),
    single_session: bool = False,
) -> EncoderSettings:
    """Return the settings of NVENC's encoder for ``codec`` on a device with those capabilities.

    ``format`` is what goes in; ``rate`` None is the codec's default quality. ``extra_options`` are settings by
    NVENC's names (docs/nvenc.md) and override ours; some are for ``single_session`` alone: an output that one session
    encodes from its first picture to its last.

    Raises:
        UsageError: the preset or the quality is out of range, or the rates contradict each other.
        Unsupported: no NVENC takes the format, the rate mode or one of the options.
        EngineUnfit: this device's does not.
    """
    profile = NVENC_PROFILES.get(codec)
    if profile is None:
        message = f"NVENC has no {codec} encoder"
        raise Unsupported(message, f"It encodes {', '.join(NVENC_PROFILES)}.")
    if preset not in PRESETS:
        message = f"preset {preset} is not in {PRESETS[0]}..{PRESETS[-1]}"
        raise UsageError(message, "1 is fastest, 7 slowest.")
    if format.pix_fmt not in profile.pix_fmts:
        message = f"{profile.implementation} does not encode {format.pix_fmt}"
        raise Unsupported(message, f"It encodes {', '.join(profile.pix_fmts)}.")
    settled_rate = _settled_rate(profile, rate)
    effort = _effort_options(_EFFORTS[preset - 1], capabilities)
    chosen = effort | _rate_options(settled_rate) | _structure_options(codec, format.frame_rate)
    chosen = _with_modes(chosen, extra_options, rate) if single_session else _with_extra(chosen, extra_options)
    settings = settings_from_options({"codec": codec.value} | chosen)
    surface = surface_for(format.pix_fmt)
    settings.check_surface(surface, format.width, format.height)
    capabilities.check(settings, surface, format.width, format.height)
    return EncoderSettings(
        codec=codec,
        implementation=profile.implementation,
        options=settings_to_options(settings),
        format=format,
        time_base=time_base,
        threads=1,
        rate=settled_rate,
    )


def nvenc_kind(settings: EncoderSettings, *, package: str, architecture: str, driver_branch: str) -> str:
    """Return what the output's bytes depend on besides the pictures, as one stable line.

    Two GPUs of one architecture under one driver branch are taken to give the same bytes (documented nowhere, not
    measured); anything else is another kind.
    """
    options = " ".join(f"{key}={value}" for key, value in settings.options)
    return f"{settings.implementation} PyNvVideoCodec-{package} {architecture} r{driver_branch} {options}"


def _settled_rate(profile: NvencProfile, rate: RateControl | None) -> RateControl:
    wanted = rate if rate is not None else RateControl()
    check_rate(wanted)
    return wanted if wanted.bitrate_bps is not None else _settled_quality(profile, wanted)


def _settled_quality(profile: NvencProfile, wanted: RateControl) -> RateControl:
    if wanted.maxrate_bps is not None:
        message = "NVENC has no maximal rate beside a quality: PyNvVideoCodec erases it"
        raise Unsupported(message, "Use --bitrate with --maxrate and --bufsize, or --quality alone.")
    quality = profile.default_quality if wanted.quality is None else wanted.quality
    if not 1 <= quality <= profile.worst_quality:
        message = f"quality {quality} is outside {profile.implementation}'s scale of 1 to {profile.worst_quality}"
        raise UsageError(message, "Lower is better.")
    return RateControl(quality=quality)


def _rate_options(rate: RateControl) -> dict[str, str]:
    if rate.bitrate_bps is None:
        return {"rc": RateMode.VBR.value, "cq": str(rate.quality)}
    peak = rate.maxrate_bps or _PEAK_SHARE * rate.bitrate_bps
    buffer_bits = rate.bufsize_bits or _BUFFER_S * rate.bitrate_bps
    return {
        "rc": RateMode.VBR.value,
        "bitrate": str(rate.bitrate_bps),
        "maxbitrate": str(peak),
        "vbvbufsize": str(buffer_bits),
        "vbvinit": str(int(buffer_bits * INITIAL_FULLNESS)),
    }


def _structure_options(codec: Codec, frame_rate: Fraction) -> dict[str, str]:
    # Groups of pictures are of one length and begin with an IDR picture, so every one of them is closed.
    frames = str(gop_frames(frame_rate))
    options = {"fps": str(frame_rate), "gop": frames, "idrperiod": frames}
    return options if codec is Codec.AV1 else options | {"repeatspspps": "0"}


def _effort_options(effort: _Effort, capabilities: EncoderCapabilities) -> dict[str, str]:
    options = {"preset": effort.preset.value, "bf": str(min(effort.b_frames, capabilities.b_frames_max))}
    if effort.multipass is not None:
        options["multipass"] = effort.multipass.value
    if effort.lookahead and capabilities.has("lookahead"):
        options["lookahead"] = str(effort.lookahead)
    if effort.adaptive:
        options["aq"] = "auto"
    return options


def _with_extra(options: dict[str, str], extra: tuple[tuple[str, str], ...]) -> dict[str, str]:
    for key, value in extra:
        if key in _RESERVED or key in _OF_ONE_SESSION:
            reason = _RESERVED.get(key) or _OF_ONE_SESSION[key]
            step = "Leave it out." if key in _RESERVED else "Leave it out, or encode frames with Fleet.encode."
            message = f"NVENC setting {key} is not a job's to set: {reason}"
            raise Unsupported(message, step)
        options = options | {key: value}
    return options


def _with_modes(
    options: dict[str, str], extra: tuple[tuple[str, str], ...], rate: RateControl | None
) -> dict[str, str]:
    """Lay a single session's own settings over ours, and leave out what of ours contradicts them."""
    given = dict(extra)
    for key in given.keys() & _RESERVED.keys():
        message = f"NVENC setting {key} cannot be set: {_RESERVED[key]}"
        raise Unsupported(message, "Leave it out.")
    mode = _mode(given)
    if rate is not None and _contradicts(rate, mode, given):
        message = f"a quality or bitrate beside the encoder options {_listed(given)} says two things"
        raise UsageError(message, "Give one of them.")
    is_lossless = given.get("tuning_info") == TuningInfo.LOSSLESS
    ours = {key: value for key, value in options.items() if key not in _outruled(mode, given)} | {"rc": mode}
    ours |= _LOSSLESS if is_lossless else {}
    period = given.get("gop") or given.get("idrperiod")
    return ours | ({"gop": period, "idrperiod": period} if period else {}) | given


def _mode(given: Mapping[str, str]) -> str:
    if "rc" in given:
        return given["rc"]
    is_constant = "constqp" in given or given.get("tuning_info") == TuningInfo.LOSSLESS
    return RateMode.CONSTQP if is_constant else RateMode.VBR


def _contradicts(rate: RateControl, mode: str, given: Mapping[str, str]) -> bool:
    if "cq" in given or "bitrate" in given or mode == RateMode.CONSTQP:
        return True
    return mode == RateMode.CBR and rate.quality is not None


def _outruled(mode: str, given: Mapping[str, str]) -> tuple[str, ...]:
    """Return which of our settings have no place beside a mode, or beside rates that are given."""
    if mode == RateMode.CONSTQP:
        # How many B pictures a lossless stream may have is the driver's to say.
        return (*_STEERED, "bf") if given.get("tuning_info") == TuningInfo.LOSSLESS else _STEERED
    if "cq" in given or "bitrate" in given:
        return _RATES
    if mode == RateMode.CBR:
        return ("cq", "maxbitrate", "vbvbufsize", "vbvinit")
    return ("vbvinit",) if "vbvbufsize" in given else ()


def _listed(given: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in given.items())
