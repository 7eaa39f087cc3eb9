"""The settled settings of one encoder: a frozen value, equal in every segment of a track.

It holds everything that can change an output byte, so that the same settings and pictures give the same bytes.
"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal

from ...errors import UsageError
from ..media.values import VideoFormat

if TYPE_CHECKING:
    from .nvenc_settings import NvencSettings


LEAST_RATE_BPS: Final = 1000
"""Encoders count in kilobits."""


class Codec(StrEnum):
    """A video coding format, by the name users write."""

    H264 = "h264"
    HEVC = "hevc"
    AV1 = "av1"
    VP9 = "vp9"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateControl:
    """Rate control by a constant quality or an average bitrate, with an optional leaky bucket.

    ``quality`` is on the encoder's CRF scale (lower is better). Exactly one of ``quality`` and ``bitrate_bps`` is set;
    ``maxrate_bps`` and ``bufsize_bits`` are both set or neither.
    """

    quality: int | None = None
    bitrate_bps: int | None = None
    maxrate_bps: int | None = None
    bufsize_bits: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateChange:
    """New values of an encoder's rate control; None leaves a value unchanged. Software's x264 takes four of them.

    ``bitrate`` (average) and ``maxbitrate`` (peak of vbr) are in bit/s; the decoder's buffer ``vbvbufsize`` and its
    fullness ``vbvinit`` in bits, 0 lets the driver choose. ``fps`` does not change timestamps. ``cq`` is the target
    quality of vbr; 0 returns to a bitrate.
    """

    rc: Literal["cbr", "vbr", "constqp"] | None = None
    multipass: Literal["off", "qres", "fullres"] | None = None
    bitrate: int | None = None
    maxbitrate: int | None = None
    vbvbufsize: int | None = None
    vbvinit: int | None = None
    fps: Fraction | int | None = None
    cq: int | None = None


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
    """One encoder, fully settled.

    ``implementation`` is FFmpeg's encoder name (``libx264``), or NVENC's (``h264_nvenc``). A software encoder has
    ``options``, its AVOptions sorted by key; NVENC has ``nvenc``. ``time_base`` is the tick of pictures and packets;
    ``format`` is the input's, after all filters. ``dolby_vision`` writes the frames' RPUs beside each HEVC picture.
    ``any_threads`` says that a session may have another number of ``threads``: the bytes are the same (threads.py).
    With a ``keyframe_interval_s`` the encoder makes no keyframe but the first and those that a session is asked for.
    """

    codec: Codec
    implementation: str
    format: VideoFormat
    time_base: Fraction
    threads: int
    rate: RateControl
    options: tuple[tuple[str, str], ...] = ()
    nvenc: "NvencSettings | None" = None
    dolby_vision: bool = False
    any_threads: bool = False
    keyframe_interval_s: Fraction | None = None

    @property
    def on_device(self) -> bool:
        """Whether a GPU encodes."""
        return self.nvenc is not None
