"""vGPUs as people read them: a host's types and instances, where these could move, and a guest beside its host."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

from ..grouping import counted, equal_groups
from ..probes.node.report import NodeReport, SilentNode
from ..probes.report.absence import Maybe, Unavailable, known
from ..probes.vgpu.guest import VgpuGuestReport
from ..probes.vgpu.host import VgpuHostReport
from ..probes.vgpu.hosted import VgpuHost, hosted_vgpu, scheduler_words
from ..probes.vgpu.licence import licence_of
from ..probes.vgpu.values import VgpuCompatibility, VmId
from ..text_lines import gigabytes, wrapped
from .inventory_lines import percents
from .report_lines import paged


def vgpu_lines(reports: Sequence[NodeReport | SilentNode]) -> Iterator[str]:
    """Yield vGPUs as host and guest see them."""
    present = [report for report in reports if isinstance(report, NodeReport)]
    hosts = [host.seen_from(report.host.name) for report in present for host in report.vgpu_hosts.values()]
    yield from paged(reports, partial(_vgpus_of, hosts))


def _vgpus_of(hosts: Sequence[VgpuHost], report: NodeReport) -> Iterator[str]:
    if not report.gpus:
        yield "  no NVIDIA devices"
    for gpu in report.gpus:
        yield f"  GPU {gpu.index}: {gpu.name}, virtualization {known(gpu.virtualization, 'unknown')}"
        uuid = known(gpu.uuid, "")
        if uuid in report.vgpu_hosts:
            yield from _vgpu_host(report.vgpu_hosts[uuid], {each.key: each.label for each in report.gpus})
        if uuid in report.vgpu_guests:
            yield from _vgpu_guest(report.vgpu_guests[uuid], report.taken_utc)
            if hosted := hosted_vgpu(uuid, report.host.machine_uuid, hosts):
                yield from wrapped(hosted.sentence, "    ")
        if uuid not in {*report.vgpu_hosts, *report.vgpu_guests}:
            yield "    hosts no vGPUs, and is not one"


def _vgpu_host(host: VgpuHostReport, labels: Mapping[str, str]) -> Iterator[str]:
    if not isinstance(host.scheduler, Unavailable):
        yield f"    scheduler: {scheduler_words(host.scheduler)}"
    for group in equal_groups(host.types, lambda found: _creation(host, found.type_id)):
        kinds = ", ".join(f"{found.type_id} {known(found.name, '')}" for found in group)
        state = _creation(host, group[0].type_id)
        yield from wrapped(f"{counted(len(group), 'type')} {state}: {kinds}", "    ")
    names = {found.type_id: known(found.name, "") for found in host.types}
    active = known(host.active, ())
    yield f"    {len(active)} running"
    for vgpu in active:
        parts = [f"vGPU {known(vgpu.uuid, 'without UUID')} of VM {known(vgpu.vm_id, VmId('unknown', '')).value}"]
        parts += [names.get(known(vgpu.type_id, -1), "")]
        if not isinstance(vgpu.framebuffer_used_bytes, Unavailable):
            parts.append(f"{gigabytes(vgpu.framebuffer_used_bytes)} of its frame buffer used")
        if not isinstance(vgpu.licensed, Unavailable):
            parts.append("licensed" if vgpu.licensed else "without a licence")
        if not isinstance(vgpu.accounting, Unavailable):
            most = vgpu.accounting.processes_max
            limit = "" if isinstance(most, Unavailable) else f" of at most {most}"
            parts.append(f"accounting remembers {_processes(len(vgpu.accounting.pids))}{limit}")
        yield from wrapped(", ".join(filter(None, parts)), "    ")
        for uuid, found in host.migrations.get(str(vgpu.instance), {}).items():
            yield from wrapped(f"{_migration(found)} {labels.get(uuid, uuid)}", "      ")


def _migration(found: Maybe[VgpuCompatibility]) -> str:
    """Return whether a running vGPU could go on elsewhere, as the beginning of a line that ends with the place."""
    if isinstance(found, Unavailable):
        return f"not known whether it could move ({found.reason}) to"
    if not found.states:
        return f"cannot move (limited by the {' and '.join(found.limits) or 'driver'}) to"
    limited = f", limited by the {' and '.join(found.limits)}" if found.limits else ""
    return f"could move ({' or '.join(found.states)}{limited}) to"


def _creation(host: VgpuHostReport, type_id: int) -> str:
    """Return whether a vGPU of a type can be made, and why."""
    state = "can be made" if type_id in known(host.creatable, ()) else "cannot be made now"
    why = host.why_creatable.get(str(type_id))
    return f"{state} ({why.reason})" if why and why.reason else state


def _vgpu_guest(guest: VgpuGuestReport, taken_utc: datetime | None) -> Iterator[str]:
    stable = "stable" if guest.uuid_is_stable else "random: the PCI bus id identifies it"
    seen = f"seen as a guest sees it: {guest.view.value} at {known(guest.pci_bus_id, 'an unknown bus id')}"
    yield from wrapped(f"{seen}; its UUID is {stable}", "    ")
    licence = licence_of(guest.licences, taken_utc)
    yield from wrapped(f"licence: {licence.reason if isinstance(licence, Unavailable) else licence.sentence}", "    ")
    rates = {
        "graphics": guest.use.graphics_percent,
        "memory controller": guest.use.memory_controller_percent,
        "encoder": guest.use.encoder_percent,
        "decoder": guest.use.decoder_percent,
    }
    if used := percents(rates):
        yield from wrapped(f"in use, as the guest reads it: {', '.join(used)}", "    ")


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"
