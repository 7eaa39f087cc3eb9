"""What a software encoder can change about its rates while it encodes: x264's bitrate, buffer and quality.

FFmpeg hands changed values of an open libx264 to ``x264_encoder_reconfig`` with the next picture (libavcodec/libx264.c,
``reconfig_encoder``). x264 takes them only where it opened with a buffer, and a new average only at a constant rate
(encoder/ratecontrol.c, ``x264_ratecontrol_init_reconfigurable``). FFmpeg's other encoders have nothing like it.
"""

from dataclasses import fields, replace
from typing import Final

from ...errors import Unsupported
from .settings import LEAST_RATE_BPS, Codec, RateChange, RateControl

_CHANGEABLE: Final = ("bitrate", "maxbitrate", "vbvbufsize", "cq")
_BEST, _WORST = 0, 51
_OPEN_WITH: Final = "Open the session with maxrate_bps equal to bitrate_bps and a bufsize_bits (codecfleet.Encoder)."


def changed_software_rate(codec: Codec, name: str, rate: RateControl, change: RateChange) -> RateControl:
    """Return the rate control after a change; ``Unsupported`` if the encoder ``name`` cannot go there."""
    given = {each.name: value for each in fields(change) if (value := getattr(change, each.name)) is not None}
    if codec is not Codec.H264:
        message = f"{name} cannot change its rates while it encodes"
        raise Unsupported(message, 'Use codec="h264" or encoder="nvenc", or open another session with the new rates.')
    if wrong := [key for key in given if key not in _CHANGEABLE]:
        message = f"{name} cannot change {', '.join(wrong)} while it encodes"
        raise Unsupported(message, f'It can change {", ".join(_CHANGEABLE)}; or use encoder="nvenc".')
    for key, value in given.items():
        least, most = (_BEST, _WORST) if key == "cq" else (LEAST_RATE_BPS, (1 << 31) - 1)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise Unsupported(f"{name} takes no {key} of {value!r}", f"Give a whole number from {least} to {most}.")
    return _of_quality(name, rate, change) if rate.quality is not None else _of_bitrate(name, rate, change)


def _of_quality(name: str, rate: RateControl, change: RateChange) -> RateControl:
    if change.bitrate is not None:
        raise Unsupported(f"{name} keeps to a quality here, and has no bitrate to change", "Give cq instead.")
    return replace(_limited(name, rate, change), quality=rate.quality if change.cq is None else change.cq)


def _of_bitrate(name: str, rate: RateControl, change: RateChange) -> RateControl:
    if change.cq is not None:
        raise Unsupported(f"{name} keeps to a bitrate here, and has no quality to change", "Give bitrate instead.")
    is_constant = rate.maxrate_bps == rate.bitrate_bps
    if change.bitrate is not None and not is_constant:
        raise Unsupported(f"{name} changes its average bitrate only where it is constant", _OPEN_WITH)
    bitrate = change.bitrate or rate.bitrate_bps
    limited = _limited(name, rate, change)
    if is_constant and change.maxbitrate not in (None, bitrate):
        raise Unsupported(f"{name} keeps to a constant rate here, which has no peak", "Leave maxbitrate out.")
    limited = replace(limited, bitrate_bps=bitrate, maxrate_bps=bitrate if is_constant else limited.maxrate_bps)
    if (limited.maxrate_bps or 0) < (bitrate or 0):
        message = f"{name} takes no peak of {limited.maxrate_bps} bit/s below its average of {bitrate}"
        raise Unsupported(message, "Raise maxbitrate.")
    return limited


def _limited(name: str, rate: RateControl, change: RateChange) -> RateControl:
    if rate.maxrate_bps is None and (change.bitrate or change.maxbitrate or change.vbvbufsize):
        raise Unsupported(f"{name} changes its bitrate and buffer only where it opened with a buffer", _OPEN_WITH)
    return replace(
        rate,
        maxrate_bps=change.maxbitrate or rate.maxrate_bps,
        bufsize_bits=change.vbvbufsize or rate.bufsize_bits,
    )


def rate_options(rate: RateControl) -> dict[str, str]:
    """Return the options of FFmpeg's libx264 that say a rate."""
    values = {"b": rate.bitrate_bps, "crf": rate.quality, "maxrate": rate.maxrate_bps, "bufsize": rate.bufsize_bits}
    return {name: str(value) for name, value in values.items() if value is not None}
