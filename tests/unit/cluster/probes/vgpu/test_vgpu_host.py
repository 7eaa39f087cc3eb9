import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from pydantic import TypeAdapter

from codecfleet.cluster.probes.gpus.nvml_child import read_nvml
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_report import CodecSession, DeviceProcess
from codecfleet.cluster.probes.vgpu.host import VgpuHostReport, probe_vgpu_host, with_migrations
from codecfleet.cluster.probes.vgpu.instances import VgpuCompatibility
from codecfleet.cluster.simulated.devices import SimulatedDevice
from codecfleet.testing.nvml.fake_nvml import FakeNvml
from codecfleet.testing.nvml.fake_nvml_state import FakeFbcSession
from tests.goldens import golden
from tests.simulated_gpus import gpu, node

from ...maybe import held, missing

GIB = 1 << 30
RUNNING = {
    "instance": 3251634213,
    "type_name": "NVIDIA A40-8Q",
    "vm": "12345678-1234-1234-1234-123456789abc",
    "licensed": False,
    "frame_rate_limit": 30,
}
HOST = gpu("A40", "GPU-host", virtualization="host", vgpu_scheduler="fixed share", vgpus=[RUNNING])
(VGPU,) = HOST.vgpus

PAGE = Path(__file__).parents[5] / "docs" / "nvidia" / "vgpu.md"
HOST_ITEMS = re.findall(r"^\| 2\.\d \| ([^|]*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
HOST_FUNCTIONS = set(re.findall(r"`(nvml\w+)`", " ".join(HOST_ITEMS)))
"""The functions of the guide's chapter 2, as docs/nvidia/vgpu.md lists them."""


class Recorder:
    """Passes calls to a library, and records the name of every function that is looked up."""

    def __init__(self, nvml: FakeNvml) -> None:
        self.nvml = nvml
        self.names: set[str] = set()

    def __getattr__(self, name: str) -> object:
        self.names.add(name)
        return getattr(self.nvml, name)


def _nvml(device: SimulatedDevice) -> tuple[FakeNvml, object]:
    nvml = FakeNvml(node(device))
    nvml.nvmlInit()
    return nvml, nvml.nvmlDeviceGetHandleByIndex(0)


def _report(nvml: FakeNvml, handle: object) -> VgpuHostReport:
    return held(probe_vgpu_host(nvml, handle))


def _busy_host() -> tuple[FakeNvml, object]:
    nvml, handle = _nvml(HOST)
    vgpu = nvml.device("GPU-host").vgpus[0]
    vgpu.used_bytes, vgpu.sm_percent, vgpu.encoder_percent, vgpu.decoder_percent = 5 * GIB, 40, 30, 20
    vgpu.accounting = True
    vgpu.processes = [DeviceProcess(4711, 2 * GIB, 35, 25, 15)]
    vgpu.sessions = [CodecSession(1, 4711, "hevc", 1920, 1080, 60, 8000)]
    vgpu.captures = [FakeFbcSession(7, 4711)]
    return nvml, handle


def test_every_property_is_read() -> None:
    """NVML's values for a vGPU, its GPU and its type are in tests/golden/vgpu_host.json."""
    report = _report(*_busy_host())
    (kind,) = [each for each in report.types if each.type_id == VGPU.type_id]
    found = replace(report, types=(kind,), supported=(), why_creatable={}, creatable=())
    text = TypeAdapter(VgpuHostReport).dump_json(found, indent=1).decode() + "\n"
    assert text == golden("vgpu_host.json", text)


def test_rules_and_drivers_list_agree_on_a_shared_gpu() -> None:
    """Beside a running vGPU, only types with the same frame buffer can be created, and each type has a reason."""
    report = _report(*_busy_host())
    assert report.creatable == tuple(
        each.type_id for each in report.types if report.why_creatable[str(each.type_id)].creatable
    )
    assert all("driver" not in each.reason for each in report.why_creatable.values())
    assert {each.creatable for each in report.why_creatable.values()} == {True, False}


def test_drivers_list_wins_over_the_rules() -> None:
    """A type that the driver lists but the rules deny can be created, and the reason names both."""
    nvml, handle = _busy_host()

    class Mixing(Recorder):
        def nvmlDeviceGetCreatableVgpus(self, asked: object) -> list[int]:  # noqa: N802 - NVML's name
            return self.nvml.nvmlDeviceGetSupportedVgpus(asked)  # type: ignore[no-any-return]

    report = held(probe_vgpu_host(Mixing(nvml), handle))
    denied = [each for each in report.why_creatable.values() if "but the driver" in each.reason]
    assert denied
    assert all(each.creatable for each in report.why_creatable.values())


@pytest.mark.parametrize("listed", [True, False])
def test_mig_host_explains_types_by_its_gpu_instances(listed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """In MIG mode, a type takes a free GPU instance of its profile, even if an old driver lists no instances."""
    running = {"instance": 1, "type_name": "GRID A100X-1-5C", "vm": "a"}
    device = gpu("A100 40GB", "GPU-host", virtualization="host", mig=["1g.5gb", "1g.5gb"], vgpus=[running])
    nvml, handle = _nvml(device)
    if not listed:
        nvml.faults["nvmlDeviceGetGpuInstances"] = int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    report = _report(nvml, handle)
    assert held(report.active)[0].gpu_instance == 1
    assert report.creatable == (device.vgpus[0].type_id,)
    reasons = {number: each.reason for number, each in report.why_creatable.items()}
    if listed:
        assert reasons.pop(str(device.vgpus[0].type_id)) == "GPU instance 2 has the type's profile and is free"
        assert set(reasons.values()) == {"no free GPU instance has the profile that the type takes"}
    else:
        assert all("the GPU instances cannot be listed" in reason for reason in reasons.values())


def test_every_function_of_the_guides_host_tables_is_called() -> None:
    """On a host, each NVML function in the tables of the guide's chapter 2 is called."""
    nvml, _ = _busy_host()
    recorder = Recorder(nvml)
    read_nvml(recorder)
    assert len(HOST_FUNCTIONS) > 30
    assert HOST_FUNCTIONS - recorder.names == set()
    assert HOST_FUNCTIONS - set(nvml.calls) == set()


def test_refused_questions_become_reasons_and_hide_no_others() -> None:
    """A function that the driver refuses or lacks causes one absence; all other values are still read."""
    nvml, handle = _busy_host()
    nvml.faults = {
        "nvmlVgpuInstanceGetMdevUUID": 3,
        "nvmlDeviceGetVgpuUtilization": 4,
        "nvmlDeviceGetVgpuMetadata": 13,
        "nvmlVgpuTypeGetLicense": 2,
        "nvmlVgpuInstanceGetAccountingPids": 3,
    }
    report = _report(nvml, handle)
    (found,) = held(report.active)
    refused = {
        Absence.NOT_SUPPORTED: (found.mdev_uuid, found.accounting, report.types[0].licence),
        Absence.NO_PERMISSION: (found.use.sm_percent, found.use.decoder_percent),
        Absence.FUNCTION_NOT_FOUND: (found.compatibility, report.metadata),
    }
    assert all(missing(each).absence is absence for absence, answers in refused.items() for each in answers)
    assert found.uuid == VGPU.uuid


def test_guest_without_a_driver_has_no_version() -> None:
    """If a guest has not loaded its driver, there is a reason in place of the driver's version."""
    nvml, handle = _busy_host()
    nvml.device("GPU-host").vgpus[0].guest_driver = ""
    report = _report(nvml, handle)
    assert not isinstance(report.active, Unavailable)
    assert isinstance(report.active[0].vm_driver_version, Unavailable)


@pytest.mark.parametrize("mode", [0, 1, 2, 4])
def test_only_a_host_hosts(mode: int) -> None:
    """Only the mode HOST_VGPU leads to a host's report and to calls about vGPUs."""
    nvml, _ = _nvml(replace(HOST, virtualization=mode, vgpus=()))
    assert read_nvml(nvml).vgpu_hosts == {}
    assert not any("Vgpu" in name for name in nvml.calls)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT])
def test_both_refusals_of_platforms_without_vgpu_are_understood(code: int) -> None:
    """Both NOT_SUPPORTED and INVALID_ARGUMENT mean that there are no vGPUs (guide 2.1)."""
    nvml, handle = _nvml(HOST)
    nvml.faults = {"nvmlDeviceGetSupportedVgpus": code}
    found = missing(probe_vgpu_host(nvml, handle))
    assert found.absence is Absence.NOT_SUPPORTED


class Moving:
    """A library on whose further GPUs a vGPU can move only cold, or not at all, depending on the GPU's number."""

    def __init__(self, nvml: FakeNvml) -> None:
        self.nvml = nvml

    def __getattr__(self, name: str) -> object:
        return getattr(self.nvml, name)

    def nvmlDeviceGetVgpuMetadata(self, handle: object) -> object:  # noqa: N802 - NVML's name
        """Return the metadata of a GPU, marked with its number."""
        found = self.nvml.nvmlDeviceGetVgpuMetadata(handle)
        found.revision = self.nvml.nvmlDeviceGetIndex(handle)
        return found

    def nvmlGetVgpuCompatibility(self, _vgpu: object, gpu: object) -> object:  # noqa: N802 - NVML's name
        states, limits = ((0xF, 0), (0x1, 0x2), (0, 0x4))[gpu.revision]  # type: ignore[attr-defined]
        return SimpleNamespace(vgpuVmCompatibility=states, compatibilityLimitCode=limits)


def test_where_a_vgpu_could_move_is_asked_of_each_other_gpu() -> None:
    """Each running vGPU is compared with every other GPU of this host that hosts vGPUs, but not with its own."""
    others = tuple(replace(HOST, uuid=f"GPU-other{number}", vgpus=()) for number in (1, 2))
    nvml = Moving(FakeNvml(node(HOST, *others)))
    nvml.nvmlInit()  # type: ignore[operator]
    handles = {device.uuid: nvml.nvmlDeviceGetHandleByIndex(number) for number, device in enumerate((HOST, *others))}  # type: ignore[operator]
    hosts = {uuid: probe_vgpu_host(nvml, handle) for uuid, handle in handles.items()}
    found = with_migrations(
        nvml, handles, {uuid: host for uuid, host in hosts.items() if isinstance(host, VgpuHostReport)}
    )
    assert found[HOST.uuid].migrations == {
        str(VGPU.instance): {
            "GPU-other1": VgpuCompatibility(("cold",), ("guest driver",)),
            "GPU-other2": VgpuCompatibility((), ("GPU",)),
        }
    }
    assert found["GPU-other1"].migrations == {}
    alone = {HOST.uuid: found[HOST.uuid]}
    assert with_migrations(nvml, handles, alone)[HOST.uuid].migrations == {}
