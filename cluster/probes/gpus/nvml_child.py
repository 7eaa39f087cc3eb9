"""NVML asked in a child process: a driver that hangs must not hang this process.

The report comes back as plain values, one map per part, so that the parts before a hang count.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ..child.child import ChildEnd, ChildOutcome, run_in_child
from ..child.trials import RunChild
from ..nvml.calls import NvmlLike, ask_named
from ..report.absence import Absence, Maybe, Unavailable
from ..vgpu.guest import VgpuGuestReport, probe_vgpu_guest
from ..vgpu.host import VgpuHostReport, probe_vgpu_host, with_migrations
from .devices import NvmlReport, probe_nvml

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NvmlAnswers:
    """What NVML says of a machine, and of the vGPUs on it, by the GPU's UUID."""

    nvml: Maybe[NvmlReport]
    vgpu_hosts: dict[str, VgpuHostReport]
    vgpu_guests: dict[str, VgpuGuestReport]
    problems: tuple[str, ...] = ()


def probe_nvml_in_child(limit_s: float, *, run: RunChild = run_in_child) -> NvmlAnswers:
    """Ask NVML within ``limit_s``; never raises and never hangs."""
    return _rebuilt(run(ask_nvml, {}, limit_s))


@cache
def _adapters() -> dict[str, TypeAdapter[Any]]:
    return {
        "nvml": TypeAdapter(NvmlReport),
        "vgpu_hosts": TypeAdapter(dict[str, VgpuHostReport]),
        "vgpu_guests": TypeAdapter(dict[str, VgpuGuestReport]),
    }


def _rebuilt(outcome: ChildOutcome) -> NvmlAnswers:
    parts = {key: part for value in outcome.values if isinstance(value, dict) for key, part in value.items()}
    kind = Absence.TIMED_OUT if outcome.end is ChildEnd.TIMED_OUT else Absence.FAILED
    absent: dict[str, Any] = {
        "nvml": Unavailable(kind, outcome.detail or "NVML said nothing"),
        "vgpu_hosts": {},
        "vgpu_guests": {},
    }
    try:
        said = {key: _adapters()[key].validate_python(part) for key, part in parts.items() if key in absent}
    except ValidationError as error:
        reason = f"NVML's report cannot be read: {error.errors()[0]['msg']}"
        return NvmlAnswers(Unavailable(Absence.FAILED, reason), {}, {}, (reason,))
    return NvmlAnswers(**absent | said, problems=() if outcome.returned else (outcome.detail,))


def ask_nvml() -> Iterator[dict[str, Any]]:
    """Yield what ``probe_nvml_in_child`` reads, part by part; runs in the child."""
    import pynvml  # noqa: PLC0415 - in the child

    report = probe_nvml(pynvml)
    yield _dumped("nvml", report)
    hosts, guests = _read_vgpus(pynvml, report)
    yield _dumped("vgpu_hosts", hosts)
    yield _dumped("vgpu_guests", guests)


def _dumped(part: str, found: object) -> dict[str, Any]:
    return {part: _adapters()[part].dump_python(found, mode="json")}


def read_nvml(nvml: NvmlLike, *, sleep: Callable[[float], object]) -> NvmlAnswers:
    """Ask NVML, or what answers like it, in this process; never raises for what it answers.

    ``sleep`` lets time pass between two samples of the per-engine metrics.
    """
    report = probe_nvml(nvml, sleep=sleep)
    return NvmlAnswers(report, *_read_vgpus(nvml, report))


def _read_vgpus(nvml: NvmlLike, report: NvmlReport) -> tuple[dict[str, VgpuHostReport], dict[str, VgpuGuestReport]]:
    """Return what the devices that are virtual, or host such, say as hosts and as guests."""
    hosts: dict[str, VgpuHostReport] = {}
    guests: dict[str, VgpuGuestReport] = {}
    handles: dict[str, object] = {}
    virtual = [device for device in report.devices if device.virtualization in ("vgpu", "passthrough", "host vgpu")]
    # The driver may have been exchanged since the report was made, and then this is refused.
    if not virtual or isinstance(ask_named(nvml, "nvmlInit"), Unavailable):
        return hosts, guests
    try:
        for device in virtual:
            if not isinstance(device.uuid, str) or device.health.lost:
                continue
            handle = ask_named(nvml, "nvmlDeviceGetHandleByIndex", device.index)
            if not isinstance(handle, Unavailable):
                handles[device.uuid] = handle
                _keep(hosts, device.uuid, probe_vgpu_host(nvml, handle))
                _keep(guests, device.uuid, probe_vgpu_guest(nvml, handle))
        return with_migrations(nvml, handles, hosts), guests
    finally:
        ask_named(nvml, "nvmlShutdown")


def _keep(kept: dict[str, T], uuid: str, found: Maybe[T]) -> None:
    if not isinstance(found, Unavailable):
        kept[uuid] = found
