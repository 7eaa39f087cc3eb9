"""Every setting of an NVENC encoder that PyNvVideoCodec 2.2.4 passes to the driver, typed and checked.

The package drops unknown keys and misreads some keys (docs/nvenc.md), so ``CreateEncoder`` gets only these settings.
Sources: the package's programming guide, 2.5, table 1; its code on a simulated driver; nvEncodeAPI.h for combinations.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Final, TypeAlias

from ...errors import Unsupported
from .settings import Codec


class Preset(StrEnum):
    """The presets, from fastest to best (programming guide, section 2.4); the package takes only upper case."""

    P1, P2, P3, P4, P5, P6, P7 = "P1", "P2", "P3", "P4", "P5", "P6", "P7"


class TuningInfo(StrEnum):
    """The tuning of a preset (programming guide, section 2.4)."""

    HIGH_QUALITY = "high_quality"
    LOW_LATENCY = "low_latency"
    ULTRA_LOW_LATENCY = "ultra_low_latency"
    LOSSLESS = "lossless"
    ULTRA_HIGH_QUALITY = "uhq"
    """Absent from the older programming guide; only HEVC and AV1 have this tuning."""


class RateMode(StrEnum):
    """NVENC's modes of rate control: constant bitrate, variable bitrate, constant quantizers."""

    CBR = "cbr"
    VBR = "vbr"
    CONSTQP = "constqp"


class Multipass(StrEnum):
    """Whether NVENC analyses each picture in a first pass, and at which resolution."""

    QUARTER = "qres"
    FULL = "fullres"


class Tier(IntEnum):
    """The tiers of HEVC and AV1, with the driver's numbers."""

    MAIN = 0
    HIGH = 1


@dataclass(frozen=True, slots=True)
class Qp:
    """Quantizers by picture kind, in the driver's order (NV_ENC_QP)."""

    inter_p: int
    inter_b: int
    intra: int

    @classmethod
    def same(cls, value: int) -> "Qp":
        """Return quantizers that have the same value for all kinds of pictures."""
        return cls(value, value, value)

    @property
    def values(self) -> tuple[int, int, int]:
        """The values for P, B and intra pictures."""
        return (self.inter_p, self.inter_b, self.intra)


@dataclass(frozen=True, slots=True)
class TimingInfo:
    """Timing in the parameter sets (annex E): a tick takes ``num_unit_in_ticks / timescale`` seconds."""

    num_unit_in_ticks: int
    timescale: int


def _levels(unit: int, minors: tuple[int, ...]) -> dict[str, int]:
    """Return the driver's number of each level, 10 * ``unit`` times the level.

    ``minors`` has the number of minor levels of each major level, from 1 on.
    """
    return {
        f"{major}.{minor}".removesuffix(".0"): unit * (10 * major + minor)
        for major, count in enumerate(minors, 1)
        for minor in range(count)
    }


LEVELS: Final = {
    Codec.H264: {"1b": 9} | _levels(1, (4, 3, 3, 3, 3, 3)),
    Codec.HEVC: _levels(3, (1, 2, 2, 2, 3, 3)),
    Codec.AV1: {f"{number // 4 + 2}.{number % 4}".removesuffix(".0"): number for number in range(24)},
}
"""The driver's number (NV_ENC_LEVEL) of each level, keyed by the package's name."""

_MOST_UINT32: Final = 2**32 - 1
_QP_MAX: Final = {Codec.H264: 51, Codec.HEVC: 51, Codec.AV1: 255}
_CQ_MAX: Final = {Codec.H264: 51, Codec.HEVC: 51, Codec.AV1: 63}
_WINDOW_FRAMES: Final = 31
_RANGES: Final = {
    **dict.fromkeys(("bitrate", "maxbitrate", "vbvbufsize", "vbvinit", "gop", "idrperiod"), (1, _MOST_UINT32)),
    "aq": (0, 15),
    **dict.fromkeys(("numrefl0", "numrefl1"), (0, 6)),  # the driver also has level 7, which the package drops
    "bf": (0, _WINDOW_FRAMES),
    "lookahead": (1, _WINDOW_FRAMES),
}
_STEERING: Final = (
    *("bitrate", "maxbitrate", "vbvbufsize", "vbvinit", "initqp", "qmax"),
    *("cq", "multipass", "lookahead"),
)
_Rule: TypeAlias = tuple[bool, str, str]
"""A rule as (whether it is broken, the message, the next step)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvencSettings:
    """The settings of an NVENC encoder, without the size and format of pictures.

    None leaves a setting to the preset. docs/nvenc.md has the meaning and range of every setting.

    Raises:
            Unsupported: a value is out of range, or two values contradict each other; the message names them.
    """

    codec: Codec = Codec.H264
    preset: Preset = Preset.P4
    tuning_info: TuningInfo = TuningInfo.HIGH_QUALITY
    rc: RateMode = RateMode.VBR
    bitrate: int | None = None  # in bit/s
    maxbitrate: int | None = None  # in bit/s
    vbvbufsize: int | None = None  # the decoder's buffer, in bits
    vbvinit: int | None = None  # how full the decoder's buffer is at the beginning, in bits
    fps: Fraction = Fraction(30)  # pictures a second, for rate control; never changes a timestamp
    cq: int | None = None
    constqp: Qp | None = None
    initqp: Qp | None = None
    qmax: Qp | None = None
    gop: int | None = None  # in pictures
    idrperiod: int | None = None  # in pictures
    bf: int | None = None  # in pictures
    numrefl0: int | None = None
    numrefl1: int | None = None
    multipass: Multipass | None = None
    lookahead: int | None = None  # in pictures
    aq: int | None = None  # the strength of adaptive quantization; 0 lets the driver choose
    temporalaq: bool = False  # False leaves the setting to the preset
    ldkfs: bool = False  # False leaves the setting to the preset
    timinginfo: TimingInfo | None = None
    level: str | None = None
    tier: Tier | None = None
    repeatspspps: bool | None = None  # parameter sets: True before every IDR picture (the default), False out of band

    def __post_init__(self) -> None:
        if self.codec is Codec.VP9:
            raise Unsupported("NVENC has no VP9 encoder", "NVENC encodes h264, hevc and av1.")
        self._check_ranges()
        for rules in (self._rate_rules, self._structure_rules, self._codec_rules):
            for is_broken, message, next_step in rules():
                if is_broken:
                    raise Unsupported(message, next_step)

    def _check_ranges(self) -> None:
        for name, (least, most) in (_RANGES | {"cq": (1, _CQ_MAX[self.codec])}).items():
            _check_range(name, getattr(self, name), least, most)
        for name in ("constqp", "initqp", "qmax"):
            for value in qp.values if (qp := getattr(self, name)) is not None else ():
                _check_range(name, value, 0, _QP_MAX[self.codec])
        if self.timinginfo is not None:
            for name in ("num_unit_in_ticks", "timescale"):
                _check_range(f"timinginfo {name}", getattr(self.timinginfo, name), 1, _MOST_UINT32)
        for term in self.fps.as_integer_ratio():
            _check_range("fps", term, 1, _MOST_UINT32)

    def _rate_rules(self) -> Iterator[_Rule]:
        rc, bitrate, peak = self.rc, self.bitrate, self.maxbitrate
        if rc is RateMode.CONSTQP:
            quantizers = "Give quantizers: one, or three for P, B and intra pictures."
            yield self.constqp is None, "rc=constqp needs constqp", quantizers
            for name in _STEERING:
                message = f"{name} controls a bitrate, and rc=constqp has none"
                yield self._has(name), message, f"Leave {name} out, or use rc=vbr."
            return
        yield self._has("constqp"), f"constqp has no effect with rc={rc}", "Use rc=constqp, or initqp and qmax."
        lossless = self.tuning_info is TuningInfo.LOSSLESS
        yield lossless, f"tuning_info=lossless contradicts rc={rc}", "Use rc=constqp with constqp=0."
        if self.cq is not None:
            yield rc is not RateMode.VBR, f"cq is a target of vbr, not of {rc}", "Use rc=vbr."
            for name in ("bitrate", "maxbitrate"):
                yield self._has(name), f"cq erases {name}", f"Give cq or {name}, not both."
        elif bitrate is None:
            yield True, f"rc={rc} needs a bitrate or cq", "Give bitrate in bit/s, or cq with rc=vbr."
        if bitrate is not None and peak is not None:
            peaks = rc is RateMode.CBR and peak != bitrate
            yield peaks, "rc=cbr has no maxbitrate other than its bitrate", "Leave maxbitrate out, or use rc=vbr."
            yield peak < bitrate, f"maxbitrate {peak} is below bitrate {bitrate}", "Raise maxbitrate or lower bitrate."
        overflows = self.vbvinit is not None and (self.vbvbufsize is None or self.vbvinit > self.vbvbufsize)
        yield overflows, f"vbvinit {self.vbvinit} does not fit vbvbufsize {self.vbvbufsize}", "Raise vbvbufsize."

    def _structure_rules(self) -> Iterator[_Rule]:
        gop, frames_b = self.gop, self.bf or 0
        uneven = bool(self.idrperiod is not None and gop is not None and self.idrperiod % gop)
        yield uneven, f"idrperiod {self.idrperiod} is not a multiple of gop {gop}", "Make them equal."
        is_full = gop is not None and frames_b >= gop
        yield is_full, f"bf {frames_b} does not fit a gop of {gop}", "Raise gop or lower bf."
        limit = _WINDOW_FRAMES - frames_b
        message = f"lookahead {self.lookahead} exceeds {limit}, the most with bf {frames_b}"
        yield (self.lookahead or 0) > limit, message, "Lower lookahead or bf."
        message = "numrefl1 needs B pictures, and bf is 0"
        yield bool(self.numrefl1) and self.bf == 0, message, "Raise bf, or leave numrefl1 out."

    def _codec_rules(self) -> Iterator[_Rule]:
        codec, tuning, levels = self.codec, self.tuning_info, LEVELS[self.codec]
        unknown = self.level is not None and self.level not in levels
        yield unknown, f"{codec} has no level {self.level}", f"It has {', '.join(levels)}."
        is_lossless = tuning is TuningInfo.LOSSLESS
        if codec is Codec.AV1:
            yield self._has("timinginfo"), "timinginfo is for h264 and hevc", "Leave timinginfo out."
            yield is_lossless, "NVENC has no lossless AV1", "Use h264 or hevc."
            message = "av1 always repeats its sequence header"
            yield self.repeatspspps is False, message, "Leave repeatspspps out."
        if codec is Codec.H264:
            yield self._has("tier"), "h264 has no tiers", "Leave tier out."
            is_uhq = tuning is TuningInfo.ULTRA_HIGH_QUALITY
            yield is_uhq, "tuning_info=uhq is for hevc and av1", "Use tuning_info=high_quality."
        yield is_lossless and self.constqp != Qp.same(0), "tuning_info=lossless needs constqp=0", "Use constqp=0."

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None


def _check_range(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        message = f"{name} {value} is outside {least} to {most}"
        raise Unsupported(message, f"Give a number from {least} to {most}.")
