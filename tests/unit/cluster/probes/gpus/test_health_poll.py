"""One poll after another of the same devices: what a slice does not have of its own, and a GPU that comes back."""

import pynvml

from codecfleet.cluster.probes.gpus.health_poll import HealthPoll
from codecfleet.cluster.probes.gpus.live_health import DeviceHealth
from codecfleet.cluster.probes.report.absence import Unavailable
from codecfleet.cluster.probes.report.device_report import CodecSession
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing import FakeNvml


def _polled(poll: HealthPoll) -> tuple[DeviceHealth, ...]:
    found = poll.poll(frozenset())
    assert isinstance(found, tuple)
    return found


def test_a_slice_has_no_encoder_sessions_of_its_own() -> None:
    """The driver counts a GPU's: what runs on one slice would else pass for a stranger's on every other."""
    nvml = FakeNvml(load_fleet("a100-mig").nodes[0])
    for device in nvml.devices:
        device.sessions = [CodecSession(1, 4711, "h264", 1920, 1080, 30, 900)]
    slices = [each for each in _polled(HealthPoll(nvml)) if each.is_slice]
    assert slices
    assert all(isinstance(each.encoder_sessions, Unavailable) for each in slices)


def test_a_gpu_that_comes_back_is_asked_for_its_vgpus() -> None:
    """A host's GPU was lost when polling began: once it answers, it is asked for all that a host knows."""
    nvml = FakeNvml(next(node for node in load_fleet("vgpu").nodes if any(each.vgpus for each in node.devices)))
    number = next(index for index, device in enumerate(nvml.devices) if device.simulated.vgpus)
    nvml.devices[number].lost_code = pynvml.NVML_ERROR_GPU_IS_LOST
    poll = HealthPoll(nvml)
    assert _polled(poll)[number].vgpus == ()
    nvml.devices[number].lost_code = 0
    assert _polled(poll)[number].vgpus
