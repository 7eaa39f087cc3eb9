import re
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
from pydantic import TypeAdapter

from codecfleet.cluster.probes.gpus.devices import probe_nvml
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_report import DeviceKind
from codecfleet.cluster.probes.report.engines import Engine
from codecfleet.cluster.probes.vgpu.guest import (
    GUEST_ABSENCES,
    GUEST_PROPERTIES,
    LATER_NAMES,
    EngineUse,
    GuestProperty,
    GuestReturn,
    GuestView,
    VgpuGuestReport,
    guest_absence,
    passthrough_or_vgpu,
    probe_vgpu_guest,
)
from codecfleet.cluster.probes.vgpu.values import VirtualizationMode, virtualization
from codecfleet.cluster.simulated.devices import SimulatedDevice, SimulatedNode
from codecfleet.testing.nvml.fake_nvml import FakeNvml

GUEST = SimulatedDevice(
    kind=DeviceKind.VGPU,
    uuid="GPU-random",
    name="NVIDIA A40-8Q",
    architecture="ampere",
    compute_capability="8.6",
    pci_bus_id="00000000:02:00.0",
    memory_bytes=8 << 30,
    max_video_clock_mhz=None,
    engines={Engine.NVDEC: 1, Engine.NVENC: 1},
    virtualization=2,
)


def _nvml(device: SimulatedDevice) -> tuple[FakeNvml, object]:
    node = SimulatedNode(name="guest", cores=8, memory_bytes=32 << 30, driver="580.95.05", devices=(device,))
    nvml = FakeNvml(node)
    nvml.nvmlInit()
    return nvml, nvml.nvmlDeviceGetHandleByIndex(0)


@pytest.mark.parametrize("row", GUEST_PROPERTIES, ids=lambda row: f"{row.section} {row.function}")
def test_guest_table_names_functions_that_the_binding_has(row: GuestProperty) -> None:
    """Every function of the guest tables exists under that name, the guide's misprint corrected."""
    assert callable(getattr(pynvml, row.function))


def test_guest_table_covers_every_section_of_the_guide() -> None:
    """Each of the eight tables of 3.3.2 has as many functions as the guide's."""
    rows = [row.section for row in GUEST_PROPERTIES]
    assert {section: rows.count(section) for section in rows} == {
        "3.3.2.1": 4,
        "3.3.2.2": 2,
        "3.3.2.3": 3,
        "3.3.2.4": 7,
        "3.3.2.5": 5,
        "3.3.2.6": 6,
        "3.3.2.7": 5,
        "3.3.2.8": 4,
    }


def test_functions_that_succeed_with_nonsense_are_not_asked() -> None:
    """A compute mode of PROHIBITED and a VBIOS of zero are never read as facts about a vGPU."""
    for function in ("nvmlDeviceGetComputeMode", "nvmlDeviceGetVbiosVersion"):
        absence = guest_absence(function)
        assert absence is not None
        assert absence.absence is Absence.DOES_NOT_APPLY
    returns = {row.function: row.returns for row in GUEST_PROPERTIES}
    assert returns["nvmlDeviceGetComputeMode"] is GuestReturn.MEANINGLESS
    assert returns["nvmlDeviceGetDriverModel"] is GuestReturn.WINDOWS_ONLY


def test_random_uuid_is_still_asked_for() -> None:
    """A vGPU's UUID selects it today, so it is asked for although it identifies nothing tomorrow."""
    assert guest_absence("nvmlDeviceGetUUID") is None
    assert guest_absence("nvmlDeviceGetEncoderUtilization") is None


def test_later_names_of_a_function_do_not_apply_either() -> None:
    """A function that NVML renamed or versioned is as meaningless on a vGPU as the one in the guide."""
    assert all(guest_absence(later) == GUEST_ABSENCES[guide] for later, guide in LATER_NAMES.items())
    assert all(callable(getattr(pynvml, later)) for later in LATER_NAMES)


def test_virtualization_mode_tells_passthrough_from_vgpu() -> None:
    """Only the two guest modes are a guest's view; a host, bare metal and an unknown mode are none."""
    assert passthrough_or_vgpu(virtualization(1)) is GuestView.PASSTHROUGH
    assert passthrough_or_vgpu(virtualization(2)) is GuestView.VGPU
    for mode in (0, 3, 4, 77):
        assert isinstance(passthrough_or_vgpu(virtualization(mode)), Unavailable)
    assert virtualization(4) is VirtualizationMode.HOST_VSGA


def test_guest_report_has_no_zero_for_what_a_vgpu_does_not_have() -> None:
    """On a vGPU nothing of the guide's tables is called, and each function is reported with its reason."""
    nvml, handle = _nvml(GUEST)
    report = probe_vgpu_guest(nvml, handle)
    assert isinstance(report, VgpuGuestReport)
    assert report.view is GuestView.VGPU
    assert not report.uuid_is_stable
    assert report.uuid == "GPU-random"
    assert report.does_not_apply == GUEST_ABSENCES
    assert not set(nvml.calls) & set(GUEST_ABSENCES)


def test_no_property_that_a_vgpu_lacks_becomes_a_zero() -> None:
    """In the whole report of a guest, each function of the tables went unasked, and what it feeds has its reason."""
    nvml, _ = _nvml(GUEST)
    report = probe_nvml(nvml, sleep=lambda _: None)
    (device,) = report.devices
    assert not set(nvml.calls) & set(GUEST_ABSENCES)
    assert device.kind is DeviceKind.VGPU
    assert not device.uuid_is_stable
    assert isinstance(device.max_video_clock_mhz, Unavailable)
    assert isinstance(device.health.ecc_uncorrected, Unavailable)
    for name in ("serial", "vbios_version", "compute_mode", "temperature_c", "power_w", "pcie_width", "fan_percent"):
        assert isinstance(device.facts[name], Unavailable), name


def test_passed_through_gpu_has_all_properties() -> None:
    """In a guest that owns the whole GPU every property applies and the UUID is the GPU's own."""
    nvml, handle = _nvml(replace(GUEST, kind=DeviceKind.GPU, virtualization=1))
    report = probe_vgpu_guest(nvml, handle)
    assert isinstance(report, VgpuGuestReport)
    assert report.uuid_is_stable
    assert report.does_not_apply == {}


def test_the_use_of_each_engine_is_read() -> None:
    """The four engines of guide 3.2, each under its own name."""
    nvml, handle = _nvml(GUEST)
    device = nvml.device(GUEST.uuid)
    device.gpu_percent, device.memory_percent, device.encoder_percent, device.decoder_percent = 40, 30, 20, 10
    report = probe_vgpu_guest(nvml, handle)
    assert isinstance(report, VgpuGuestReport)
    assert report.use == EngineUse(40, 30, 20, 10)


def test_guest_use_that_cannot_be_read_is_an_absence() -> None:
    """An engine whose use NVML refuses has a reason, not a zero."""
    nvml, handle = _nvml(
        replace(GUEST, faults={"nvmlDeviceGetEncoderUtilization": 3, "nvmlDeviceGetUtilizationRates": 4})
    )
    report = probe_vgpu_guest(nvml, handle)
    assert isinstance(report, VgpuGuestReport)
    assert isinstance(report.use.encoder_percent, Unavailable)
    assert isinstance(report.use.graphics_percent, Unavailable)
    assert isinstance(report.use.memory_controller_percent, Unavailable)
    assert report.use.decoder_percent == 0


def test_host_is_not_a_guest() -> None:
    """On a host of vGPUs, or on bare metal, there is no guest's view."""
    nvml, handle = _nvml(replace(GUEST, kind=DeviceKind.GPU, virtualization=0))
    assert isinstance(probe_vgpu_guest(nvml, handle), Unavailable)


def test_guest_report_survives_json() -> None:
    """A guest's report read back from JSON is the same value."""
    adapter = TypeAdapter(VgpuGuestReport)
    nvml, handle = _nvml(GUEST)
    report = probe_vgpu_guest(nvml, handle)
    assert adapter.validate_python(adapter.dump_python(report, mode="json")) == report


def test_guest_tables_agree_with_the_guide_where_it_lies_beside_the_checkout() -> None:
    """Every NVML function that chapter 3 of the guide names is in the tables, and the other way round."""
    guide = Path(__file__).parents[6] / "shared" / "seeds" / "vgpu_management_sdk_guide.txt"
    if not guide.exists():
        pytest.skip("the guide is not beside this checkout")
    text = guide.read_text(encoding="utf-8")
    tables = text[text.index("3.3.2.1.") : text.index("3.3.3.")]
    named = {name.replace("nvmlDevicenvmlDevice", "nvmlDevice") for name in re.findall(r"\bnvml\w+(?=\(\))", tables)}
    assert named == {row.function for row in GUEST_PROPERTIES}
