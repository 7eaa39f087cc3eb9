"""What is done as it was asked for, and rarely meant: said as warnings."""

from collections.abc import Iterator
from typing import Final

from av.video.format import VideoFormat as PixelFormat

from ...actors.encode.profiles import PROFILES
from ...actors.encode.settings import Codec
from ...actors.media.values import VideoFormat
from ..report.report import Warning_
from ..request.spec import TranscodeSpec

LEAST_USUAL_BPS: Final = 50_000
"""Below this, somebody has probably counted in kilobits."""
_HDR: Final = {16: "PQ", 18: "HLG"}
"""Transfer functions of HDR (H.273): made for 10 bits and more (BT.2100)."""
_SDR_BITS: Final = 8


def advice(source: VideoFormat, picture: VideoFormat, codec: Codec, spec: TranscodeSpec) -> Iterator[Warning_]:
    """Yield what is unusual in a request, and what is usual."""
    for name, rate_bps in (("bitrate", spec.bitrate_bps), ("maximum bitrate", spec.maxrate_bps)):
        if rate_bps is not None and rate_bps < LEAST_USUAL_BPS:
            message = f"the {name} is {rate_bps} bit/s, which is little for video: did you mean {rate_bps}k?"
            yield Warning_(code="low-bitrate", message=message, checks=())
    transfer = _HDR.get(picture.colour.transfer)
    if transfer is not None and _bits(picture.pix_fmt) <= _SDR_BITS < _bits(source.pix_fmt):
        can = any(_bits(each) > _SDR_BITS for each in PROFILES[codec].pix_fmts)
        how = "leave out --pix-fmt to keep 10 bits" if can else f"{codec} has no more here, --codec hevc and av1 have"
        message = f"HDR ({transfer}) in 8 bits shows bands in skies and shadows: {how}"
        yield Warning_(code="hdr-in-8-bits", message=message, checks=())


def _bits(pix_fmt: str) -> int:
    return max(component.bits for component in PixelFormat(pix_fmt).components)
