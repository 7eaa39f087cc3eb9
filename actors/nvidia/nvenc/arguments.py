"""An encoder's settings as PyNvVideoCodec's ``CreateEncoder`` reads them: spelling and types are the package's."""

from typing import Any

from ...encode.nvenc_settings import NvencSettings, Qp


def create_encoder_arguments(settings: NvencSettings) -> dict[str, Any]:
    """Return the keyword arguments of ``CreateEncoder``, spelt and typed as the package reads them.

    Only what differs from "leave it to the preset" is in it: the package switches some things on by the key's mere
    presence.
    """
    arguments: dict[str, Any] = {
        "codec": settings.codec.value,
        "preset": settings.preset.value,
        "tuning_info": settings.tuning_info.value,
        "rc": settings.rc.value,
        "fps": f"{settings.fps.numerator}/{settings.fps.denominator}",
    }
    plain = ("bitrate", "maxbitrate", "vbvbufsize", "vbvinit", "cq", "gop", "idrperiod", "bf", "numrefl0", "numrefl1")
    for name in (*plain, "lookahead", "aq", "tier"):
        value = getattr(settings, name)
        if value is not None:
            arguments[name] = int(value)
    for name in ("constqp", "initqp", "qmax"):
        quantizers: Qp | None = getattr(settings, name)
        if quantizers is not None:
            arguments[name] = list(quantizers.values)
    for name in ("temporalaq", "ldkfs"):
        if getattr(settings, name):
            arguments[name] = 1
    if settings.multipass is not None:
        arguments["multipass"] = settings.multipass.value
    return arguments | _structured(settings)


def _structured(settings: NvencSettings) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if settings.timinginfo is not None:
        info = settings.timinginfo
        arguments["timinginfo"] = {"num_unit_in_ticks": info.num_unit_in_ticks, "timescale": info.timescale}
    if settings.level is not None:
        arguments["level"] = settings.level
    if settings.repeatspspps is not None:
        # The package sets repeatSPSPPS whatever the value of its key; the only key that clears it is another.
        arguments["repeatspspps" if settings.repeatspspps else "global_header"] = 1
    return arguments
