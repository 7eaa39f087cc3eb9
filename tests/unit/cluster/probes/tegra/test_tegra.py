from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.cluster.placement.build import inventory_of_fleet, node_of_report
from codecfleet.cluster.probes.report.absence import Absence, Maybe, Unavailable
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.engines import Engine
from codecfleet.cluster.probes.tegra.dla import DlaReport
from codecfleet.cluster.probes.tegra.memory import Allocatable, MemorySource
from codecfleet.cluster.probes.tegra.module import (
    CodecInterface,
    CudaAnswers,
    L4tRelease,
    Monitor,
    Soc,
    TegraIdentity,
    TegraReport,
    detect_tegra,
    monitor_for,
    probe_tegra,
)
from codecfleet.cluster.probes.tegra.tegrastats import TegraStats, parse_tegrastats
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing.fleet.simulated_report import simulated_report

from ...maybe import held, missing

NONE = Unavailable(Absence.NO_LIBRARY, "not here")
RELEASE_36 = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 2025\n"
RELEASE_38 = "# R38 (release), REVISION: 4.0, GCID: 1, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 2026\n"


def _machine(root: Path, compatible: str = "", model: str = "", release: str = "") -> Path:
    for name, text in (
        ("proc/device-tree/compatible", compatible),
        ("proc/device-tree/model", model),
        ("etc/nv_tegra_release", release),
    ):
        if text:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return root


def _orin(root: Path) -> Path:
    return _machine(
        root,
        "nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0",
        "NVIDIA Jetson AGX Orin\0",
        RELEASE_36,
    )


def _thor(root: Path) -> Path:
    return _machine(root, "nvidia,p3971-0089\0nvidia,tegra264\0", "NVIDIA Jetson AGX Thor\0", RELEASE_38)


def _report(
    root: Path, cuda: CudaAnswers | None = None, stats: Maybe[TegraStats] = NONE, dla: Maybe[DlaReport] = NONE
) -> TegraReport:
    return held(probe_tegra(root, cuda or CudaAnswers(), ask_stats=lambda _: stats, ask_dla=lambda _: dla))


def test_orin_and_thor_are_known_by_their_device_tree(tmp_path: Path) -> None:
    """The device tree names the SoC, and the release file names the Jetson Linux."""
    orin = detect_tegra(_orin(tmp_path / "orin"))
    thor = held(detect_tegra(_thor(tmp_path / "thor")))
    assert orin == TegraIdentity(Soc.ORIN, "NVIDIA Jetson AGX Orin", L4tRelease(36, "4.3"))
    assert (thor.soc, thor.l4t) == (Soc.THOR, L4tRelease(38, "4.0"))


def test_container_without_a_device_tree_is_still_a_tegra(tmp_path: Path) -> None:
    """A board's name or the release file is enough to recognise a Tegra."""
    by_model = held(detect_tegra(_machine(tmp_path / "a", model="NVIDIA Jetson Xavier NX Developer Kit\0")))
    by_release = held(detect_tegra(_machine(tmp_path / "b", release=RELEASE_36)))
    assert (by_model.soc, isinstance(by_model.l4t, Unavailable)) == (Soc.XAVIER, True)
    assert by_release.soc is Soc.OTHER


@pytest.mark.parametrize(
    ("compatible", "model"),
    [("", ""), ("raspberrypi,4-model-b\0brcm,bcm2711\0", "Raspberry Pi 4"), ("", "NVIDIA DGX Spark")],
)
def test_other_machines_are_no_tegra(tmp_path: Path, compatible: str, model: str) -> None:
    """A server, another board, and a DGX Spark with its integrated GPU are no Tegra, and no program is run there."""

    def never(*_: object) -> Unavailable:
        pytest.fail("a machine that is not a Tegra was asked")

    found = missing(probe_tegra(_machine(tmp_path, compatible, model), ask_stats=never, ask_dla=never))
    assert found.absence is Absence.DOES_NOT_APPLY


def test_unknown_tegra_is_a_tegra(tmp_path: Path) -> None:
    """A SoC that is newer than our table is a Tegra with reasons instead of rules."""
    report = _report(_machine(tmp_path, "nvidia,tegra999\0"))
    assert report.identity.soc is Soc.OTHER
    assert isinstance(report.capability, Unavailable)
    assert isinstance(report.io_coherent, Unavailable)
    assert isinstance(report.unsupported, Unavailable)
    assert isinstance(report.codecs, Unavailable)


def test_nvml_only_on_thor_under_jetson_linux() -> None:
    """Thor under L4T has NVML; Orin, and Thor without L4T, have tegrastats."""
    release = L4tRelease(38, "4.0")
    assert monitor_for(TegraIdentity(Soc.THOR, "", release)) is Monitor.NVML
    assert monitor_for(TegraIdentity(Soc.THOR, "", NONE)) is Monitor.TEGRASTATS
    assert monitor_for(TegraIdentity(Soc.ORIN, "", release)) is Monitor.TEGRASTATS


def test_report_of_an_orin(tmp_path: Path) -> None:
    """An Orin's report has the documented capability with its consequences, memory and engines."""
    root = _orin(tmp_path)
    (root / "proc/meminfo").write_text("MemTotal: 100 kB\nMemFree: 70 kB\nSwapFree: 50 kB\nNvMapMemUsed: 10 kB\n")
    stats = parse_tegrastats("RAM 1/2MB NVDEC0_FREQ off NVENC0_FREQ off NVDLA0_FREQ off NVDLA1_FREQ off")
    report = _report(root, stats=stats)
    assert report.capability == (8, 7)
    assert held(report.io_coherent).holds
    assert report.codecs is CodecInterface.V4L2
    assert report.allocatable == Allocatable(90 * 1024, MemorySource.MEMINFO)
    assert [count.count for count in report.engines] == [1, 1, 2]
    assert "NVML" in held(report.unsupported)


def test_networks_are_placed_on_the_dlas_that_cudla_counted(tmp_path: Path) -> None:
    """The inventory has the DLAs that cuDLA counted; without an answer of cuDLA, or without a Tegra, it has none."""
    counted = DlaReport(1_002_001, 2)
    report = simulated_report(load_fleet("orin").nodes[0])
    orin = node_of_report(replace(report, tegra=_report(_orin(tmp_path), dla=counted)), node="n")
    assert [dla.device for dla in orin.dlas] == ["n/dla#0", "n/dla#1"]
    assert node_of_report(replace(report, tegra=_report(_orin(tmp_path)))).dlas == ()
    assert node_of_report(replace(report, tegra=NONE)).dlas == ()


def test_what_a_tegra_can_allocate_is_what_sessions_may_use(tmp_path: Path) -> None:
    """The free memory in the inventory is what the integrated GPU can allocate, not what its driver calls free."""
    (thor,) = load_fleet("thor").nodes
    report = simulated_report(thor, "thor")
    probed = _report(_thor(tmp_path), CudaAnswers(free_bytes=7 << 30))
    node = node_of_report(replace(report, tegra=probed))
    (gpu,) = (device for device in node.devices if device.kind is DeviceKind.IGPU)
    assert gpu.free_memory_bytes == 7 << 30
    engines = [device.engines.get(Engine.DLA, 0) for device in load_fleet("orin").nodes[0].devices]
    assert len(inventory_of_fleet(load_fleet("orin")).nodes[0].dlas) == sum(engines)


def test_what_cuda_says_goes_before_what_is_documented(tmp_path: Path) -> None:
    """Capability, free memory and attributes from CUDA override the tables."""
    said = CudaAnswers(
        capability=(11, 0),
        version=(13, 0),
        free_bytes=12345,
        host_register_supported=False,
        concurrent_managed_access=True,
    )
    report = _report(_thor(tmp_path), said)
    assert report.allocatable == Allocatable(12345, MemorySource.CUDA)
    assert report.codecs is CodecInterface.VIDEO_CODEC_SDK
    assert not held(report.host_register).holds
    assert "NVML" not in held(report.unsupported)
    assert "memory prefetch" not in held(report.unsupported)
    assert "host register" in held(report.unsupported)
