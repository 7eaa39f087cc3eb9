"""From a request's quality, rates and preset to one settled NVENC encoder.

A request gives the same settings everywhere, except for features that a device lacks (B pictures, look-ahead): those
are part of the settings, so two kinds of device are two encoder kinds and never share a track. Sources: PyNvVideoCodec
programming guide, sections 2.4 and 2.5; the Video Codec SDK's advice for encoding where delay does not matter. Scales
and presets follow those documents; none was measured on NVENC.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from ...errors import Unsupported, UsageError
from ..encode.nvenc_settings import Multipass, NvencSettings, Preset, Qp, RateMode, TuningInfo
from ..encode.profiles import INITIAL_FULLNESS, NVENC_PROFILES, Options, gop_frames, preset_index
from ..encode.settings import Codec, EncoderSettings, RateControl
from ..media.values import VideoFormat
from ..surfaces.formats import surface_format
from .nvenc_capabilities import EncoderCapabilities
from .nvenc_options import NvencValue, read_option, settings_to_options, write_option

_PEAK_SHARE, _BUFFER_S = 2, 4
"""Without --maxrate: the peak over the average, and the seconds of the average that the decoder's buffer holds."""
_RESERVED: Final[Mapping[str, str]] = {
    "codec": "use the codec of the request",
    "fps": "the picture settles it",
    "repeatspspps": "codecfleet settles how parameter sets are laid out",
}
"""Settings that no request may have, and why."""
_OF_ONE_SESSION: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("rc", "bitrate", "maxbitrate", "vbvbufsize", "vbvinit", "cq", "constqp"),
        "use --quality, --bitrate, --maxrate and --bufsize",
    ),
    **dict.fromkeys(("gop", "idrperiod"), "every segment begins with an IDR picture, and every group of pictures"),
    "timinginfo": "pictures are shown at the source's times",
}
"""Settings that a job of many segments settles itself; ``encode`` has one session, and accepts them."""
_RATES: Final = ("cq", "bitrate", "maxbitrate", "vbvbufsize", "vbvinit")
_STEERED: Final = (*_RATES, "multipass", "lookahead", "aq")


@dataclass(frozen=True, slots=True, kw_only=True)
class NvencRequest:
    """A request for NVENC, independent of a device; made by ``nvenc_request``.

    ``rate`` None is the codec's default quality. ``options`` are settings by NVENC's names (docs/nvenc.md), which
    override ours. ``single_session``: one session encodes the whole output.
    """

    codec: Codec
    rate: RateControl | None = None
    preset: int = 4
    options: tuple[tuple[str, NvencValue], ...] = ()
    single_session: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Effort:
    """What a preset of ours requests, where the device has it."""

    preset: Preset
    b_frames: int
    multipass: Multipass | None = None
    lookahead: int | None = None
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


def nvenc_request(
    codec: Codec,
    *,
    rate: RateControl | None = None,
    preset: int = 4,
    options: Options = (),
    single_session: bool = False,
) -> NvencRequest:
    """Return a request for NVENC, its options read.

    Raises:
        Unsupported: an option is unknown, not a user's to set, or does not take its value; the message names it.
    """
    for key, _ in options:
        if key in _RESERVED:
            raise Unsupported(f"NVENC setting {key} cannot be set: {_RESERVED[key]}", "Leave it out.")
        if key in _OF_ONE_SESSION and not single_session:
            message = f"NVENC setting {key} is not a job's to set: {_OF_ONE_SESSION[key]}"
            raise Unsupported(message, "Leave it out, or encode frames with codecfleet.encode.")
    read = tuple((key, read_option(key, text)) for key, text in options)
    return NvencRequest(codec=codec, rate=rate, preset=preset, options=read, single_session=single_session)


def nvenc_unsupported_reason(codec: Codec, picture: VideoFormat) -> str:
    """Return why no NVENC encodes such pictures; "" where one may."""
    profile = NVENC_PROFILES.get(codec)
    if profile is None:
        return f"NVENC has no {codec} encoder"
    if picture.pix_fmt not in profile.pix_fmts:
        return f"NVENC does not encode {codec} in {picture.pix_fmt}"
    surface = surface_format(picture.pix_fmt)
    holds = surface is not None and surface.holds(picture.width, picture.height)
    return "" if holds else f"NVENC does not take {picture.pix_fmt} of {picture.width}x{picture.height}"


def settle_nvenc(
    request: NvencRequest, picture: VideoFormat, time_base: Fraction, capabilities: EncoderCapabilities
) -> EncoderSettings:
    """Return NVENC's settings on a device with those capabilities, for pictures like ``picture``.

    Raises:
        UsageError: the preset or the quality is out of range, or the rates contradict each other.
        Unsupported: no NVENC takes the format, the rate mode or one of the options.
        EngineUnfit: this device's does not.
    """
    codec = request.codec
    surface = surface_format(picture.pix_fmt)
    reason = nvenc_unsupported_reason(codec, picture)
    if reason or surface is None:
        raise Unsupported(reason, "docs/nvenc.md lists what it takes; change --codec, --pix-fmt or --scale.")
    profile = NVENC_PROFILES[codec]
    effort = _EFFORTS[preset_index(request.preset)]
    rate = profile.settled_rate(request.rate)
    # Groups of pictures have one length and begin with an IDR picture, so every one is closed.
    frames = gop_frames(picture.frame_rate)
    ours = _rate_options(rate) | {
        "preset": effort.preset,
        "bf": min(effort.b_frames, capabilities.b_frames_max),
        "multipass": effort.multipass,
        "lookahead": effort.lookahead if capabilities.has("lookahead") else None,
        "aq": 0 if effort.adaptive else None,
        "fps": picture.frame_rate,
        "gop": frames,
        "idrperiod": frames,
    }
    if codec is not Codec.AV1:
        ours["repeatspspps"] = False
    given = dict(request.options)
    chosen = _with_modes(ours, given, request.rate) if request.single_session else ours | given
    settings = NvencSettings(**({"codec": codec} | chosen))
    capabilities.check(settings, surface, picture.width, picture.height)
    return EncoderSettings(
        codec=codec,
        implementation=profile.implementation,
        nvenc=settings,
        format=picture,
        time_base=time_base,
        threads=1,
        rate=rate,
    )


def nvenc_kind(settings: NvencSettings, *, package: str, architecture: str, driver_branch: str) -> str:
    """Return what the output's bytes depend on besides the pictures, as one stable line.

    Two GPUs of one architecture and driver branch are assumed to give the same bytes (neither documented nor measured).
    """
    name = NVENC_PROFILES[settings.codec].implementation
    options = " ".join(f"{key}={value}" for key, value in settings_to_options(settings))
    return f"{name} PyNvVideoCodec-{package} {architecture} r{driver_branch} {options}"


def _rate_options(rate: RateControl) -> dict[str, Any]:
    if rate.bitrate_bps is not None:
        buffer_bits = rate.bufsize_bits or _BUFFER_S * rate.bitrate_bps
        return {
            "rc": RateMode.VBR,
            "bitrate": rate.bitrate_bps,
            "maxbitrate": rate.maxrate_bps or _PEAK_SHARE * rate.bitrate_bps,
            "vbvbufsize": buffer_bits,
            "vbvinit": int(buffer_bits * INITIAL_FULLNESS),
        }
    if rate.maxrate_bps is not None:
        message = "NVENC has no maximum rate beside a quality: PyNvVideoCodec erases it"
        raise Unsupported(message, "Use --bitrate with --maxrate and --bufsize, or --quality alone.")
    return {"rc": RateMode.VBR, "cq": rate.quality}


def _with_modes(ours: dict[str, Any], given: Mapping[str, NvencValue], rate: RateControl | None) -> dict[str, Any]:
    """Lay a single session's settings over ours, without those of ours that contradict them."""
    is_lossless = given.get("tuning_info") is TuningInfo.LOSSLESS
    mode = given.get("rc", RateMode.CONSTQP if "constqp" in given or is_lossless else RateMode.VBR)
    steers = "cq" in given or "bitrate" in given or mode is RateMode.CONSTQP
    if rate is not None and (steers or (mode is RateMode.CBR and rate.quality is not None)):
        listed = ", ".join(f"{key}={write_option(key, value)}" for key, value in given.items())
        raise UsageError(f"a quality or bitrate contradicts the encoder options {listed}", "Give one of them.")
    dropped = _overruled(mode, given, is_lossless=is_lossless)
    kept = {key: value for key, value in ours.items() if key not in dropped} | {"rc": mode}
    period = given.get("gop") or given.get("idrperiod")
    lossless = {"constqp": Qp.same(0)} if is_lossless else {}
    return kept | lossless | ({"gop": period, "idrperiod": period} if period else {}) | dict(given)


def _overruled(mode: NvencValue, given: Mapping[str, NvencValue], *, is_lossless: bool) -> tuple[str, ...]:
    """Return those of our settings that a mode, or given rates, exclude."""
    if mode is RateMode.CONSTQP:
        # The driver decides how many B pictures a lossless stream may have.
        return (*_STEERED, "bf") if is_lossless else _STEERED
    if "cq" in given or "bitrate" in given:
        return _RATES
    if mode is RateMode.CBR:
        return ("cq", "maxbitrate", "vbvbufsize", "vbvinit")
    return ("vbvinit",) if "vbvbufsize" in given else ()
