"""Nodes of the simulated fleets, changed in one thing, and the findings on them by title."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from codecfleet.cluster.doctor.findings import Finding, findings
from codecfleet.cluster.probes.cuda.pynvvideocodec import PyNvVideoCodecReport
from codecfleet.cluster.probes.cuda.report import CudaReport, KernelModule
from codecfleet.cluster.probes.gpus.devices import NvmlReport
from codecfleet.cluster.probes.node.container import ContainerReport
from codecfleet.cluster.probes.node.report import NodeReport
from codecfleet.cluster.probes.report.absence import Absence, Unavailable
from codecfleet.cluster.probes.report.device_report import DeviceReport
from codecfleet.cluster.probes.report.engines import Engine
from codecfleet.cluster.simulated.fleet_file import load_fleet
from codecfleet.testing.fleet.simulated_report import simulated_report

FLEETS = Path(__file__).parents[3] / "configs" / "fleets"


ABSENT = Unavailable(Absence.NO_LIBRARY, "there is none")


@cache
def node(fleet: str, number: int = 0) -> NodeReport:
    """Return the report of one machine of a fleet, as if it were real."""
    return replace(simulated_report(load_fleet(FLEETS / f"{fleet}.toml").nodes[number]), simulated="")


def gpus(report: NodeReport) -> tuple[DeviceReport, ...]:
    """Return NVML's devices."""
    assert isinstance(report.nvml, NvmlReport)
    return report.nvml.devices


def with_gpu(report: NodeReport, change: Callable[[DeviceReport], DeviceReport]) -> NodeReport:
    """Return the report with its first device changed."""
    assert isinstance(report.nvml, NvmlReport)
    first, *others = report.nvml.devices
    return replace(report, nvml=replace(report.nvml, devices=(change(first), *others)))


def with_health(report: NodeReport, **changes: Any) -> NodeReport:
    """Return the report with the first device's health changed."""
    return with_gpu(report, lambda gpu: replace(gpu, health=replace(gpu.health, **changes)))


def with_trials(report: NodeReport, engine: Engine, **changes: Any) -> NodeReport:
    """Return the report with every trial of an engine of the first device changed."""
    first, *others = report.devices
    trials = tuple(replace(t, **changes) if t.engine is engine else t for t in first.trials)
    return replace(report, devices=(replace(first, trials=trials), *others))


def titled(report: NodeReport, words: str) -> Finding:
    """Return the one finding whose title has ``words``."""
    (found,) = [finding for finding in findings(report) if words in finding.title]
    return found


def cuda(**changes: Any) -> CudaReport:
    """Return a CUDA driver that works, but for the changes."""
    report = CudaReport(
        kernel_module=KernelModule("580.159.04", is_open=True),
        library=ABSENT,
        deployment=ABSENT,
        compat_libraries=(),
        cuda_version="13.0",
        init_code=0,
        device_count=8,
        devices=(),
        codec_libraries={},
        nvenc_api="13.0",
        runtimes=(),
    )
    return replace(report, **changes)


PACKAGE = PyNvVideoCodecReport(
    version=Unavailable(Absence.NO_LIBRARY, "PyNvVideoCodec is not installed"),
    builds=(),
    picked=ABSENT,
    cuda_version=ABSENT,
    sdk_version=ABSENT,
    runtime_version=ABSENT,
    python_version="3.11",
    glibc_version="2.36",
    machine="x86_64",
)


CONTAINER = ContainerReport(
    runtime="docker",
    capabilities=None,
    visible_devices=None,
    requirements={},
    is_requirement_disabled=False,
    compat_folders=(),
    device_minors=(),
    shared_memory_bytes=64 << 20,
)
