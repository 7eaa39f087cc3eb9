"""Queries NVML in a child process, so that a hung driver does not hang this process."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..child.child import ChildEnd, RunChild, run_in_child
from ..nvml.calls import NvmlLike, ask_named
from ..report.absence import Absence, Maybe, Unavailable
from ..vgpu.host import VgpuHostReport, probe_vgpu_host, with_migrations
from .devices import NvmlReport, probe_nvml


@dataclass(frozen=True, slots=True)
class NvmlAnswers:
    """NVML's answers about a machine and its vGPUs."""

    nvml: Maybe[NvmlReport]
    vgpu_hosts: dict[str, VgpuHostReport] = field(default_factory=dict)  # reports by the GPU's UUID
    problems: tuple[str, ...] = ()


def probe_nvml_in_child(limit_s: float, *, run: RunChild = run_in_child) -> NvmlAnswers:
    """Query NVML within ``limit_s``; never raises and never hangs."""
    outcome = run(ask_nvml, {}, limit_s)
    kind = Absence.TIMED_OUT if outcome.end is ChildEnd.TIMED_OUT else Absence.FAILED
    parts: dict[str, Any] = {"nvml": Unavailable(kind, outcome.detail or "NVML said nothing")}
    for part in outcome.values:
        parts |= part
    return NvmlAnswers(**parts, problems=() if outcome.returned else (outcome.detail,))


def ask_nvml() -> Iterator[dict[str, Any]]:
    """Yield NVML's answers in parts, so that a hang loses no earlier part. Run this in a child process."""
    import pynvml

    report = probe_nvml(pynvml)
    yield {"nvml": report}
    yield {"vgpu_hosts": _read_hosts(pynvml, report)}


def read_nvml(nvml: NvmlLike) -> NvmlAnswers:
    """Query NVML, or a substitute, in this process; never raises."""
    report = probe_nvml(nvml)
    return NvmlAnswers(report, _read_hosts(nvml, report))


def _read_hosts(nvml: NvmlLike, report: NvmlReport) -> dict[str, VgpuHostReport]:
    devices = {
        device.index: device.uuid
        for device in report.devices
        if device.hosts_vgpus and isinstance(device.uuid, str) and not device.health.lost
    }
    # nvmlInit fails if the driver was replaced after the report was made.
    if not devices or isinstance(ask_named(nvml, "nvmlInit"), Unavailable):
        return {}
    try:
        handles = {uuid: ask_named(nvml, "nvmlDeviceGetHandleByIndex", index) for index, uuid in devices.items()}
        probed = {
            uuid: probe_vgpu_host(nvml, handle)
            for uuid, handle in handles.items()
            if not isinstance(handle, Unavailable)
        }
        hosts = {uuid: found for uuid, found in probed.items() if not isinstance(found, Unavailable)}
        return with_migrations(nvml, handles, hosts)
    finally:
        ask_named(nvml, "nvmlShutdown")
