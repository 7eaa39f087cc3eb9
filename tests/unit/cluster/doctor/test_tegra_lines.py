"""A Tegra in words: what doctor says about accelerators, engines, memory and use."""

from dataclasses import replace
from pathlib import Path

import pytest

from codecfleet.cluster.doctor.fleet_lines import doctor_lines
from codecfleet.cluster.doctor.tegra_lines import tegra_lines
from codecfleet.cluster.probes.report.absence import Absence, Maybe, Unavailable
from codecfleet.cluster.probes.tegra.dla import DlaReport
from codecfleet.cluster.probes.tegra.module import CudaAnswers, TegraReport, probe_tegra
from codecfleet.cluster.probes.tegra.tegrastats import TegraStats, parse_tegrastats
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.cluster.text_lines import WIDTH
from codecfleet.testing.fleet.simulated_report import simulated_report
from tests.goldens import golden

from ..maybe import held

ABSENT = Unavailable(Absence.NO_LIBRARY, "tegrastats did not start: not found")
NO_DLA = Unavailable(Absence.NO_LIBRARY, 'Failure finding "libcudla.so.1"')
SERVICES = {"Multi-Process Service", "IPC that shares events"}
TWO_DLAS = DlaReport(1_002_001, 2)
LINE = (
    "RAM 4011/8138MB (lfb 8x4MB) SWAP 0/4068MB (cached 0MB) CPU [12%@1190,4%@1190,off] GR3D_FREQ 35% "
    "NVENC0_FREQ off NVDEC0_FREQ @314 cpu@47.5C tj@50.1C VDD_GPU_SOC 1234mW"
)


def tegra(
    root: Path,
    soc: str = "nvidia,tegra234",
    cuda: CudaAnswers | None = None,
    *,
    stats: Maybe[TegraStats] = ABSENT,
    dla: Maybe[DlaReport] = NO_DLA,
) -> TegraReport:
    """Return the report of a Tegra with Jetson Linux R36; ``soc`` is an Orin by default."""
    for name, text in (
        ("proc/device-tree/compatible", soc),
        ("proc/device-tree/model", "NVIDIA Jetson"),
        ("etc/nv_tegra_release", "# R36 (release), REVISION: 4.3"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    found = probe_tegra(root, cuda or CudaAnswers(), ask_stats=lambda _: stats, ask_dla=lambda _: dla)
    assert isinstance(found, TegraReport)
    return found


def test_tegras_are_shown_as_people_have_read_it(tmp_path: Path) -> None:
    """Accelerators, engines, memory, coherency and use, or why one of them is unknown: tests/golden/tegra.txt."""
    known, absent = CudaAnswers(version=(12, 6)), DlaReport(1_002_001, 0)
    found = {
        "an Orin": tegra(tmp_path / "a", cuda=known, stats=parse_tegrastats(LINE), dla=TWO_DLAS),
        "an Orin that tells nothing": tegra(tmp_path / "b"),
        "a Thor without DLAs": tegra(tmp_path / "c", "nvidia,tegra264", dla=absent),
    }
    lines = [line for title, report in found.items() for line in (f"== {title}", *tegra_lines(report))]
    assert max(map(len, lines)) <= WIDTH
    text = "\n".join([*lines, ""])
    assert text == golden("tegra.txt", text)


@pytest.mark.parametrize(
    ("version", "undecided", "unsupported"),
    [
        (Unavailable(Absence.FAILED, "CUDA was not asked"), SERVICES, set()),
        ((11, 4), set(), SERVICES),
        ((12, 6), set(), set()),
    ],
)
def test_an_unknown_cuda_version_decides_nothing(
    version: Maybe[tuple[int, int]], undecided: set[str], unsupported: set[str], tmp_path: Path
) -> None:
    """If the CUDA version is unknown, services that depend on it are neither denied nor promised."""
    found = tegra(tmp_path, cuda=CudaAnswers(version=version))
    assert set(found.undecided) == undecided
    assert SERVICES & set(held(found.unsupported)) == unsupported
    assert "IPC that shares memory" in held(found.unsupported)  # an Orin lacks this with every version of CUDA


def test_doctor_shows_the_tegra(tmp_path: Path) -> None:
    """The lines about a Jetson are among the devices on its page."""
    report = replace(simulated_report(load_fleet("orin").nodes[0]), tegra=tegra(tmp_path, dla=TWO_DLAS))
    assert "    DLA: 2, cuDLA 1.2.1" in list(doctor_lines([report]))
