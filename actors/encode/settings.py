"""The final settings of one encoder: a frozen value, equal in every segment of a track.

The settings include everything that can change an output byte, so the same settings and pictures give the same bytes.
"""

import os
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal

from ...errors import UsageError
from ..media.values import VideoFormat

if TYPE_CHECKING:
    from .nvenc_settings import NvencSettings
    from .target import QualityTarget


LEAST_RATE_BPS: Final = 1000
"""The lowest rate: encoders count in kilobits."""


class Codec(StrEnum):
    """A video coding format; the value is its name in options."""

    H264 = "h264"
    HEVC = "hevc"
    AV1 = "av1"
    VP9 = "vp9"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateControl:
    """Rate control with a constant quality or an average bitrate, and an optional leaky bucket."""

    quality: int | None = None  # a value on the encoder's CRF scale (lower is better); set if ``bitrate_bps`` is not
    bitrate_bps: int | None = None
    maxrate_bps: int | None = None  # set if and only if ``bufsize_bits`` is set
    bufsize_bits: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateChange:
    """New values of an encoder's rate control; None leaves a value unchanged.

    x264 accepts only ``bitrate``, ``maxbitrate``, ``vbvbufsize`` and ``cq``.
    """

    rc: Literal["cbr", "vbr", "constqp"] | None = None
    multipass: Literal["off", "qres", "fullres"] | None = None
    bitrate: int | None = None  # average, in bit/s
    maxbitrate: int | None = None  # the peak rate of vbr, in bit/s
    vbvbufsize: int | None = None  # the decoder's buffer, in bits; 0 lets the driver choose
    vbvinit: int | None = None  # how full the decoder's buffer is at the beginning, in bits; 0 lets the driver choose
    fps: Fraction | int | None = None  # pictures a second, for rate control; does not change timestamps
    cq: int | None = None  # the target quality of vbr; 0 returns to a bitrate


def check_rate(rate: RateControl) -> None:
    """Raise ``UsageError`` for rates that no encoder can keep."""
    if rate.quality is not None and rate.bitrate_bps is not None:
        raise UsageError("quality and bitrate exclude each other", "Give one of them.")
    if (rate.maxrate_bps is None) != (rate.bufsize_bits is None):
        raise UsageError("maxrate and bufsize belong together", "Give both or neither.")
    for name in ("bitrate_bps", "maxrate_bps", "bufsize_bits"):
        value = getattr(rate, name)
        if value is not None and value < LEAST_RATE_BPS:
            message = f"{name.split('_')[0]} must be at least {LEAST_RATE_BPS} bit/s: {value}"
            raise UsageError(message, "Rates are in bit/s; 4M is 4,000,000.")
    if rate.bitrate_bps is not None and rate.maxrate_bps is not None and rate.maxrate_bps < rate.bitrate_bps:
        message = f"the maximal rate {rate.maxrate_bps} is below the average rate {rate.bitrate_bps}"
        raise UsageError(message, "Raise --maxrate or lower --bitrate.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSettings:
    """The final settings of one encoder; equal settings and pictures give equal bytes."""

    codec: Codec
    implementation: str  # the name of the encoder in FFmpeg (``libx264``) or of NVENC (``h264_nvenc``)
    format: VideoFormat  # the format of the pictures after all filters
    time_base: Fraction  # the tick of pictures and packets
    threads: int
    rate: RateControl
    options: tuple[tuple[str, str], ...] = ()  # a software encoder's AVOptions, sorted by key
    nvenc: "NvencSettings | None" = None
    dolby_vision: bool = False  # whether to write the Dolby Vision data (RPU) of each frame with its HEVC picture
    any_threads: bool = False  # whether any number of ``threads`` gives the same bytes
    ahead_frames: int = 0  # how many pictures the encoder sees after the end of a segment
    keyframe_interval_s: Fraction | None = None  # if set, only the first picture and requested pictures are keyframes
    target: "QualityTarget | None" = None  # if set, each segment has the CRF that reaches this
    chosen_crf: bool = False  # whether the options lack a CRF, because the job chooses one for each segment

    @property
    def on_device(self) -> bool:
        """Whether NVENC encodes, instead of a software encoder."""
        return self.nvenc is not None


MOST_THREADS: Final = {Codec.HEVC: 8, Codec.AV1: 2, Codec.VP9: 8}
"""The most threads of an encoder.

Each thread of SVT-AV1 takes much more memory than placement allows for a session. More than eight threads hardly speed
up x265 and libvpx.
"""
THREADS_PER_CORE: Final = {Codec.HEVC: 2, Codec.AV1: 1, Codec.VP9: 2}
"""How many threads an encoder has for each core: its threads wait for one another, and a job's last segments leave
cores idle. A second thread costs x265 and libvpx 1 to 2 % more processor time, and SVT-AV1 5 %.
"""
_MOST_LOOKAHEAD_THREADS: Final = 3
"""The most threads of x265's lookahead: with more, it works differently, which changes the bytes
(encoder/slicetype.cpp).
"""


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0))


def with_threads(settings: EncoderSettings, cores: int) -> EncoderSettings:
    """Return software settings for this many cores; unchanged if the number of threads affects the bytes."""
    if not settings.any_threads:
        return settings
    threads = max(1, min(cores * THREADS_PER_CORE[settings.codec], MOST_THREADS[settings.codec]))
    settings = replace(settings, threads=threads)
    if settings.codec is Codec.HEVC:
        return _with_parameter(settings, "x265-params", "pools", _x265_pools(threads))
    if settings.codec is Codec.AV1:
        return _with_parameter(settings, "svtav1-params", "lp", str(threads))
    return settings


def with_crf(settings: EncoderSettings, crf: Fraction) -> EncoderSettings:
    """Return settings with another CRF (the CQ for NVENC), a multiple of the profile's ``crf_step``."""
    if settings.nvenc is not None:
        return replace(settings, nvenc=replace(settings.nvenc, cq=int(crf)))
    options = dict(settings.options) | {"crf": crf_text(crf)}
    if settings.codec is Codec.AV1:  # FFmpeg cuts the fraction off its own option ``crf``
        options["svtav1-params"] += f":crf={crf_text(crf)}"
    return replace(settings, options=tuple(options.items()))


def crf_text(crf: Fraction) -> str:
    """Return a CRF as decimal digits, which are exact for sixteenths."""
    return f"{float(crf):g}"


def _x265_pools(threads: int) -> str:
    """Return x265's number of threads; if there are many, some of them are only for the lookahead."""
    return str(threads) if threads <= _MOST_LOOKAHEAD_THREADS else f"{threads}:lookahead-threads={threads // 4}"


def _with_parameter(settings: EncoderSettings, key: str, name: str, value: str) -> EncoderSettings:
    options = dict(settings.options)
    options[key] = re.sub(rf"\b{name}=\d+", f"{name}={value}", options[key])
    return replace(settings, options=tuple(options.items()))
