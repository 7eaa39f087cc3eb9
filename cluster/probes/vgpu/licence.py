"""Judges whether a vGPU or passed-through GPU is licensed, and how the driver limits an unlicensed vGPU.

Sources: vGPU Management SDK guide, 2.4 and 3.3.3, and "Virtual GPU Client Licensing User Guide". An unlicensed vGPU is
limited to 15 fps after 20 minutes, and to 3 fps after a day. A passed-through GPU loses no speed. These limits are
documented, not measured.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from ..nvml.calls import DeviceQuestions, read_text
from ..report.absence import Absence, Maybe, Unavailable
from ..report.device_kinds import DeviceKind
from ..report.device_report import LicensableFeature, LicensableFeatures
from ..report.tables import read_tables

UNLICENSED_FPS: Final = 3.0
"""The last and lowest limit of an unlicensed vGPU, in frames a second."""
_EXPIRY_FORMAT = "%Y-%m-%d %H:%M:%S"
_EXPIRY_VALID = 2
_EXPIRY_WORDS: Final[dict[str, str]] = read_tables("nvml.toml")["expiry"]


class LicenceState(Enum):
    """The state of a licence."""

    LICENSED = "licensed"
    MISSING = "missing"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Licence:
    """A device's licence."""

    state: LicenceState
    product: str  # the licensed product; "" without a licence
    expires_utc: Maybe[str]  # when the licence ends, as "YYYY-MM-DD hh:mm:ss"

    @property
    def is_valid(self) -> bool:
        """Whether the licence lets the device run at full speed."""
        return self.state is LicenceState.LICENSED

    @property
    def ends(self) -> datetime | None:
        """When the licence ends; None if it does not end, or the time is unknown."""
        return _ends(self.expires_utc)

    @property
    def sentence(self) -> str:
        """A phrase about the licence, without a full stop."""
        if self.state is LicenceState.EXPIRED:
            return f"the licence for {self.product} expired at {self.expires_utc} UTC"
        if self.state is LicenceState.MISSING:
            return "it has no licence"
        ends = "" if isinstance(self.expires_utc, Unavailable) else f" until {self.expires_utc} UTC"
        return f"licensed for {self.product}{ends}"


NO_LICENCE: Final = Licence(
    state=LicenceState.MISSING,
    product="",
    expires_utc=Unavailable(Absence.DOES_NOT_APPLY, "there is no licence that could expire"),
)


def licence_of(features: Maybe[LicensableFeatures], now_utc: datetime | None) -> Maybe[Licence]:
    """Return a device's licence, or why no licence applies to the device.

    With ``now_utc``, the end of the licence is checked too: a licence past its end counts as expired even if the driver
    still reports it as valid, because drivers check rarely.
    """
    if isinstance(features, Unavailable):
        return features
    if not features.licensing_supported:
        return Unavailable(Absence.DOES_NOT_APPLY, "this device needs no vGPU licence")
    licensed = [feature for feature in features.features if feature.is_licensed]
    valid = [feature for feature in licensed if not _has_ended(feature, now_utc)]
    found = valid or licensed or [feature for feature in features.features if _has_ended(feature, now_utc)]
    if not found:
        return NO_LICENCE
    state = LicenceState.LICENSED if valid else LicenceState.EXPIRED
    return Licence(state=state, product=found[0].product, expires_utc=found[0].expires_utc)


def fps_limit(kind: DeviceKind, licence: Maybe[Licence]) -> float | None:
    """Return the frame rate to which the driver finally limits a device with this licence; None if it sets no limit."""
    full_speed = not kind.is_guest or isinstance(licence, Unavailable) or licence.is_valid
    return None if full_speed else UNLICENSED_FPS


def _has_ended(feature: LicensableFeature, now_utc: datetime | None) -> bool:
    ends = _ends(feature.expires_utc)
    return now_utc is not None and ends is not None and ends <= now_utc


def _ends(expires_utc: Maybe[str]) -> datetime | None:
    if isinstance(expires_utc, Unavailable):
        return None
    try:
        return datetime.strptime(expires_utc, _EXPIRY_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def ask_licences(questions: DeviceQuestions) -> Maybe[LicensableFeatures]:
    """Query for which vGPU products a device can be licensed."""
    return questions.ask("nvmlDeviceGetGridLicensableFeatures", read=_read_licences)


def _read_licences(found: Any) -> LicensableFeatures:
    features = list(found.gridLicensableFeatures)[: int(found.licensableFeaturesCount)]
    return LicensableFeatures(bool(found.isGridLicenseSupported), tuple(map(_feature, features)))


def _feature(feature: Any) -> LicensableFeature:
    return LicensableFeature(
        code=int(feature.featureCode),
        product=read_text(feature.productName),
        is_licensed=bool(feature.featureState),
        is_enabled=bool(feature.featureEnabled),
        licence_info=read_text(feature.licenseInfo),
        expires_utc=_expiry(feature.licenseExpiry),
    )


def _expiry(expiry: Any) -> Maybe[str]:
    if (status := int(expiry.status)) != _EXPIRY_VALID:
        unknown = f"expiry status {status} is unknown to codecfleet"
        return Unavailable(Absence.NOT_FOUND, _EXPIRY_WORDS.get(str(status), unknown))
    day = f"{expiry.year:04d}-{expiry.month:02d}-{expiry.day:02d}"
    return f"{day} {expiry.hour:02d}:{expiry.min:02d}:{expiry.sec:02d}"
