"""What steers the bitrate of an NVENC session while it encodes: all of it, and one change of it.

Source: PyNvVideoCodec programming guide, section 2.3, "Reconfigure"; ``cq`` is newer.
"""

from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from typing import Any, Final

from ...encode.nvenc_settings import Multipass, NvencSettings, RateMode
from ...encode.settings import RateChange

_COUNTS: Final = {
    "bitrate": "averageBitrate",
    "maxbitrate": "maxBitRate",
    "vbvbufsize": "vbvBufferSize",
    "vbvinit": "vbvInitialDelay",
    "cq": "targetQuality",
}
"""By our name, the field of the package's ``structEncodeReconfigureParams``."""
_MULTIPASS: Final = {None: "DISABLED", Multipass.QUARTER: "QUARTER_RESOLUTION", Multipass.FULL: "FULL_RESOLUTION"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NvencRates:
    """All that may change. Rates are in bit/s, buffers in bits; 0 lets the driver choose."""

    rc: RateMode
    multipass: Multipass | None
    bitrate: int
    maxbitrate: int
    vbvbufsize: int
    vbvinit: int
    fps: Fraction
    cq: int


def initial_rates(settings: NvencSettings, native: Any) -> NvencRates:
    """Return the rates of an encoder that was made with ``settings``, and reports ``native``."""
    found = {name: int(getattr(native, field)) for name, field in _COUNTS.items()} | {"cq": settings.cq or 0}
    fps = Fraction(int(native.frameRateNum), int(native.frameRateDen))
    return NvencRates(rc=settings.rc, multipass=settings.multipass, fps=fps, **found)


def changed_rates(rates: NvencRates, change: RateChange) -> NvencRates:
    """Return the rates after a change; ``ValueError`` or ``TypeError`` if a value does not exist or is not a number."""
    given = {field.name: value for field in fields(change) if (value := getattr(change, field.name)) is not None}
    if "rc" in given:
        given["rc"] = RateMode(given["rc"])
    if "multipass" in given:
        given["multipass"] = None if given["multipass"] == "off" else Multipass(given["multipass"])
    if "fps" in given:
        given["fps"] = _rate(given["fps"])
    for name in _COUNTS.keys() & given.keys():
        if not isinstance(given[name], int) or isinstance(given[name], bool):
            raise TypeError(f"{name} is a whole number, not {given[name]!r}")
    wanted = replace(rates, **given)
    # A constant rate has no peak beside it, and the driver's own default is one.
    return replace(wanted, maxbitrate=wanted.bitrate) if wanted.rc is RateMode.CBR and not change.maxbitrate else wanted


def _rate(fps: Any) -> Fraction:
    try:
        return Fraction(fps)
    except (OverflowError, TypeError, ValueError, ZeroDivisionError):
        raise TypeError(f"fps is a number of frames a second, not {fps!r}") from None


def check_rates(settings: NvencSettings, wanted: NvencRates) -> None:
    """Raise ``Unsupported`` if new rates break a rule of the settings."""
    replace(settings, **(asdict(wanted) | {name: getattr(wanted, name) or None for name in _COUNTS}))


def put_rates(wanted: NvencRates, native: Any) -> None:
    """Write rates into the package's ``structEncodeReconfigureParams``."""
    native.rateControlMode = getattr(type(native.rateControlMode), wanted.rc.name)
    native.multiPass = getattr(type(native.multiPass), _MULTIPASS[wanted.multipass])
    native.frameRateNum, native.frameRateDen = wanted.fps.numerator, wanted.fps.denominator
    for name, field in _COUNTS.items():
        setattr(native, field, getattr(wanted, name))
