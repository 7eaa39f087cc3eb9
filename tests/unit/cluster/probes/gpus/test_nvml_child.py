"""What NVML says reaches its asker part by part: a part that was reached counts, whatever comes after it."""

from typing import Any

from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.probes.gpus.devices import NvmlReport
from codecfleet.cluster.probes.gpus.nvml_child import ask_nvml, probe_nvml_in_child, read_nvml
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing.nvml.fake_nvml import FakeNvml

from ...maybe import held


class ExchangedDriver:
    """A library that serves one probe, and refuses to be opened again: its driver was upgraded meanwhile."""

    def __init__(self, nvml: FakeNvml) -> None:
        self._nvml = nvml
        self._opened = 0

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's own name
        """Open the library once."""
        self._opened += 1
        if self._opened > 1:
            raise self._nvml.NVMLError(18)
        self._nvml.nvmlInit()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nvml, name)


def test_a_driver_that_is_exchanged_between_two_questions_keeps_the_first_answer() -> None:
    """The devices were read; that their vGPUs could not be asked any more is not a reason to forget them."""
    node = load_fleet("vgpu").nodes[0]
    found = read_nvml(ExchangedDriver(FakeNvml(node)), sleep=lambda _: None)
    assert len(held(found.nvml).devices) == 1
    assert (found.vgpu_hosts, found.vgpu_guests) == ({}, {})
    assert read_nvml(FakeNvml(node), sleep=lambda _: None).vgpu_hosts


def test_devices_are_told_before_their_vgpus_are_asked() -> None:
    """A child that is killed among the vGPUs has told of the devices."""
    first = next(ask_nvml())
    assert first.keys() == {"nvml"}
    killed = ChildOutcome(ChildEnd.TIMED_OUT, (first,), "no answer within 15 s")
    found = probe_nvml_in_child(15.0, run=lambda *_: killed)
    assert isinstance(found.nvml, NvmlReport)
    assert found.problems == ("no answer within 15 s",)


def test_a_child_that_says_nothing_is_told_as_it_ended() -> None:
    """Without any part there is no report, but the way the child ended."""
    found = probe_nvml_in_child(15.0, run=lambda *_: ChildOutcome(ChildEnd.TIMED_OUT, (), "no answer within 15 s"))
    assert found.nvml == Unavailable(Absence.TIMED_OUT, "no answer within 15 s")
