"""Turns a request's quality, rates and preset into the settings of one NVENC encoder.

Devices that lack a feature (B pictures, look-ahead) form their own encoder kind, and never share a track with other
devices. Sources: PyNvVideoCodec programming guide, 2.4 and 2.5; advice of the Video Codec SDK. Nothing was measured on
NVENC.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from ...errors import EngineUnfit, Unsupported, UsageError
from ..encode.nvenc_settings import Multipass, NvencSettings, Preset, Qp, RateMode, TuningInfo
from ..encode.profiles import INITIAL_FULLNESS, NVENC_PROFILES, Options, gop_frames, preset_index
from ..encode.settings import Codec, EncoderSettings, RateControl
from ..encode.target import QualityTarget
from ..media.values import BYTE_BITS, VideoFormat
from ..surfaces.formats import SurfaceFormat, surface_format
from .nvenc_options import NvencValue, read_option, settings_to_options, write_option
from .software import settled_target

_RATE_MODE_BITS: Final = {RateMode.VBR: 1, RateMode.CBR: 2}
"""NV_ENC_PARAMS_RC_MODE, as in NV_ENC_CAPS_SUPPORTED_RATECONTROL_MODES; constqp is 0 and always supported."""
SOFTWARE_STEP: Final = "Use other settings, another GPU, or a software encoder."
_NO_GOP_FRAMES: Final = (1 << 32) - 1
"""NVENC_INFINITE_GOPLENGTH of nvEncodeAPI.h: the encoder makes only the requested keyframes."""
_PEAK_SHARE, _BUFFER_S = 2, 4
"""The values without --maxrate: the ratio of peak to average rate, and the decoder's buffer in seconds at the average
rate.
"""
_RESERVED: Final[Mapping[str, str]] = {
    "codec": "use the codec of the request",
    "fps": "the pictures determine it",
    "repeatspspps": "codecfleet chooses the layout of parameter sets",
}
"""The settings that no request may have, with the reasons."""
_OF_ONE_SESSION: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("rc", "bitrate", "maxbitrate", "vbvbufsize", "vbvinit", "cq", "constqp"),
        "use --quality, --bitrate, --maxrate and --bufsize",
    ),
    **dict.fromkeys(("gop", "idrperiod"), "each segment and each group of pictures must begin with an IDR picture"),
    "timinginfo": "pictures are shown at the source's times",
}
"""The settings that codecfleet chooses for a job of many segments; ``encode``, with one session, accepts them."""
_RATES: Final = ("cq", "bitrate", "maxbitrate", "vbvbufsize", "vbvinit")
_STEERED: Final = (*_RATES, "multipass", "lookahead", "aq")


@dataclass(frozen=True, slots=True)
class EncoderCapabilities:
    """The driver's NV_ENC_CAPS for one codec on one device, keyed by the package's names."""

    codec: Codec
    values: Mapping[str, int]

    def has(self, name: str) -> bool:
        """Return whether the device has a capability; False if the package does not know it."""
        return bool(self.values.get(f"support_{name}", 0))

    def most(self, name: str, unknown: int) -> int:
        """Return the device's limit ``name``, or ``unknown`` if the package does not know this limit."""
        return int(self.values.get(name, unknown))

    @property
    def b_frames_max(self) -> int:
        """How many B pictures may come in a row."""
        return self.most("num_max_bframes", 0)

    def check(self, settings: NvencSettings, surface: SurfaceFormat, width: int, height: int) -> None:
        """Raise ``EngineUnfit``, naming what is missing, if the device cannot encode pictures in this way."""
        least = (self.most("width_min", 1), self.most("height_min", 1))
        most = (self.most("width_max", width), self.most("height_max", height))
        if not (least[0] <= width <= most[0] and least[1] <= height <= most[1]):
            limits = f"{least[0]}x{least[1]} to {most[0]}x{most[1]}"
            message = f"this GPU's {self.codec} encoder takes pictures of {limits}, not {width}x{height}"
            raise EngineUnfit(message, "Scale with --scale, or use a software encoder.")
        lacking = [what for what, there in self._demands(settings, surface) if not there]
        if lacking:
            raise EngineUnfit(f"this GPU's {self.codec} encoder lacks {' and '.join(lacking)}", SOFTWARE_STEP)

    def _demands(self, settings: NvencSettings, surface: SurfaceFormat) -> list[tuple[str, bool]]:
        wanted = settings.bf or 0
        bit = _RATE_MODE_BITS.get(settings.rc, 0)
        modes = self.most("supported_ratecontrol_modes", bit)
        references = max(settings.numrefl0 or 0, settings.numrefl1 or 0)
        return [
            ("10-bit samples", surface.bits == BYTE_BITS or self.has("10bit_encode")),
            ("4:2:2 chroma", surface.chroma != "4:2:2" or self.has("yuv422_encode")),
            ("4:4:4 chroma", surface.chroma != "4:4:4" or self.has("yuv444_encode")),
            (f"{wanted} B pictures in a row", wanted <= self.b_frames_max),
            (f"rate control {settings.rc}", modes & bit == bit),
            ("look-ahead", not settings.lookahead or self.has("lookahead")),
            ("temporal adaptive quantization", not settings.temporalaq or self.has("temporal_aq")),
            ("several reference pictures", references <= 1 or self.has("multiple_ref_frames")),
            ("a decoder buffer of chosen size", settings.vbvbufsize is None or self.has("custom_vbv_buf_size")),
            ("lossless coding", settings.tuning_info is not TuningInfo.LOSSLESS or self.has("lossless_encode")),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class NvencRequest:
    """A request for NVENC on any device; made by ``nvenc_request``."""

    codec: Codec
    rate: RateControl | None = None  # None means the codec's default quality
    preset: int = 4
    # named as in NVENC (docs/nvenc.md); these values override codecfleet's own
    options: tuple[tuple[str, NvencValue], ...] = ()
    single_session: bool = False  # whether one session encodes the whole output
    keyframe_interval_s: Fraction | None = None  # if set, the encoder makes only the requested keyframes
    target: QualityTarget | None = None  # if set, each segment has the CQ that reaches this


_EFFORTS: Final[tuple[dict[str, Any], ...]] = (
    {"preset": Preset.P1, "bf": 0},
    {"preset": Preset.P2, "bf": 0},
    {"preset": Preset.P3, "bf": 2},
    {"preset": Preset.P4, "bf": 3, "multipass": Multipass.QUARTER, "aq": 0},
    {"preset": Preset.P5, "bf": 3, "multipass": Multipass.QUARTER, "lookahead": 16, "aq": 0},
    {"preset": Preset.P6, "bf": 3, "multipass": Multipass.FULL, "lookahead": 16, "aq": 0},
    {"preset": Preset.P7, "bf": 4, "multipass": Multipass.FULL, "lookahead": 24, "aq": 0},
)
"""The settings of codecfleet's presets 1 to 7, for devices that support the settings."""


def nvenc_request(
    codec: Codec,
    *,
    rate: RateControl | None = None,
    preset: int = 4,
    options: Options = (),
    single_session: bool = False,
    keyframe_interval_s: Fraction | None = None,
    target: QualityTarget | None = None,
) -> NvencRequest:
    """Return a request for NVENC, with its options parsed; ``Unsupported`` names a refused option."""
    for key, _ in options:
        if key in _RESERVED:
            raise Unsupported(f"NVENC setting {key} cannot be set: {_RESERVED[key]}", "Leave the setting out.")
        if key in _OF_ONE_SESSION and not single_session:
            message = f"a job cannot set the NVENC setting {key}: {_OF_ONE_SESSION[key]}"
            raise Unsupported(message, "Leave the setting out, or encode frames with codecfleet.encode.")
        if key == "lookahead" and keyframe_interval_s is not None:
            message = "NVENC's look-ahead adds keyframes at scene changes, which --keyframe-interval excludes"
            raise Unsupported(message, "Leave lookahead out.")
    read = tuple((key, read_option(key, text)) for key, text in options)
    return NvencRequest(
        codec=codec,
        rate=rate,
        preset=preset,
        options=read,
        single_session=single_session,
        keyframe_interval_s=keyframe_interval_s,
        target=target,
    )


def nvenc_unsupported_reason(codec: Codec, picture: VideoFormat) -> str:
    """Return why no NVENC can encode pictures like ``picture``; "" if there is no known reason."""
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
    """Return NVENC's settings for a device and pictures like ``picture``; raises the errors of ``settle``."""
    codec = request.codec
    surface = surface_format(picture.pix_fmt)
    reason = nvenc_unsupported_reason(codec, picture)
    if reason or surface is None:
        raise Unsupported(reason, "Change --codec, --pix-fmt or --scale; docs/nvenc.md lists what NVENC encodes.")
    profile = NVENC_PROFILES[codec]
    effort = _EFFORTS[preset_index(request.preset)]
    rate = profile.settled_rate(request.rate)
    # Groups of pictures have one length and begin with an IDR picture, so every group is closed.
    interval_s = request.keyframe_interval_s
    frames = gop_frames(picture.frame_rate) if interval_s is None else _NO_GOP_FRAMES
    ours = _rate_options(rate) | effort | {"fps": picture.frame_rate, "gop": frames, "idrperiod": frames}
    ours["bf"] = min(effort["bf"], capabilities.b_frames_max)
    if not capabilities.has("lookahead") or interval_s is not None:
        # With look-ahead the driver adds intra pictures at scene changes (NV_ENC_RC_PARAMS, disableIadapt).
        ours["lookahead"] = None
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
        keyframe_interval_s=interval_s,
        target=None if request.target is None else settled_target(request.target, profile, picture),
    )


def nvenc_kind(settings: NvencSettings, *, package: str, architecture: str, driver_branch: str) -> str:
    """Return one stable line with everything, apart from the pictures, that the output's bytes depend on."""
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
        message = "NVENC has no maximum rate with a quality: PyNvVideoCodec drops the rate"
        raise Unsupported(message, "Use --bitrate with --maxrate and --bufsize, or only --quality.")
    return {"rc": RateMode.VBR, "cq": rate.quality}


def _with_modes(ours: dict[str, Any], given: dict[str, NvencValue], rate: RateControl | None) -> dict[str, Any]:
    """Return a single session's settings: the given settings, and codecfleet's defaults that do not contradict them."""
    is_lossless = given.get("tuning_info") is TuningInfo.LOSSLESS
    mode = given.get("rc", RateMode.CONSTQP if "constqp" in given or is_lossless else RateMode.VBR)
    steers = "cq" in given or "bitrate" in given or mode is RateMode.CONSTQP
    if rate is not None and (steers or (mode is RateMode.CBR and rate.quality is not None)):
        listed = ", ".join(f"{key}={write_option(key, value)}" for key, value in given.items())
        raise UsageError(f"a quality or bitrate contradicts the encoder options {listed}", "Give one of them.")
    dropped = _overruled(mode, given, is_lossless=is_lossless)
    found = {key: value for key, value in ours.items() if key not in dropped} | {"rc": mode}
    if is_lossless:
        found["constqp"] = Qp.same(0)
    if period := given.get("gop") or given.get("idrperiod"):
        found |= {"gop": period, "idrperiod": period}
    return found | given


def _overruled(mode: NvencValue, given: Mapping[str, NvencValue], *, is_lossless: bool) -> tuple[str, ...]:
    """Return the names of codecfleet's settings that a mode or given rates exclude."""
    if mode is RateMode.CONSTQP:
        # The driver chooses how many B pictures a lossless stream has.
        return (*_STEERED, "bf") if is_lossless else _STEERED
    if "cq" in given or "bitrate" in given:
        return _RATES
    if mode is RateMode.CBR:
        return ("cq", "maxbitrate", "vbvbufsize", "vbvinit")
    return ("vbvinit",) if "vbvbufsize" in given else ()
