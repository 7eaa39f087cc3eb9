"""Queries NVML in a child process, so that a hung driver does not hang this process."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..child.child import ChildEnd, RunChild, run_in_child
from ..nvml.calls import DeviceQuestions, NvmlLike, ask_named
from ..report.absence import Absence, Maybe, Unavailable
from ..vgpu.guest import GUEST_VIEWS, VgpuGuestReport, vgpu_guest_report
from ..vgpu.host import HOST, VgpuHostReport, probe_vgpu_host, with_migrations
from .devices import NvmlReport, probe_nvml


@dataclass(frozen=True, slots=True)
class NvmlAnswers:
    """NVML's answers about a machine and its vGPUs."""

    nvml: Maybe[NvmlReport]
    vgpu_hosts: dict[str, VgpuHostReport] = field(default_factory=dict)  # reports by the GPU's UUID
    vgpu_guests: dict[str, VgpuGuestReport] = field(default_factory=dict)  # reports by the vGPU's UUID
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
    hosts, guests = _read_vgpus(pynvml, report)
    yield {"vgpu_hosts": hosts, "vgpu_guests": guests}


def read_nvml(nvml: NvmlLike) -> NvmlAnswers:
    """Query NVML, or a substitute, in this process; never raises."""
    report = probe_nvml(nvml)
    return NvmlAnswers(report, *_read_vgpus(nvml, report))


def _read_vgpus(nvml: NvmlLike, report: NvmlReport) -> tuple[dict[str, VgpuHostReport], dict[str, VgpuGuestReport]]:
    hosts: dict[str, VgpuHostReport] = {}
    guests: dict[str, VgpuGuestReport] = {}
    handles: dict[str, object] = {}
    virtual = [device for device in report.devices if device.virtualization in (*GUEST_VIEWS, HOST)]
    # nvmlInit fails if the driver was replaced after the report was made.
    if not virtual or isinstance(ask_named(nvml, "nvmlInit"), Unavailable):
        return hosts, guests
    try:
        for device in virtual:
            handle = ask_named(nvml, "nvmlDeviceGetHandleByIndex", device.index)
            if not isinstance(device.uuid, str) or device.health.lost or isinstance(handle, Unavailable):
                continue
            if device.virtualization != HOST:
                guests[device.uuid] = vgpu_guest_report(device, DeviceQuestions(nvml, handle))
            elif not isinstance(found := probe_vgpu_host(nvml, handle), Unavailable):
                handles[device.uuid], hosts[device.uuid] = handle, found
        return with_migrations(nvml, handles, hosts), guests
    finally:
        ask_named(nvml, "nvmlShutdown")
