import re
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from codecfleet.cluster.probes.gpus.devices import probe_nvml
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.device_report import DeviceReport
from codecfleet.cluster.probes.vgpu.guest import GUEST_ABSENCES, LATER_NAMES, guest_absence
from codecfleet.cluster.simulated.devices import SimulatedDevice
from codecfleet.testing.nvml.fake_nvml import FakeNvml
from tests.simulated_gpus import gpu, node

from ...maybe import held, missing

GUEST = gpu("L40S", "GPU-random", name="NVIDIA L40S-12Q", memory_gib=12, virtualization="guest")
PASSED_THROUGH = gpu("L40S", "GPU-own", virtualization="passthrough")


def _nvml(device: SimulatedDevice) -> FakeNvml:
    return FakeNvml(node(device))


def _report(nvml: FakeNvml) -> DeviceReport:
    (device,) = probe_nvml(nvml).devices
    return device


def test_later_names_of_a_function_do_not_apply_either() -> None:
    """A function that NVML renamed or versioned is as meaningless on a vGPU as the function in the guide."""
    assert all(guest_absence(later) == GUEST_ABSENCES[guide] for later, guide in LATER_NAMES.items())
    assert all(callable(getattr(pynvml, function)) for function in (*LATER_NAMES, *GUEST_ABSENCES))


@pytest.mark.parametrize("mode", [0, 3, 4, 77])
def test_host_is_not_a_guest(mode: int) -> None:
    """Only in the two guest modes are licences queried; a host, bare metal and unknown modes have none."""
    device = _report(_nvml(replace(PASSED_THROUGH, virtualization=mode)))
    assert missing(device.licences).absence is Absence.DOES_NOT_APPLY


def test_no_property_that_a_vgpu_lacks_becomes_a_zero() -> None:
    """A guest's report calls no function in the tables; each of their values has a reason instead."""
    nvml = _nvml(GUEST)
    device = _report(nvml)
    assert not set(nvml.calls) & set(GUEST_ABSENCES)
    assert (device.virtualization, device.uuid, device.uuid_is_stable) == ("vgpu", "GPU-random", False)
    assert (device.kind, held(device.licences).licensing_supported) == (DeviceKind.VGPU, True)
    assert (device.engines, device.health.lost) == ((), "")
    assert isinstance(device.max_video_clock_mhz, Unavailable)
    assert isinstance(device.health.ecc_uncorrected, Unavailable)
    for name in ("serial", "vbios_version", "compute_mode", "temperature_c", "power_w", "pcie_width", "fan_percent"):
        assert isinstance(device.facts[name], Unavailable), name


def test_passed_through_gpu_has_all_properties() -> None:
    """In a guest that owns the whole GPU, every property applies, and the UUID is that of the GPU."""
    nvml = _nvml(PASSED_THROUGH)
    device = _report(nvml)
    assert (device.virtualization, device.uuid_is_stable) == ("passthrough", True)
    assert set(GUEST_ABSENCES) <= set(nvml.calls)


def test_the_use_of_each_engine_is_read() -> None:
    """The four engines of guide 3.2 each have a value under their own name."""
    nvml = _nvml(GUEST)
    device = nvml.device(GUEST.uuid)
    device.gpu_percent, device.memory_percent, device.encoder_percent, device.decoder_percent = 40, 30, 20, 10
    use = _report(nvml).use
    assert (use.gpu_percent, use.memory_percent, use.encoder_percent, use.decoder_percent) == (40, 30, 20, 10)


def test_guest_use_that_cannot_be_read_is_an_absence() -> None:
    """If NVML refuses the use of an engine, there is a reason, not a zero."""
    faults = {"nvmlDeviceGetEncoderUtilization": 3, "nvmlDeviceGetUtilizationRates": 4}
    use = _report(_nvml(replace(GUEST, faults=faults))).use
    assert isinstance(use.encoder_percent, Unavailable)
    assert isinstance(use.gpu_percent, Unavailable)
    assert isinstance(use.memory_percent, Unavailable)
    assert use.decoder_percent == 0


def test_guest_tables_agree_with_the_guide_where_it_lies_beside_the_checkout() -> None:
    """The tables contain exactly the NVML functions that chapter 3 of the guide names."""
    guide = Path(__file__).parents[6] / "shared" / "seeds" / "vgpu_management_sdk_guide.txt"
    if not guide.exists():
        pytest.skip("the guide is not beside this checkout")
    text = guide.read_text(encoding="utf-8")
    tables = text[text.index("3.3.2.1.") : text.index("3.3.3.")]
    named = {name.replace("nvmlDevicenvmlDevice", "nvmlDevice") for name in re.findall(r"\bnvml\w+(?=\(\))", tables)}
    assert named == {*GUEST_ABSENCES, "nvmlDeviceGetUUID"}
