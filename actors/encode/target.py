"""The quality that encoded pictures should have, by a metric that compares them with the pictures before encoding."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Self

from ...errors import Unsupported, UsageError
from ..media.values import VideoFormat

if TYPE_CHECKING:
    from .profiles import EncoderProfile

HOW_TO_WRITE: Final = "Write xpsnr:42, vmaf:94, psnr:42 or ssim:0.98; add :p5 for a percentile, :crf16-40 for limits."
_WORDS: Final = re.compile(
    r"(?P<metric>[a-z]+):(?P<value>[0-9]{1,3}(?:\.[0-9]{1,4})?)(?::p(?P<percentile>[0-9]{1,2}))?"
    r"(?::crf(?P<best>[0-9]{1,2})-(?P<worst>[0-9]{1,2}))?"
)
_BLOCK_PICTURE: Final = 3840 * 2160
_LARGER_THAN_HD: Final = 2048 * 1152
_LEAST_VMAF_SIDE: Final = 32  # libvmaf crashes up to 16


class QualityMetric(StrEnum):
    """A metric that FFmpeg computes from the luma, or from the green of RGB."""

    XPSNR = "xpsnr"
    PSNR = "psnr"
    SSIM = "ssim"
    VMAF = "vmaf"

    @property
    def unit(self) -> str:
        """The metric's unit, with a space before it; "" if it has none."""
        return "" if self in (QualityMetric.SSIM, QualityMetric.VMAF) else " dB"

    @property
    def most(self) -> int:
        """The value of pictures that equal the originals: 1 for SSIM, else 100, to which PSNR and XPSNR are limited."""
        return 1 if self is QualityMetric.SSIM else 100


_DB: Final = (Fraction(20), Fraction(70))
_RANGES: Final = {
    QualityMetric.SSIM: (Fraction(1, 2), Fraction(9999, 10_000)),
    QualityMetric.VMAF: (Fraction(20), Fraction(99)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityTarget:
    """The quality of each segment: the mean of its pictures, or a percentile of them."""

    metric: QualityMetric
    value: Fraction  # in dB; for SSIM from 0 to 1, for VMAF from 0 to 100
    percentile: int | None = None  # 1 to 50; None for the mean
    crfs: tuple[int, int] | None = None  # the lowest and the highest CRF to use; None for the encoder's usual ones
    tool: str = ""  # the version of the FFmpeg that measures VMAF; "" until it is settled, and for other metrics

    def __str__(self) -> str:
        text = f"{self.metric}:{float(self.value):g}"
        text += "" if self.percentile is None else f":p{self.percentile}"
        return text + ("" if self.crfs is None else f":crf{self.crfs[0]}-{self.crfs[1]}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the target of ``xpsnr:42``, ``ssim:0.98:p5`` or ``psnr:40:crf18-35``. Raises UsageError."""
        shown = text[:60]
        match = _WORDS.fullmatch(text)
        if match is None or match["metric"] not in set(QualityMetric):
            raise UsageError(f"{shown!r} is not a target quality", HOW_TO_WRITE)
        metric, value = QualityMetric(match["metric"]), Fraction(match["value"])
        percentile = None if match["percentile"] is None else int(match["percentile"])
        crfs = None if match["best"] is None else (int(match["best"]), int(match["worst"]))
        least, most = _RANGES.get(metric, _DB)
        if not least <= value <= most:
            message = f"{shown!r} is out of range: {metric} from {float(least):g} to {float(most):g}{metric.unit}"
            raise UsageError(message, HOW_TO_WRITE)
        if percentile is not None and not 1 <= percentile <= 50:  # noqa: PLR2004 - the median
            raise UsageError(f"{shown!r} has a percentile outside 1 to 50", "p5 means the worst 5 % of the pictures.")
        if crfs is not None and crfs[0] > crfs[1]:
            raise UsageError(f"{shown!r} has a lower limit above the upper one", HOW_TO_WRITE)
        return cls(metric=metric, value=value, percentile=percentile, crfs=crfs)

    def settled(self, profile: "EncoderProfile", picture: VideoFormat, tool: str | None) -> Self:
        """Return the target with its CRF limits (by default ``profile``'s usual ones) and, for VMAF, with ``tool``.

        ``tool`` is the version of the FFmpeg that measures VMAF here; None if there is none. Raises UsageError: the
        limits are outside the encoder's scale; Unsupported: the metric cannot measure pictures of this size, or the
        metric is VMAF and ``tool`` is None.
        """
        if self.metric is QualityMetric.XPSNR and not _fits_xpsnr(picture.width, picture.height):
            message = f"XPSNR cannot measure pictures of {picture.width}x{picture.height}"
            raise Unsupported(message, "Use --target-quality with psnr or ssim.")
        if self.metric is QualityMetric.VMAF and min(picture.width, picture.height) < _LEAST_VMAF_SIDE:
            message = f"VMAF cannot measure pictures of {picture.width}x{picture.height}"
            raise Unsupported(message, "Use --target-quality with psnr or ssim.")
        if self.metric is QualityMetric.VMAF and tool is None:
            message = "VMAF cannot be measured: this machine has no FFmpeg with libvmaf"
            raise Unsupported(message, "Install codecfleet[quality] here and on the nodes, or use xpsnr.")
        best, worst = self.crfs or profile.usual_crfs
        if worst > profile.worst_quality:
            message = f"CRF {worst} is outside {profile.implementation}'s scale, which ends at {profile.worst_quality}"
            raise UsageError(message, "Lower the upper limit of --target-quality.")
        return replace(self, crfs=(best, worst), tool=(tool or "") if self.metric is QualityMetric.VMAF else "")


def _fits_xpsnr(width: int, height: int) -> bool:
    """Return whether FFmpeg's filter measures pictures of this size correctly.

    The filter divides by zero if its blocks, whose side depends on the size, have no samples. A narrow block at
    the edge that has no inner samples gets a weight that drowns all others (libavfilter/vf_xpsnr.c).
    """
    block = 4 * int(32 * (width * height / _BLOCK_PICTURE) ** 0.5 + 0.5)
    edge = 2 if width * height > _LARGER_THAN_HD else 1
    return block > 0 and all(side % block == 0 or side % block > edge for side in (width, height))
