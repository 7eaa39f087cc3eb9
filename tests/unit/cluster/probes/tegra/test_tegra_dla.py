import importlib.util

import pytest

from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.tegra.dla import DlaDevice, DlaReport, ask_cudla, dla_report_of, probe_dla


def _said(*values: tuple[str, object], end: ChildEnd = ChildEnd.RETURNED, detail: str = "") -> ChildOutcome:
    return ChildOutcome(end, tuple(list(pair) for pair in values), detail)


def test_accelerators_are_reported_with_their_attributes() -> None:
    """Two accelerators of an Orin are reported with version and addressing."""
    outcome = _said(("version", 1002001), ("count", 2), ("device", [0, 2, True]), ("device", [1, 2, False]))
    assert dla_report_of(outcome) == DlaReport(1002001, (DlaDevice(0, 2, True), DlaDevice(1, 2, False)))  # noqa: FBT003


def test_library_without_an_accelerator_is_none() -> None:
    """A library that counts none, as on Thor or a server, reports no accelerator."""
    report = dla_report_of(_said(("version", 1), ("count", 0)))
    assert report == DlaReport(1, ())


def test_accelerator_that_hangs_is_counted_without_attributes() -> None:
    """When asking for attributes hangs, the accelerators are known and each says why no more is."""
    outcome = _said(("version", 1), ("count", 2), ("device", [0, 2, True]), end=ChildEnd.TIMED_OUT, detail="no answer")
    report = dla_report_of(outcome)
    assert isinstance(report, DlaReport)
    assert len(report.devices) == 2
    assert report.devices[0].version == 2
    assert report.devices[1].version == Unavailable(Absence.FAILED, "no answer")


def test_accelerator_that_refuses_hides_no_other() -> None:
    """One accelerator's refusal is its own."""
    report = dla_report_of(
        _said(("version", 1), ("count", 2), ("silent", [0, "CudlaError: 8"]), ("device", [1, 2, True]))
    )
    assert isinstance(report, DlaReport)
    assert isinstance(report.devices[0].version, Unavailable)
    assert report.devices[1].version == 2


@pytest.mark.parametrize(
    ("outcome", "absence"),
    [
        (_said(("absent", "no libcudla")), Absence.NO_LIBRARY),
        (_said(("failed", "CudlaError: 15")), Absence.FAILED),
        (_said(end=ChildEnd.TIMED_OUT, detail="no answer within 1 s"), Absence.TIMED_OUT),
        (_said(end=ChildEnd.KILLED, detail="the process was ended by SIGSEGV"), Absence.FAILED),
    ],
)
def test_probe_that_says_no_count_has_a_reason(outcome: ChildOutcome, absence: Absence) -> None:
    """A missing library, an error, a hang and a crash are absences of their own kind, with what was said."""
    report = dla_report_of(outcome)
    assert isinstance(report, Unavailable)
    assert report.absence is absence


def test_machine_without_cudla_says_so() -> None:
    """Asked for real in a child process, a machine without the library or the package has none, with a reason."""
    report = probe_dla(60.0)
    if not isinstance(report, Unavailable):
        pytest.skip("this machine has libcudla")
    assert report.absence is Absence.NO_LIBRARY
    if importlib.util.find_spec("cuda") is None:
        assert next(ask_cudla())[0] == "absent"
