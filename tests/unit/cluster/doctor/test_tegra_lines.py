"""A Tegra in words: what doctor says of its accelerators, engines, memory and use."""

from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.cluster.doctor.fleet_lines import doctor_lines
from codecfleet.cluster.doctor.tegra_lines import tegra_lines
from codecfleet.cluster.probes.report.absence import Absence, Maybe, Unavailable
from codecfleet.cluster.probes.tegra.dla import DlaDevice, DlaReport
from codecfleet.cluster.probes.tegra.module import CudaSaid, TegraReport, probe_tegra
from codecfleet.cluster.probes.tegra.tegrastats import TegraStats, parse_tegrastats
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.cluster.text_lines import WIDTH
from codecfleet.testing.fleet.simulated_report import simulated_report

from ..maybe import held

ABSENT = Unavailable(Absence.NO_LIBRARY, "tegrastats did not start: not found")
NO_DLA = Unavailable(Absence.NO_LIBRARY, 'Failure finding "libcudla.so.1"')
TWO_DLAS = DlaReport(1_002_001, (DlaDevice(0, ABSENT, ABSENT), DlaDevice(1, ABSENT, ABSENT)))
LINE = (
    "RAM 4011/8138MB (lfb 8x4MB) SWAP 0/4068MB (cached 0MB) CPU [12%@1190,4%@1190,off] GR3D_FREQ 35% "
    "NVENC0_FREQ off NVDEC0_FREQ @314 cpu@47.5C tj@50.1C VDD_GPU_SOC 1234mW"
)


def tegra(
    root: Path,
    soc: str = "nvidia,tegra234",
    cuda: CudaSaid | None = None,
    *,
    stats: Maybe[TegraStats] = ABSENT,
    dla: Maybe[DlaReport] = NO_DLA,
) -> TegraReport:
    """Return the report of a Tegra with Jetson Linux R36, an Orin unless ``soc`` says otherwise."""
    for name, text in (
        ("proc/device-tree/compatible", soc),
        ("proc/device-tree/model", "NVIDIA Jetson"),
        ("etc/nv_tegra_release", "# R36 (release), REVISION: 4.3"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    found = probe_tegra(root, cuda or CudaSaid(), ask_stats=lambda _: stats, ask_dla=lambda _: dla)
    assert isinstance(found, TegraReport)
    return found


def words(found: TegraReport) -> str:
    """Return all that is said of it, in one line."""
    lines = list(tegra_lines(found))
    assert max(map(len, lines)) <= WIDTH
    return " ".join(line.strip() for line in lines)


def test_an_orin_shows_its_accelerators_engines_and_memory(tmp_path: Path) -> None:
    """DLAs with cuDLA's version, what tegrastats counts, the interface that is not ours, coherency and use."""
    said = words(tegra(tmp_path, stats=parse_tegrastats(LINE), dla=TWO_DLAS))
    for each in (
        "Tegra ORIN: NVIDIA Jetson, Jetson Linux R36 4.3",
        "DLA: 2, cuDLA 1.2.1",
        "1 NVDEC, 1 NVENC by tegrastats; reached through V4L2",
        "codecfleet does not use",
        "the GPU is I/O coherent",
        "use is reported by tegrastats",
        "RAM 4.2 GB of 8.5 GB, CPU 8 % of 2 cores, GR3D 35 %, NVENC0 off, NVDEC0 314 MHz",
        "tj 50.1 C, VDD_GPU_SOC 1.2 W",
    ):
        assert each in said


def test_what_cannot_be_asked_is_said_with_the_reason(tmp_path: Path) -> None:
    """A missing cuDLA and a missing tegrastats have their reasons; on Thor NVML reports use instead."""
    orin = words(tegra(tmp_path / "orin"))
    assert NO_DLA.reason in orin
    assert ABSENT.reason in orin
    thor = words(tegra(tmp_path / "thor", "nvidia,tegra264", dla=DlaReport(ABSENT, ())))
    assert "DLA: none" in thor
    assert "use is reported by NVML" in thor
    assert ABSENT.reason not in thor
    assert "does not use" not in thor


@pytest.mark.parametrize(
    ("version", "undecided", "unsupported"),
    [
        (
            Unavailable(Absence.FAILED, "CUDA was not asked"),
            {"Multi-Process Service", "IPC that shares events"},
            set(),
        ),
        ((11, 4), set(), {"Multi-Process Service", "IPC that shares events"}),
        ((12, 6), set(), set()),
    ],
)
def test_an_unknown_cuda_version_decides_nothing(
    version: Maybe[tuple[int, int]], undecided: set[str], unsupported: set[str], tmp_path: Path
) -> None:
    """Services that need a CUDA version are neither denied nor promised where it is not known."""
    found = tegra(tmp_path, cuda=CudaSaid(version=version))
    ours = {"Multi-Process Service", "IPC that shares events"}
    assert set(found.undecided) == undecided
    assert ours & set(held(found.unsupported)) == unsupported
    assert "IPC that shares memory" in held(found.unsupported)  # an Orin has it with no CUDA at all
    assert ("depends on the CUDA version, which is unknown: " in words(found)) == bool(undecided)


def test_doctor_shows_the_tegra(tmp_path: Path) -> None:
    """The page of a Jetson has these lines among its devices."""
    report = replace(simulated_report(load_fleet("orin").nodes[0]), tegra=tegra(tmp_path, dla=TWO_DLAS))
    assert "    DLA: 2, cuDLA 1.2.1" in list(doctor_lines([report]))
