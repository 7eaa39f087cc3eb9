"""Each encoder's presets, quality scale and pixel formats. docs/encoders.md has the same tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from ...errors import UsageError
from .settings import Codec, RateControl, check_rate

Options = tuple[tuple[str, str], ...]

PRESETS = range(1, 8)
"""1 is the fastest preset, 7 the slowest."""
INITIAL_FULLNESS: Final = Fraction(9, 10)
"""How full the leaky bucket is by default when a segment starts."""
_GOP_S: Final = 10
_LEAST_GOP_FRAMES, _MOST_GOP_FRAMES = 250, 600


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderProfile:
    """One encoder. ``pix_fmts`` are the formats that survive encoding and decoding unchanged."""

    codec: Codec
    implementation: str
    best_quality: int = 0
    default_quality: int
    worst_quality: int
    pix_fmts: tuple[str, ...]
    usual_crfs: tuple[int, int]  # the lowest and the highest CRF that a search for a quality tries by default
    even_crf: int  # films encoded with this CRF usually have about the same quality with every encoder
    crf_step: Fraction = Fraction(1)  # the smallest change of the CRF (NVENC: of the CQ) that the encoder accepts
    mdb_per_crf: int  # how many thousandths of a dB the PSNR usually falls from one CRF to the next

    def settled_rate(self, rate: RateControl | None) -> RateControl:
        """Return the rates of a request, with the default quality if neither quality nor bitrate is given.

        ``UsageError`` if the rates contradict each other, or the quality is out of the encoder's range.
        """
        wanted = RateControl() if rate is None else rate
        check_rate(wanted)
        if wanted.bitrate_bps is not None:
            return wanted
        quality = self.default_quality if wanted.quality is None else wanted.quality
        if not self.best_quality <= quality <= self.worst_quality:
            scale = f"{self.best_quality} to {self.worst_quality}"
            message = f"quality {quality} is outside {self.implementation}'s scale of {scale}"
            raise UsageError(message, "Lower is better.")
        return replace(wanted, quality=quality)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareProfile(EncoderProfile):
    """A software encoder, with its options for each preset."""

    presets: tuple[Options, ...]  # the options for each preset, 1 to 7
    params_key: str | None  # the option for the library's own parameters
    whole_chroma: bool  # whether sizes must be multiples of the chroma subsampling
    shortest_side: int  # the smallest width and height
    fine_crf_step: Fraction = Fraction(1)  # the smallest change of the CRF that a search for a rate makes
    halving_crfs: int  # by how much the CRF usually rises while the bits halve


def preset_index(preset: int) -> int:
    """Return the index of a preset in tables; ``UsageError`` if the preset is not in ``PRESETS``."""
    if preset not in PRESETS:
        raise UsageError(f"preset {preset} is not in {PRESETS[0]}..{PRESETS[-1]}", "1 is fastest, 7 slowest.")
    return preset - PRESETS[0]


def gop_frames(frame_rate: Fraction) -> int:
    """Return the longest distance between keyframes: 10 s, but at least 250 (x264's default) and at most 600 frames."""
    return min(max(_LEAST_GOP_FRAMES, round(_GOP_S * frame_rate)), _MOST_GOP_FRAMES)


def _named(*names: str) -> tuple[Options, ...]:
    return tuple((("preset", name),) for name in names)


_VP9_PRESETS: Final = (("realtime", "8"), ("realtime", "5"), *(("good", speed) for speed in "54210"))
_X26X_PRESETS: Final = _named("ultrafast", "veryfast", "fast", "medium", "slow", "slower", "veryslow")
_YUV_IN_8_AND_10: Final = ("yuv420p", "yuv422p", "yuv444p", "yuv420p10le", "yuv422p10le", "yuv444p10le")

PROFILES: Final[Mapping[Codec, SoftwareProfile]] = {
    Codec.H264: SoftwareProfile(
        codec=Codec.H264,
        implementation="libx264",
        presets=_X26X_PRESETS,
        default_quality=23,
        worst_quality=51,
        params_key="x264-params",
        pix_fmts=(*_YUV_IN_8_AND_10, "gray", "gray10le"),
        whole_chroma=True,
        shortest_side=2,
        usual_crfs=(4, 51),
        crf_step=Fraction(1, 16),
        even_crf=23,
        mdb_per_crf=550,
        fine_crf_step=Fraction(1, 16),
        halving_crfs=5,
    ),
    Codec.HEVC: SoftwareProfile(
        codec=Codec.HEVC,
        implementation="libx265",
        presets=_X26X_PRESETS,
        default_quality=28,
        worst_quality=51,
        params_key="x265-params",
        pix_fmts=(
            *_YUV_IN_8_AND_10,
            *("yuv420p12le", "yuv422p12le", "yuv444p12le"),
            *("gbrp", "gbrp10le", "gbrp12le", "gray", "gray10le", "gray12le"),
        ),
        whole_chroma=True,
        shortest_side=16,
        usual_crfs=(4, 51),
        crf_step=Fraction(1, 16),
        even_crf=21,
        mdb_per_crf=550,
        fine_crf_step=Fraction(1, 16),
        halving_crfs=5,
    ),
    Codec.AV1: SoftwareProfile(
        codec=Codec.AV1,
        implementation="libsvtav1",
        presets=_named("10", "9", "8", "7", "6", "4", "2"),
        default_quality=35,
        worst_quality=63,
        params_key="svtav1-params",
        pix_fmts=("yuv420p", "yuv420p10le"),
        whole_chroma=False,
        shortest_side=4,
        usual_crfs=(4, 63),
        crf_step=Fraction(1, 4),
        even_crf=33,
        mdb_per_crf=250,
        halving_crfs=11,
    ),
    Codec.VP9: SoftwareProfile(
        codec=Codec.VP9,
        implementation="libvpx-vp9",
        presets=tuple((("deadline", deadline), ("cpu-used", speed)) for deadline, speed in _VP9_PRESETS),
        default_quality=33,
        worst_quality=63,
        params_key=None,
        pix_fmts=("yuv420p", "yuv422p", "yuv440p", "yuv444p", "gbrp"),
        whole_chroma=False,
        shortest_side=1,
        usual_crfs=(4, 63),
        even_crf=27,
        mdb_per_crf=300,
        halving_crfs=10,
    ),
}
"""The software encoder of each format."""

NVENC_PIX_FMTS: Final = ("yuv420p", "yuv420p10le", "yuv422p", "yuv422p10le", "yuv444p", "yuv444p10le")
"""The formats that NVENC's surfaces hold exactly; NVENC codes AV1 only in 4:2:0."""

NVENC_PROFILES: Final[Mapping[Codec, EncoderProfile]] = {
    codec: EncoderProfile(
        codec=codec,
        implementation=f"{codec}_nvenc",
        best_quality=1,
        default_quality=default,
        worst_quality=worst,
        pix_fmts=pix_fmts,
        usual_crfs=(1, worst),
        even_crf=default,
        mdb_per_crf=PROFILES[codec].mdb_per_crf,
    )
    for codec, default, worst, pix_fmts in (
        (Codec.H264, 23, 51, NVENC_PIX_FMTS),
        (Codec.HEVC, 26, 51, NVENC_PIX_FMTS),
        (Codec.AV1, 32, 63, NVENC_PIX_FMTS[:2]),
    )
}
"""NVENC's encoder of each format; NVENC has no encoder for VP9."""
