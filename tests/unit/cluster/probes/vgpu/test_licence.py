"""Licences: what a driver reports, how that is judged at a given time, and the limit of an unlicensed device."""

from datetime import UTC, datetime

import pytest

from codecfleet.cluster.probes.report.absence import Absence, Maybe, Unavailable
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.device_report import LicensableFeature, LicensableFeatures
from codecfleet.cluster.probes.vgpu.licence import Licence, LicenceState, fps_limit, licence_of

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)
FOR_EVER = Unavailable(Absence.NOT_FOUND, "the licence never expires")


def features(*, is_licensed: bool, expires: Maybe[str] = FOR_EVER, supported: bool = True) -> LicensableFeatures:
    """Return NVML's answer about a device with one product."""
    feature = LicensableFeature(
        code=2, product="vWS", is_licensed=is_licensed, is_enabled=True, licence_info="", expires_utc=expires
    )
    return LicensableFeatures(supported, (feature,))


@pytest.mark.parametrize(
    ("said", "state", "sentence"),
    [
        (features(is_licensed=True), LicenceState.LICENSED, "licensed for vWS"),
        (
            features(is_licensed=True, expires="2026-05-01 12:00:01"),
            LicenceState.LICENSED,
            "licensed for vWS until 2026-05-01 12:00:01 UTC",
        ),
        (
            features(is_licensed=True, expires="2026-05-01 12:00:00"),
            LicenceState.EXPIRED,
            "the licence for vWS expired at 2026-05-01 12:00:00 UTC",
        ),
        (
            features(is_licensed=False, expires="2026-04-01 00:00:00"),
            LicenceState.EXPIRED,
            "the licence for vWS expired at 2026-04-01 00:00:00 UTC",
        ),
        (features(is_licensed=False), LicenceState.MISSING, "it has no licence"),
        (LicensableFeatures(licensing_supported=True, features=()), LicenceState.MISSING, "it has no licence"),
    ],
)
def test_a_licence_is_judged_at_a_time(said: LicensableFeatures, state: LicenceState, sentence: str) -> None:
    """A licence ends in the second that it states, even if the driver has not noticed the end."""
    found = licence_of(said, NOW)
    assert isinstance(found, Licence)
    assert (found.state, found.sentence) == (state, sentence)
    limited = None if state is LicenceState.LICENSED else 3.0
    assert fps_limit(DeviceKind.VGPU, found) == limited
    assert fps_limit(DeviceKind.GPU, found) is None


def test_a_device_that_needs_no_licence_is_not_limited() -> None:
    """Devices without licensing, and devices that could not be queried, have no limit."""
    unsupported = licence_of(features(is_licensed=False, supported=False), NOW)
    refused = Unavailable(Absence.NO_PERMISSION, "nvmlDeviceGetGridLicensableFeatures answered NO_PERMISSION (4)")
    for licence in (unsupported, licence_of(refused, NOW)):
        assert isinstance(licence, Unavailable)
        assert fps_limit(DeviceKind.VGPU, licence) is None


def test_an_end_that_cannot_be_read_ends_nothing() -> None:
    """An end date in a newer driver's format is shown unchanged and ends nothing."""
    found = licence_of(features(is_licensed=True, expires="next Tuesday"), NOW)
    assert isinstance(found, Licence)
    assert found.is_valid
