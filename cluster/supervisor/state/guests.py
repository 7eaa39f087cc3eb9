"""Joins the polls of guests' vGPUs and of their hosts, if both are nodes of the cluster."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ...placement.model.inventory import Device, plain_type
from ...probes.report.absence import known
from ...probes.vgpu.hosted import HostedVgpu, VgpuHost, hosted_vgpu, own_part
from .nodes import NodeBook
from .state import SupervisorState


def join_guests(state: SupervisorState, polled: NodeBook) -> None:
    """After a poll, update what hosts report about guests' vGPUs, except the share if the policy sets one."""
    if not (_guests(polled) or any(condition.seen.vgpus for condition in polled.conditions.values())):
        return
    hosts = [host for book in state.nodes for host in _hosts_of(state, book)]
    for book in state.nodes:
        found = {device.device: _hosted(book, device, hosts) for device in _guests(book)}
        hosted = {
            device: replace(each, share=None) if state.planner.policy.vgpu_share else each
            for device, each in found.items()
            if each is not None
        }
        if hosted != book.hosted:
            before, book.hosted = book.node, hosted
            if book.node != before:
                state.is_dirty = True


def vgpu_rooms(state: SupervisorState) -> dict[str, int] | None:
    """Return how many more vGPUs of each type the cluster's hosts can create; None without a host."""
    polled = [condition.seen for book in state.nodes for condition in book.conditions.values()]
    if not any(seen.vgpus or seen.creatable for seen in polled):
        return None
    rooms: Counter[str] = Counter()
    for seen in polled:
        rooms.update({plain_type(name): count for name, count in seen.creatable.items()})
    return dict(rooms)


def percent_part(book: NodeBook, device: Device) -> float:
    """Return the utilisation, 0 to 1, that polls report if a device uses its whole share (vGPU Management SDK 3.2)."""
    hosted = book.hosted.get(device.device)
    if hosted is None:
        return own_part(device.kind, device.share, "")
    return own_part(device.kind, device.share if hosted.share is None else hosted.share, hosted.scheduler)


def _guests(book: NodeBook) -> list[Device]:
    return [device for device in book.gpus if device.kind.is_guest]


def _hosts_of(state: SupervisorState, book: NodeBook) -> Iterator[VgpuHost]:
    for condition in book.conditions.values():
        if condition.seen.vgpus:
            yield VgpuHost(state.nodes.title(book.ray.node), condition.seen.scheduler, condition.seen.vgpus)


def _hosted(book: NodeBook, device: Device, hosts: list[VgpuHost]) -> HostedVgpu | None:
    condition = book.conditions.get(device.device)
    uuid = "" if condition is None else known(condition.seen.uuid, "")
    machine = "" if book.probed is None else book.probed.machine_uuid
    return hosted_vgpu(uuid, machine, hosts)
