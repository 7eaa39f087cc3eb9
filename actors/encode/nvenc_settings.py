"""Every setting of an NVENC encoder that PyNvVideoCodec 2.2.4 passes to the driver: typed, closed and checked.

The package silently drops unknown keys and misreads some known ones (docs/nvenc.md has the table), so all keys for
``CreateEncoder`` are made from an ``NvencSettings``, whose fields have the package's names. Sources: PyNvVideoCodec
programming guide, section 2.5, table 1; the driver's structures, as the package's code fills them on a simulated
driver; combinations are those of the Video Codec SDK's nvEncodeAPI.h (NV_ENC_RC_PARAMS, NV_ENC_CONFIG).
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Final

from ...errors import Unsupported
from .settings import Codec


class Preset(StrEnum):
    """From fastest to best (guide, section 2.4); the package takes them in upper case only."""

    P1 = "P1"
    P2 = "P2"
    P3 = "P3"
    P4 = "P4"
    P5 = "P5"
    P6 = "P6"
    P7 = "P7"


class TuningInfo(StrEnum):
    """A preset's tuning (guide, section 2.4)."""

    HIGH_QUALITY = "high_quality"
    LOW_LATENCY = "low_latency"
    ULTRA_LOW_LATENCY = "ultra_low_latency"
    LOSSLESS = "lossless"
    ULTRA_HIGH_QUALITY = "uhq"
    """Newer than the guide; HEVC and AV1."""


class RateMode(StrEnum):
    """The rate control mode."""

    CBR = "cbr"
    VBR = "vbr"
    CONSTQP = "constqp"


class Multipass(StrEnum):
    """The resolution of a first pass."""

    QUARTER = "qres"
    FULL = "fullres"


class Tier(IntEnum):
    """Tier of HEVC and AV1, by the driver's numbers."""

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
        """Return one value for all kinds."""
        return cls(value, value, value)

    @property
    def values(self) -> tuple[int, int, int]:
        """P, B and intra."""
        return (self.inter_p, self.inter_b, self.intra)


@dataclass(frozen=True, slots=True)
class TimingInfo:
    """Timing in the parameter sets (H.264 and H.265, annex E)."""

    num_unit_in_ticks: int
    timescale: int


def _levels(unit: int, minors: tuple[int, ...]) -> dict[str, int]:
    """Return levels 1 to 6, each with that many minor ones, as ``unit`` tenths."""
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
"""The driver's number (NV_ENC_LEVEL) of each level, by the package's name."""

_MOST_UINT32: Final = 2**32 - 1
_QP_MAX: Final = {Codec.H264: 51, Codec.HEVC: 51, Codec.AV1: 255}
_CQ_MAX: Final = {Codec.H264: 51, Codec.HEVC: 51, Codec.AV1: 63}
_STRONGEST_AQ, _WINDOW_FRAMES = 15, 31
_MOST_REFERENCES: Final = 6
"""NV_ENC_NUM_REF_FRAMES goes to 7, which the package drops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvencSettings:
    """One NVENC encoder, without the size and format of its pictures. None leaves a setting to the preset.

    Args:
        codec: h264, hevc or av1.
        preset: speed against quality.
        tuning_info: what the preset is tuned for.
        rc: always sent; the guide's default is cbr, the package's depends on the preset.
        bitrate: average, in bit/s; not beside ``cq``, which erases it.
        maxbitrate: peak of vbr, in bit/s; not beside ``cq``, which erases it.
        vbvbufsize: the decoder's buffer, in bits.
        vbvinit: its initial fullness, in bits.
        fps: nominal rate, for rate control and headers; it never changes a timestamp.
        cq: target quality of vbr, 1 (best) to 51, of AV1 to 63.
        constqp: quantizers of constqp, 0 to 51, of AV1 to 255.
        initqp: quantizers that vbr and cbr start with.
        qmax: highest quantizers that vbr and cbr may use.
        gop: distance of I pictures.
        idrperiod: distance of IDR pictures, a multiple of ``gop``.
        bf: B pictures between two others.
        numrefl0: most references to the past, up to 6; 0 leaves it to the driver.
        numrefl1: most references to the future, up to 6; 0 leaves it to the driver.
        multipass: first pass of cbr and vbr.
        lookahead: pictures that rate control looks ahead, 1 to 31 less ``bf``.
        aq: strength of spatial adaptive quantization, 1 to 15; 0 switches it on and lets the driver choose.
        temporalaq: temporal adaptive quantization; False leaves it to the preset.
        ldkfs: smaller I pictures for low delay (low delay key frame scale), which the package always sends as 1; False
            leaves it to the preset.
        timinginfo: in the parameter sets of H.264 and HEVC.
        level: by its name ("4.1").
        tier: of HEVC and AV1.
        repeatspspps: parameter sets before every IDR picture too (the package's default, and always for AV1), or only
            out of band.

    Raises:
        Unsupported: a value is out of its range, or two contradict each other; the message names them.
    """

    codec: Codec = Codec.H264
    preset: Preset = Preset.P4
    tuning_info: TuningInfo = TuningInfo.HIGH_QUALITY
    rc: RateMode = RateMode.VBR
    bitrate: int | None = None
    maxbitrate: int | None = None
    vbvbufsize: int | None = None
    vbvinit: int | None = None
    fps: Fraction = Fraction(30)
    cq: int | None = None
    constqp: Qp | None = None
    initqp: Qp | None = None
    qmax: Qp | None = None
    gop: int | None = None
    idrperiod: int | None = None
    bf: int | None = None
    numrefl0: int | None = None
    numrefl1: int | None = None
    multipass: Multipass | None = None
    lookahead: int | None = None
    aq: int | None = None
    temporalaq: bool = False
    ldkfs: bool = False
    timinginfo: TimingInfo | None = None
    level: str | None = None
    tier: Tier | None = None
    repeatspspps: bool | None = None

    def __post_init__(self) -> None:
        if self.codec is Codec.VP9:
            _refuse("NVENC has no VP9 encoder", "It encodes h264, hevc and av1.")
        self._check_ranges()
        self._check_rate()
        self._check_structure()
        self._check_codec()

    def _check_ranges(self) -> None:
        limits = dict.fromkeys(
            ("bitrate", "maxbitrate", "vbvbufsize", "vbvinit", "gop", "idrperiod"), (1, _MOST_UINT32)
        )
        limits |= {"cq": (1, _CQ_MAX[self.codec]), "aq": (0, _STRONGEST_AQ), "numrefl0": (0, _MOST_REFERENCES)}
        limits |= {"numrefl1": (0, _MOST_REFERENCES), "bf": (0, _WINDOW_FRAMES), "lookahead": (1, _WINDOW_FRAMES)}
        for name, (least, most) in limits.items():
            _check_range(name, getattr(self, name), least, most)
        for name in ("constqp", "initqp", "qmax"):
            for value in qp.values if (qp := getattr(self, name)) is not None else ():
                _check_range(name, value, 0, _QP_MAX[self.codec])
        if self.timinginfo is not None:
            for name in ("num_unit_in_ticks", "timescale"):
                _check_range(f"timinginfo {name}", getattr(self.timinginfo, name), 1, _MOST_UINT32)
        for term in self.fps.as_integer_ratio():
            _check_range("fps", term, 1, _MOST_UINT32)

    def _check_rate(self) -> None:
        steered = [n for n in ("bitrate", "maxbitrate", "vbvbufsize", "vbvinit", "initqp", "qmax") if self._has(n)]
        if self.rc is RateMode.CONSTQP:
            if self.constqp is None:
                _refuse("rc=constqp needs constqp", "Give its quantizers: one, or three for P, B and intra pictures.")
            for name in (*steered, *(n for n in ("cq", "multipass", "lookahead") if self._has(n))):
                _refuse(f"{name} steers a bitrate, and rc=constqp has none", f"Leave {name} out, or use rc=vbr.")
            return
        if self.constqp is not None:
            _refuse(f"constqp does nothing beside rc={self.rc}", "Use rc=constqp, or initqp and qmax.")
        if self.tuning_info is TuningInfo.LOSSLESS:
            _refuse(f"tuning_info=lossless cannot keep to rc={self.rc}", "Use rc=constqp with constqp=0.")
        self._check_bitrates()

    def _check_bitrates(self) -> None:
        if self.cq is not None:
            if self.rc is not RateMode.VBR:
                _refuse(f"cq is a target of vbr, not of {self.rc}", "Use rc=vbr.")
            for name in ("bitrate", "maxbitrate"):
                if self._has(name):
                    _refuse(f"cq erases {name}", f"Give cq or {name}, not both.")
        elif self.bitrate is None:
            _refuse(f"rc={self.rc} needs a bitrate or cq", "Give bitrate in bit/s, or cq with rc=vbr.")
        if self.bitrate is not None and self.maxbitrate is not None:
            if self.rc is RateMode.CBR and self.maxbitrate != self.bitrate:
                _refuse("cbr has no peak beside its bitrate", "Leave maxbitrate out, or use rc=vbr.")
            if self.maxbitrate < self.bitrate:
                _refuse(f"maxbitrate {self.maxbitrate} is below bitrate {self.bitrate}", "Raise it or lower bitrate.")
        if self.vbvinit is not None and (self.vbvbufsize is None or self.vbvinit > self.vbvbufsize):
            _refuse(f"vbvinit {self.vbvinit} does not fit vbvbufsize {self.vbvbufsize}", "Raise vbvbufsize.")

    def _check_structure(self) -> None:
        if self.idrperiod is not None and self.gop is not None and self.idrperiod % self.gop:
            _refuse(f"idrperiod {self.idrperiod} is not a multiple of gop {self.gop}", "Make them equal.")
        frames_b = self.bf or 0
        if self.gop is not None and frames_b >= self.gop:
            _refuse(f"bf {frames_b} does not fit a gop of {self.gop}", "Raise gop or lower bf.")
        if frames_b + (self.lookahead or 0) > _WINDOW_FRAMES:
            limit = _WINDOW_FRAMES - frames_b
            _refuse(f"lookahead {self.lookahead} beside bf {frames_b} exceeds {limit}", "Lower lookahead or bf.")
        if self.numrefl1 and self.bf == 0:
            _refuse("numrefl1 needs B pictures, and bf is 0", "Raise bf, or leave numrefl1 out.")

    def _check_codec(self) -> None:
        if self.level is not None and self.level not in LEVELS[self.codec]:
            _refuse(f"{self.codec} has no level {self.level}", f"It has {', '.join(LEVELS[self.codec])}.")
        if self.tier is not None and self.codec is Codec.H264:
            _refuse("h264 has no tiers", "Leave tier out.")
        if self.codec is Codec.AV1:
            self._check_av1()
        if self.tuning_info is TuningInfo.ULTRA_HIGH_QUALITY and self.codec is Codec.H264:
            _refuse("tuning_info=uhq is for hevc and av1", "Use tuning_info=high_quality.")
        if self.tuning_info is TuningInfo.LOSSLESS and self.constqp != Qp.same(0):
            _refuse("tuning_info=lossless needs constqp=0", "Use constqp=0.")

    def _check_av1(self) -> None:
        if self.timinginfo is not None:
            _refuse("timinginfo is for h264 and hevc", "Leave timinginfo out.")
        if self.tuning_info is TuningInfo.LOSSLESS:
            _refuse("NVENC has no lossless AV1", "Use h264 or hevc.")
        if self.repeatspspps is False:
            _refuse("av1 always repeats its sequence header", "Leave repeatspspps out.")

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None


def _check_range(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        _refuse(f"{name} {value} is outside {least} to {most}", f"Give a number from {least} to {most}.")


def _refuse(message: str, next_step: str) -> None:
    raise Unsupported(message, next_step)
