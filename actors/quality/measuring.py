"""Measures encoded pictures against the pictures before encoding, with results that are the same on every processor.

FFmpeg's filters sum errors in integers, and take the few further steps in a fixed order, so SIMD changes none of the
digits that they print. Values are integers in ``UNITS``, one digit less than FFmpeg prints, and everything that is
computed from them is exact.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final, cast

import av
import av.error
import av.filter
import numpy as np
from av.codec.context import ThreadType
from av.video.format import VideoFormat as PixelFormat
from av.video.frame import VideoFrame

from ...errors import EncoderFailed
from ..closing import Closing
from ..encode.pix_fmt import is_rgb
from ..encode.session import EncodedPacket
from ..encode.settings import Codec, EncoderSettings
from ..encode.target import QualityMetric, QualityTarget
from ..media.values import VideoFormat
from ..surfaces.host_pictures import plane_rows
from .search import Goal

if TYPE_CHECKING:
    from av.video.codeccontext import VideoCodecContext

UNITS: Final = 100_000
"""How many units of a measured value are 1 dB, a point of VMAF, or an SSIM of 1."""
_MDB: Final = UNITS // 1000
_NEAR: Final = {QualityMetric.VMAF: Fraction(1, 4)}
_NEAR_DB: Final = Fraction(3, 20)
_ERROR_DB: Final = {QualityMetric.PSNR: 10, QualityMetric.XPSNR: 20}
"""How many dB a value falls if the error grows tenfold: the squared error for PSNR, its square root for XPSNR."""
_USUAL_MDB: Final = {
    QualityMetric.XPSNR: 35_500,
    QualityMetric.PSNR: 42_000,
    QualityMetric.SSIM: 18_000,
    QualityMetric.VMAF: 13_500,
}
"""The level of usual films at an encoder's ``even_crf``."""
_DECODERS: Final = {Codec.H264: "h264", Codec.HEVC: "hevc", Codec.AV1: "libdav1d", Codec.VP9: "vp9"}
_BYTE_BITS: Final = 8
_EXACT: Final = Context(prec=30)
_REPORT: Final = "Please report this with the input and the options."


class PairMeter(Closing):
    """Measures pairs of pictures with the size and format of ``picture``, in order of presentation; not VMAF."""

    def __init__(self, metric: QualityMetric, picture: VideoFormat) -> None:
        self._metric = metric
        self._key = _key(metric, picture.pix_fmt)
        rate = picture.frame_rate
        # With more than 8 bits, FFmpeg's XPSNR reads wrong samples in rows that end in padding, so the filter gets a
        # copy of luma without padding (s_rec in libavfilter/vf_xpsnr.c).
        self._grey = grey_format(picture.pix_fmt) if metric is QualityMetric.XPSNR else None
        pix_fmt = self._grey or picture.pix_fmt
        shape = {"video_size": f"{picture.width}x{picture.height}", "pix_fmt": pix_fmt, "time_base": "1/1"}
        shape["frame_rate"] = f"{rate.numerator}/{rate.denominator}"
        self._graph = av.filter.Graph()
        self._graph.threads = 1
        self._inputs = [self._graph.add("buffer", **shape) for _ in range(2)]
        measure, self._output = self._graph.add(metric.value), self._graph.add("buffersink")
        for pad, source in enumerate(self._inputs):
            source.link_to(measure, 0, pad)
        measure.link_to(self._output)
        self._graph.configure()
        self.values: list[int] = []

    @property
    def taken(self) -> int:
        """How many pairs were taken."""
        return len(self.values)

    def close(self) -> None:
        """Do nothing."""

    def drain(self) -> bool:
        """Return False: nothing is left to do, ``values`` are complete."""
        return False

    def take(self, encoded: "VideoFrame", original: "VideoFrame") -> None:
        """Measure a pair; may change the times of both pictures."""
        # XPSNR weighs errors by the activity of its first input.
        for source, picture in zip(self._inputs, (original, encoded), strict=True):
            given = picture if self._grey is None else _luma(picture, self._grey)
            given.pts, given.time_base = self.taken, Fraction(1)
            source.push(given)
        found = cast("VideoFrame", self._output.pull()).metadata[self._key]
        most = self._metric.most * UNITS
        self.values.append(most if found == "inf" else min(round(Decimal(found) * UNITS), most))


def _key(metric: QualityMetric, pix_fmt: str) -> str:
    """Return the key of FFmpeg's metadata for the metric in luma or, for RGB, in green."""
    if metric is QualityMetric.XPSNR:
        return "lavfi.xpsnr.xpsnr.y"
    plane = "g" if is_rgb(pix_fmt) else "y"
    return f"lavfi.psnr.psnr.{plane}" if metric is QualityMetric.PSNR else f"lavfi.ssim.{plane.upper()}"


def grey_format(pix_fmt: str) -> str:
    """Return FFmpeg's name of the format that has only the first plane of ``pix_fmt``."""
    bits = PixelFormat(pix_fmt).components[0].bits
    return "gray" if bits <= _BYTE_BITS else f"gray{bits}le"


def _luma(picture: "VideoFrame", grey: str) -> "VideoFrame":
    """Return a copy of a picture's first plane, which has luma or green, without padding."""
    plane = picture.planes[0]
    rows = plane_rows(plane, np.dtype(np.uint8 if grey == "gray" else np.uint16))
    return VideoFrame.from_numpy_buffer(rows[:, : plane.width].copy(), format=grey)


class DecodedBack(Closing):
    """Decodes an encoder's packets, and yields the pictures in order of presentation, with the packets' times."""

    def __init__(self, settings: EncoderSettings, extradata: bytes, packets: Sequence[EncodedPacket]) -> None:
        self._name = settings.implementation
        self._packets = packets
        self._context: VideoCodecContext | None = cast(
            "VideoCodecContext", av.CodecContext.create(_DECODERS[settings.codec], "r")
        )
        if extradata and settings.codec in (Codec.H264, Codec.HEVC):
            self._context.extradata = extradata
        self._context.thread_count, self._context.thread_type = settings.threads, ThreadType.FRAME
        self._tick_s = settings.time_base

    def close(self) -> None:
        """Free the decoder."""
        self._context = None

    def pictures(self) -> "Iterator[tuple[int, VideoFrame]]":
        """Yield each picture with its time; ``EncoderFailed`` if the packets do not decode."""
        try:
            for number, packet in enumerate([*self._packets, None]):
                if self._context is None:
                    return
                fed = None
                if packet is not None:
                    fed = av.Packet(packet.payload)
                    fed.pts, fed.dts, fed.time_base = packet.pts_ticks, number, self._tick_s
                for frame in self._context.decode(fed):
                    yield frame.pts or 0, frame
        except av.error.FFmpegError as error:
            raise EncoderFailed(f"{self._name}'s output does not decode: {error}", _REPORT) from error


def summary(metric: QualityMetric, values: Sequence[int], percentile: int | None) -> Fraction:
    """Return the average of values, or the value below which at most ``percentile`` % of them lie.

    Averages are FFmpeg's: the mean of the values of SSIM and VMAF, but for PSNR and XPSNR the value of the mean error.
    With the mean of their values, a few pictures without any error would make up for many bad ones.
    """
    if percentile is not None:
        return Fraction(sorted(values)[len(values) * percentile // 100])
    error_db = _ERROR_DB.get(metric)
    if error_db is None:
        return Fraction(sum(values), len(values))
    counts = sorted(Counter(values).items())
    errors = [count * _EXACT.power(10, _EXACT.divide(-value, error_db * UNITS)) for value, count in counts]
    average = _EXACT.divide(sum(errors, Decimal(0)), len(values))
    return Fraction(round(-error_db * UNITS * _EXACT.log10(average)))


def level_mdb(target: QualityTarget, values: Sequence[int]) -> int:
    """Return the level of measured values in thousandths of a dB."""
    return _level_mdb(target.metric, summary(target.metric, values, target.percentile))


def goal_of(target: QualityTarget) -> Goal:
    """Return the level of the target; within 0.15 dB, or a quarter of a point of VMAF, is near enough."""
    level = _level_mdb(target.metric, target.value * UNITS)
    near = _NEAR.get(target.metric)
    if near is None:
        return Goal(level, round(_NEAR_DB * 1000))
    return Goal(level, level - _level_mdb(target.metric, (target.value - near) * UNITS))


def above_usual_mdb(target: QualityTarget) -> int:
    """Return how far the target's level is above that of usual films at an encoder's ``even_crf``."""
    return goal_of(target).level_mdb - _USUAL_MDB[target.metric]


def _level_mdb(metric: QualityMetric, value: Fraction) -> int:
    """Return a value in thousandths of a dB.

    SSIM and VMAF flatten near their largest value, so FFmpeg's formula for SSIM, -10 log10(1 - SSIM), converts both. A
    change of the CRF then changes the level of every metric by about as much.
    """
    if metric not in (QualityMetric.SSIM, QualityMetric.VMAF):
        return round(value / _MDB)
    lost = max(1 - value / (metric.most * UNITS), Fraction(1, UNITS))
    return round(-10_000 * _EXACT.log10(_EXACT.divide(Decimal(lost.numerator), Decimal(lost.denominator))))
