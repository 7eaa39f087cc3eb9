"""Turns requests for software encoders or NVENC into exact settings, once the pictures and the machine are known."""

from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias

from ...errors import EngineUnfit, UsageError
from ..encode.settings import EncoderSettings
from ..media.values import VideoFormat
from .nvenc import EncoderCapabilities, NvencRequest, nvenc_kind, settle_nvenc
from .software import SoftwareRequest, settle_software, software_fullness, software_kind

EncoderRequest: TypeAlias = SoftwareRequest | NvencRequest


def settle(
    request: EncoderRequest,
    picture: VideoFormat,
    time_base: Fraction,
    capabilities: EncoderCapabilities | None = None,
) -> EncoderSettings:
    """Return a request's settings for pictures like ``picture`` in ticks of ``time_base``.

    ``capabilities`` are those of the NVENC that encodes; None for software.

    Raises:
        UsageError: the preset or the quality is out of range, or the rates contradict each other.
        Unsupported: no such encoder has the format, the rate mode or an option.
        EngineUnfit: this device's NVENC lacks the format, mode or option, or there is no NVENC.
    """
    if isinstance(request, SoftwareRequest):
        return settle_software(request, picture, time_base)
    if capabilities is None:
        raise EngineUnfit(f"there is no NVENC here to encode {request.codec}", "Use --encoder software.")
    return settle_nvenc(request, picture, time_base, capabilities)


def encoder_kind(
    settings: EncoderSettings, *, package: str = "", architecture: str = "", driver_branch: str = ""
) -> str:
    """Return one line with everything, apart from pictures, that the output's bytes depend on."""
    interval_s = settings.keyframe_interval_s
    grid = "" if interval_s is None else f" keyframe_interval_s={interval_s}"
    if settings.target is not None:
        grid += f" target={settings.target} {settings.target.tool}".rstrip()
    if settings.nvenc is None:
        return software_kind(settings) + grid
    return nvenc_kind(settings.nvenc, package=package, architecture=architecture, driver_branch=driver_branch) + grid


def with_initial_fullness(settings: EncoderSettings, fullness: Fraction) -> EncoderSettings:
    """Return the settings for a segment whose leaky bucket is ``fullness`` full (0 to 1) at the start.

    Only x264, x265 and NVENC with a bucket have an initial fullness; other settings are returned unchanged.

    ``UsageError`` if ``fullness`` is not a fraction of the bucket.
    """
    if not 0 <= fullness <= 1:
        raise UsageError(f"a leaky bucket cannot be {fullness} full", "Give a fraction from 0 to 1.")
    if settings.rate.bufsize_bits is None:
        return settings
    if settings.nvenc is None:
        return software_fullness(settings, fullness)
    vbvinit = max(1, int(settings.rate.bufsize_bits * fullness))
    return replace(settings, nvenc=replace(settings.nvenc, vbvinit=vbvinit))
