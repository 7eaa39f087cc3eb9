"""Prints vGPUs as text: a host's types, vGPUs and possible migrations, or a guest's vGPU."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from ..grouping import counted, equal_groups
from ..probes.node.report import NodeReport
from ..probes.report.absence import Maybe, Unavailable, known
from ..probes.report.device_report import DeviceReport
from ..probes.vgpu.guest import GUEST_VIEWS
from ..probes.vgpu.host import VgpuHostReport
from ..probes.vgpu.hosted import VgpuHost, hosted_vgpu
from ..probes.vgpu.instances import VgpuCompatibility, VgpuInstance, VmId
from ..probes.vgpu.licence import licence_of
from ..text_lines import gigabytes, wrapped
from .inventory_lines import percents, processes
from .report_lines import Reports, paged, present


def vgpu_lines(reports: Reports) -> Iterator[str]:
    """Yield the lines about vGPUs, from a host or from a guest."""
    hosts = [host.seen_from(each.host.name) for each in present(reports) for host in each.vgpu_hosts.values()]
    yield from paged(reports, partial(_vgpus_of, hosts))


def _vgpus_of(hosts: Sequence[VgpuHost], report: NodeReport) -> Iterator[str]:
    if not report.gpus:
        yield "  no NVIDIA devices"
    for gpu in report.gpus:
        yield f"  GPU {gpu.index}: {gpu.name}, virtualization {known(gpu.virtualization, 'unknown')}"
        if host := report.vgpu_hosts.get(gpu.key):
            yield from _vgpu_host(host, {each.key: each.label for each in report.gpus})
        elif gpu.virtualization in GUEST_VIEWS:
            yield from _vgpu_guest(gpu, report.taken_utc)
            if hosted := hosted_vgpu(known(gpu.uuid, ""), report.host.machine_uuid, hosts):
                yield from wrapped(hosted.sentence, "    ")
        else:
            yield "    neither a vGPU nor a vGPU host"


def _vgpu_host(host: VgpuHostReport, labels: Mapping[str, str]) -> Iterator[str]:
    if not isinstance(host.scheduler, Unavailable):
        yield f"    scheduler: {host.scheduler}"
    for group in equal_groups(host.types, lambda found: _creation(host, found.type_id)):
        kinds = ", ".join(f"{found.type_id} {known(found.name, '')}" for found in group)
        state = _creation(host, group[0].type_id)
        yield from wrapped(f"{counted(len(group), 'type')} {state}: {kinds}", "    ")
    names = {found.type_id: known(found.name, "") for found in host.types}
    active = known(host.active, ())
    yield f"    {len(active)} running"
    for vgpu in active:
        yield from wrapped(", ".join(filter(None, _instance(vgpu, names.get(known(vgpu.type_id, -1), "")))), "    ")
        for uuid, found in host.migrations.get(str(vgpu.instance), {}).items():
            yield from wrapped(f"{_migration(found)} {labels.get(uuid, uuid)}", "      ")


def _instance(vgpu: VgpuInstance, type_name: str) -> Iterator[str]:
    yield f"vGPU {known(vgpu.uuid, 'without UUID')} of VM {known(vgpu.vm_id, VmId('unknown', '')).value}"
    yield type_name
    if not isinstance(vgpu.framebuffer_used_bytes, Unavailable):
        yield f"{gigabytes(vgpu.framebuffer_used_bytes)} of its frame buffer used"
    if not isinstance(vgpu.licensed, Unavailable):
        yield "licensed" if vgpu.licensed else "without a licence"
    if not isinstance(vgpu.accounting, Unavailable):
        most = vgpu.accounting.processes_max
        limit = "" if isinstance(most, Unavailable) else f" of at most {most}"
        yield f"accounting remembers {processes(len(vgpu.accounting.pids))}{limit}"


def _migration(found: Maybe[VgpuCompatibility]) -> str:
    """Return whether a running vGPU can move; the caller appends the destination."""
    if isinstance(found, Unavailable):
        return f"unknown whether it can move ({found.reason}) to"
    if not found.states:
        return f"cannot move (limited by the {' and '.join(found.limits) or 'driver'}) to"
    limited = f", limited by the {' and '.join(found.limits)}" if found.limits else ""
    return f"can move ({' or '.join(found.states)}{limited}) to"


def _creation(host: VgpuHostReport, type_id: int) -> str:
    state = "can be created" if type_id in known(host.creatable, ()) else "cannot be created now"
    why = host.why_creatable.get(str(type_id))
    return f"{state} ({why.reason})" if why and why.reason else state


def _vgpu_guest(gpu: DeviceReport, taken_utc: datetime | None) -> Iterator[str]:
    stable = "stable" if gpu.uuid_is_stable else "random, so the PCI bus id identifies the vGPU"
    seen = f"seen from its guest: {gpu.virtualization} at {known(gpu.pci_bus_id, 'an unknown bus id')}"
    yield from wrapped(f"{seen}; its UUID is {stable}", "    ")
    licence = licence_of(gpu.licences, taken_utc)
    yield from wrapped(f"licence: {licence.reason if isinstance(licence, Unavailable) else licence.sentence}", "    ")
    rates = {
        "graphics": gpu.use.gpu_percent,
        "memory controller": gpu.use.memory_percent,
        "encoder": gpu.use.encoder_percent,
        "decoder": gpu.use.decoder_percent,
    }
    if used := percents(rates):
        yield from wrapped(f"in use, read by the guest: {', '.join(used)}", "    ")
