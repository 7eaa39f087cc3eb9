import importlib.util

import pytest

from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.probes.report.absence import Absence, Maybe, Unavailable
from codecfleet.cluster.probes.tegra.dla import DlaReport, ask_cudla, dla_report_of, probe_dla

from ...maybe import missing

ABSENT = Unavailable(Absence.NO_LIBRARY, "cuDLA cannot be queried: no libcudla")


@pytest.mark.parametrize("said", [DlaReport(1_002_001, 2), DlaReport(1, 0), ABSENT])  # the second: Thor or a server
def test_what_cudla_says_is_reported(said: Maybe[DlaReport]) -> None:
    """The answers of cuDLA: accelerators, no accelerator, or no library."""
    assert dla_report_of(ChildOutcome(ChildEnd.RETURNED, (said,))) == said


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
        assert isinstance(ask_cudla(), Unavailable)
