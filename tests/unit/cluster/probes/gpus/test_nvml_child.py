"""NVML's answers in parts and over several polls: a part that was answered counts, whatever follows."""

from typing import Any

import pynvml

from codecfleet.cluster.probes.child.child import ChildEnd, ChildOutcome
from codecfleet.cluster.probes.gpus.devices import NvmlReport
from codecfleet.cluster.probes.gpus.health_poll import HealthPoll
from codecfleet.cluster.probes.gpus.live_health import DeviceHealth
from codecfleet.cluster.probes.gpus.nvml_child import ask_nvml, probe_nvml_in_child, read_nvml
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_report import CodecSession
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.cluster.survey.known_gpus import NO_GPUS, listed
from codecfleet.testing import FakeNvml

from ...maybe import held


class ExchangedDriver:
    """A library that can be opened only once, because the driver is then replaced."""

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
    """The devices stay in the report, although their vGPUs can no longer be queried."""
    node = load_fleet("vgpu").nodes[0]
    found = read_nvml(ExchangedDriver(FakeNvml(node)))
    assert len(held(found.nvml).devices) == 1
    assert found.vgpu_hosts == {}
    assert read_nvml(FakeNvml(node)).vgpu_hosts


def test_devices_are_told_before_their_vgpus_are_asked() -> None:
    """A child that is killed during queries about vGPUs has already reported the devices."""
    first = next(ask_nvml())
    assert first.keys() == {"nvml"}
    killed = ChildOutcome(ChildEnd.TIMED_OUT, (first,), "no answer within 15 s")
    found = probe_nvml_in_child(15.0, run=lambda *_: killed)
    assert isinstance(found.nvml, NvmlReport)
    assert found.problems == ("no answer within 15 s",)


def test_a_child_that_says_nothing_is_told_as_it_ended() -> None:
    """If there is no part, the absence says how the child ended."""
    found = probe_nvml_in_child(15.0, run=lambda *_: ChildOutcome(ChildEnd.TIMED_OUT, (), "no answer within 15 s"))
    assert found.nvml == Unavailable(Absence.TIMED_OUT, "no answer within 15 s")


def _polled(poll: HealthPoll) -> tuple[DeviceHealth, ...]:
    found = poll.poll(frozenset())
    assert isinstance(found, tuple)
    return found


def test_a_slice_has_no_encoder_sessions_of_its_own() -> None:
    """The driver counts the encoder sessions of a whole GPU, so slices report none of their own."""
    nvml = FakeNvml(load_fleet("a100-mig").nodes[0])
    for device in nvml.devices:
        device.sessions = [CodecSession(1, 4711, "h264", 1920, 1080, 30, 900)]
    slices = [each for each in _polled(HealthPoll(nvml)) if each.is_slice]
    assert slices
    assert all(isinstance(each.encoder_sessions, Unavailable) for each in slices)


def test_a_gpu_that_comes_back_is_asked_for_its_vgpus() -> None:
    """A host's GPU was lost when polling began; once it answers, it is queried as a host."""
    nvml = FakeNvml(next(node for node in load_fleet("vgpu").nodes if any(each.vgpus for each in node.devices)))
    number = next(index for index, device in enumerate(nvml.devices) if device.simulated.vgpus)
    nvml.devices[number].lost_code = pynvml.NVML_ERROR_GPU_IS_LOST
    poll = HealthPoll(nvml)
    assert _polled(poll)[number].vgpus == ()
    nvml.devices[number].lost_code = 0
    assert _polled(poll)[number].vgpus


def test_a_silent_driver_is_not_a_machine_without_gpus() -> None:
    """An error of the driver is kept, so that the GPUs are queried again."""
    found = listed("here", Unavailable(Absence.TIMED_OUT, "no answer within 10 s"))
    assert found.trouble == "NVML did not list this machine's GPUs: no answer within 10 s"
    assert (found.devices, found.shown, NO_GPUS.trouble) == ((), None, "")
