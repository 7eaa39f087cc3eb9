import re
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from codecfleet.cluster.probes.gpus.nvml_child import NvmlAnswers, read_nvml
from codecfleet.cluster.probes.report.absence import Unavailable
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.device_report import DeviceReport
from codecfleet.cluster.probes.vgpu.guest import (
    GUEST_ABSENCES,
    LATER_NAMES,
    EngineUse,
    VgpuGuestReport,
    guest_absence,
)
from codecfleet.cluster.simulated.devices import SimulatedDevice
from codecfleet.testing.nvml.fake_nvml import FakeNvml
from tests.simulated_gpus import gpu, node

from ...maybe import held

GUEST = gpu("L40S", "GPU-random", name="NVIDIA L40S-12Q", memory_gib=12, virtualization="guest")
PASSED_THROUGH = gpu("L40S", "GPU-own", virtualization="passthrough")


def _nvml(device: SimulatedDevice) -> FakeNvml:
    return FakeNvml(node(device))


def _asked(nvml: FakeNvml) -> NvmlAnswers:
    return read_nvml(nvml)


def _reports(nvml: FakeNvml) -> tuple[DeviceReport, VgpuGuestReport]:
    found = _asked(nvml)
    (device,), (report,) = held(found.nvml).devices, found.vgpu_guests.values()
    return device, report


def test_later_names_of_a_function_do_not_apply_either() -> None:
    """A function that NVML renamed or versioned is as meaningless on a vGPU as the function in the guide."""
    assert all(guest_absence(later) == GUEST_ABSENCES[guide] for later, guide in LATER_NAMES.items())
    assert all(callable(getattr(pynvml, function)) for function in (*LATER_NAMES, *GUEST_ABSENCES))


@pytest.mark.parametrize("mode", [0, 3, 4, 77])
def test_host_is_not_a_guest(mode: int) -> None:
    """Only the two guest modes give a guest's report; a host, bare metal and unknown modes give none."""
    assert _asked(_nvml(replace(PASSED_THROUGH, virtualization=mode))).vgpu_guests == {}


def test_no_property_that_a_vgpu_lacks_becomes_a_zero() -> None:
    """A guest's report calls no function in the tables; each of their values has a reason instead."""
    nvml = _nvml(GUEST)
    device, report = _reports(nvml)
    assert not set(nvml.calls) & set(GUEST_ABSENCES)
    assert (report.view, report.uuid, report.uuid_is_stable) == ("vgpu", "GPU-random", False)
    assert report.does_not_apply == GUEST_ABSENCES
    assert (device.kind, device.uuid_is_stable) == (DeviceKind.VGPU, False)
    assert (device.engines, device.health.lost) == ((), "")
    assert isinstance(device.max_video_clock_mhz, Unavailable)
    assert isinstance(device.health.ecc_uncorrected, Unavailable)
    for name in ("serial", "vbios_version", "compute_mode", "temperature_c", "power_w", "pcie_width", "fan_percent"):
        assert isinstance(device.facts[name], Unavailable), name


def test_passed_through_gpu_has_all_properties() -> None:
    """In a guest that owns the whole GPU, every property applies, and the UUID is that of the GPU."""
    _, report = _reports(_nvml(PASSED_THROUGH))
    assert (report.view, report.uuid_is_stable, report.does_not_apply) == ("passthrough", True, {})


def test_the_use_of_each_engine_is_read() -> None:
    """The four engines of guide 3.2 each have a value under their own name."""
    nvml = _nvml(GUEST)
    device = nvml.device(GUEST.uuid)
    device.gpu_percent, device.memory_percent, device.encoder_percent, device.decoder_percent = 40, 30, 20, 10
    assert _reports(nvml)[1].use == EngineUse(40, 30, 20, 10)


def test_guest_use_that_cannot_be_read_is_an_absence() -> None:
    """If NVML refuses the use of an engine, there is a reason, not a zero."""
    faults = {"nvmlDeviceGetEncoderUtilization": 3, "nvmlDeviceGetUtilizationRates": 4}
    _, report = _reports(_nvml(replace(GUEST, faults=faults)))
    assert isinstance(report.use.encoder_percent, Unavailable)
    assert isinstance(report.use.graphics_percent, Unavailable)
    assert isinstance(report.use.memory_controller_percent, Unavailable)
    assert report.use.decoder_percent == 0


def test_guest_tables_agree_with_the_guide_where_it_lies_beside_the_checkout() -> None:
    """The tables contain exactly the NVML functions that chapter 3 of the guide names."""
    guide = Path(__file__).parents[6] / "shared" / "seeds" / "vgpu_management_sdk_guide.txt"
    if not guide.exists():
        pytest.skip("the guide is not beside this checkout")
    text = guide.read_text(encoding="utf-8")
    tables = text[text.index("3.3.2.1.") : text.index("3.3.3.")]
    named = {name.replace("nvmlDevicenvmlDevice", "nvmlDevice") for name in re.findall(r"\bnvml\w+(?=\(\))", tables)}
    assert named == {*GUEST_ABSENCES, "nvmlDeviceGetUUID"}
