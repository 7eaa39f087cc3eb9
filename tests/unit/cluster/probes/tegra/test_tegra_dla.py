import importlib.util
from typing import Any

import pytest

from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.probes.report.absence import Absence, Maybe, Unavailable
from codecfleet.cluster.probes.tegra.dla import DlaDevice, DlaReport, ask_cudla, dla_report_of, probe_dla

from ...maybe import missing

ONE, TWO = DlaDevice(0, 2, unified_addressing=True), DlaDevice(1, 2, unified_addressing=False)
ABSENT = Unavailable(Absence.NO_LIBRARY, "cuDLA cannot be queried: no libcudla")


@pytest.mark.parametrize(
    ("said", "report"),
    [
        (((1002001, 2), ONE, TWO), DlaReport(1002001, (ONE, TWO))),
        (((1, 0),), DlaReport(1, ())),  # as on Thor or a server
        ((ABSENT,), ABSENT),
    ],
)
def test_what_cudla_says_is_reported(said: tuple[Any, ...], report: Maybe[DlaReport]) -> None:
    """The answers of cuDLA: accelerators with attributes, no accelerator, or no library."""
    assert dla_report_of(ChildOutcome(ChildEnd.RETURNED, said)) == report


def test_accelerator_that_hangs_is_counted_without_attributes() -> None:
    """If the query of attributes hangs, the accelerators are known, and each has the reason."""
    report = dla_report_of(ChildOutcome(ChildEnd.TIMED_OUT, ((1, 2), ONE), "no answer"))
    unknown = Unavailable(Absence.FAILED, "no answer")
    assert report == DlaReport(1, (ONE, DlaDevice(1, unknown, unknown)))


@pytest.mark.parametrize(
    ("end", "absence"), [(ChildEnd.TIMED_OUT, Absence.TIMED_OUT), (ChildEnd.KILLED, Absence.FAILED)]
)
def test_probe_that_says_no_count_has_a_reason(end: ChildEnd, absence: Absence) -> None:
    """A hang and a crash are different absences, which say how the process ended."""
    report = missing(dla_report_of(ChildOutcome(end, (), "the process ended")))
    assert (report.absence, "the process ended" in report.reason) == (absence, True)


def test_machine_without_cudla_says_so() -> None:
    """A real child process on a machine without the library or the package reports no accelerator, with the reason."""
    report = probe_dla(60.0)
    if not isinstance(report, Unavailable):
        pytest.skip("this machine has libcudla")
    assert report.absence is Absence.NO_LIBRARY
    if importlib.util.find_spec("cuda") is None:
        assert isinstance(next(ask_cudla()), Unavailable)
