"""Decides container, codec and encoder settings from the request alone, and warns of unusual requests."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from av.video.format import VideoFormat as PixelFormat

from ...actors.encode.profiles import PROFILES
from ...actors.encode.settings import Codec, RateControl, check_rate
from ...actors.encode.target import QualityTarget
from ...actors.media.values import VideoFormat
from ...actors.settle.nvenc import NvencRequest, nvenc_request
from ...actors.settle.software import SoftwareRequest, software_request
from ...errors import Unsupported
from ..carry.containers import Container, container_for
from ..report.report import Warning_
from ..request.spec import TranscodeSpec

LEAST_USUAL_BPS: Final = 50_000  #: A rate below this was probably meant in kilobits
_HDR: Final = {16: "PQ", 18: "HLG"}  #: HDR transfer functions (H.273), for which BT.2100 requires 10 bits
_SDR_BITS: Final = 8


@dataclass(frozen=True, slots=True)
class AskedFor:
    """The decisions that the request alone implies."""

    container: Container
    codec: Codec
    software: SoftwareRequest
    nvenc: NvencRequest | None  #: None if the job may not use NVENC


def asked_of(spec: TranscodeSpec, *, one_pass: bool = False) -> AskedFor:
    """Return the decisions that a request implies.

    With ``one_pass``, each segment is encoded only once, at the requested average rate. Raises RequestError: no
    source could satisfy the request.
    """
    container = container_for(spec.output, fragmented=spec.fragmented)
    codec = spec.codec or container.default_codec
    container.check_video_codec(codec)
    return AskedFor(container, codec, *_requests(spec, codec, one_pass=one_pass))


def _requests(spec: TranscodeSpec, codec: Codec, *, one_pass: bool) -> tuple[SoftwareRequest, NvencRequest | None]:
    """Return the requests for software and for NVENC; None for NVENC if the job may not use it.

    ``encoder_options`` are for NVENC if ``encoder="nvenc"``, otherwise for software.
    """
    rate = RateControl(
        quality=spec.quality, bitrate_bps=spec.bitrate_bps, maxrate_bps=spec.maxrate_bps, bufsize_bits=spec.bufsize_bits
    )
    target = None if spec.target_quality is None else QualityTarget.parse(spec.target_quality)
    if spec.size_bytes is not None and spec.encoder == "nvenc":
        raise Unsupported("NVENC cannot encode for a size", "Leave out --encoder nvenc, or use --bitrate.")
    check_rate(rate)
    is_chosen = spec.size_bytes is not None or (spec.bitrate_bps is not None and not one_pass)
    software = partial(
        software_request,
        codec,
        rate=replace(rate, bitrate_bps=None) if is_chosen else rate,
        preset=spec.preset,
        keyframe_interval_s=spec.keyframe_interval_s,
        target=target,
        chosen_crf=is_chosen,
    )
    nvenc = partial(
        nvenc_request,
        codec,
        rate=rate,
        preset=spec.preset,
        keyframe_interval_s=spec.keyframe_interval_s,
        target=target,
    )
    if spec.encoder == "nvenc":
        return software(), nvenc(options=spec.encoder_options)
    in_software = software(options=spec.encoder_options)
    needs_crf = target is not None or spec.size_bytes is not None
    if spec.encoder == "software" or spec.device == "cpu" or spec.encoder_options or needs_crf:
        return in_software, None
    return in_software, nvenc()


def advice(source: VideoFormat, picture: VideoFormat, codec: Codec, spec: TranscodeSpec) -> Iterator[Warning_]:
    """Yield warnings about unusual requests; each warning names the usual choice."""
    for name, rate_bps in (("bitrate", spec.bitrate_bps), ("maximum bitrate", spec.maxrate_bps)):
        if rate_bps is not None and rate_bps < LEAST_USUAL_BPS:
            message = f"the {name} is {rate_bps} bit/s, which is little for video: did you mean {rate_bps}k?"
            yield Warning_(code="low-bitrate", message=message, checks=())
    transfer = _HDR.get(picture.colour.transfer)
    if transfer is not None and _bits(picture.pix_fmt) <= _SDR_BITS < _bits(source.pix_fmt):
        can = any(_bits(each) > _SDR_BITS for each in PROFILES[codec].pix_fmts)
        how = "leave out --pix-fmt to keep 10 bits" if can else f"{codec} is limited to 8 bits; use --codec hevc or av1"
        message = f"HDR ({transfer}) in 8 bits shows banding in skies and shadows: {how}"
        yield Warning_(code="hdr-in-8-bits", message=message, checks=())


def _bits(pix_fmt: str) -> int:
    return max(component.bits for component in PixelFormat(pix_fmt).components)
