"""Learns from workers' encoder sessions how many a device, or a machine, allows."""

from ...placement.model.caps import SessionRefused, SessionsOpen, record_cap, record_open
from ...placement.model.inventory import Device
from ..state.events import Effect, Encoding, Note
from ..state.nodes import NodeBook
from ..state.state import SupervisorState
from ..state.stations import StationBook, station_of


def see_encoding(state: SupervisorState, event: Encoding) -> list[Effect]:
    """Take in a worker's encoder sessions and whether its driver refused another; others' sessions count too.

    GeForce cards are capped per machine (``system_encoder_sessions_max``).
    """
    book = state.stations.get(station_of(event.worker))
    if book is None or not state.is_live(event.worker):
        return []
    book.encoding = event.sessions
    node = state.nodes.get(book.station.node)
    device = None if node is None else next((each for each in node.gpus if each.device == book.device), None)
    if node is None or device is None:
        return []
    before = state.caps
    on_device, elsewhere = _others(node, device), _elsewhere(state, node, book)
    open_on_device = event.sessions + on_device
    seen = SessionsOpen(
        device=device.device, node=device.node, open_on_device=open_on_device, open_on_node=open_on_device + elsewhere
    )
    state.caps = record_open(state.caps, seen)
    if event.refused_at is not None:
        refused_on_device = event.refused_at + on_device
        refused = SessionRefused(
            device=device.device,
            node=device.node,
            open_on_device=refused_on_device,
            open_on_node=refused_on_device + elsewhere,
            system_wide=node.node.system_encoder_sessions_max is not None,
        )
        state.caps = record_cap(state.caps, refused)
    if state.caps == before:
        return []
    state.is_settled = False
    whose = "its node" if state.caps.nodes != before.nodes else "it"
    cap = state.caps.nodes.get(device.node) or state.caps.devices.get(device.device)
    takes = "no cap of encoder sessions is known any more" if cap is None else f"{whose} takes {cap} encoder sessions"
    return [Note(f"{device.name} of node {state.nodes.title(device.node)}: {takes}")]


def _others(node: NodeBook, device: Device) -> int:
    condition = node.conditions.get(device.device)
    return 0 if condition is None else condition.encoder_sessions_others


def _elsewhere(state: SupervisorState, node: NodeBook, book: StationBook) -> int:
    """Count the sessions on a node's other GPUs."""
    ours = sum(
        each.encoding for each in state.stations.values() if each.station.node == node.ray.node and each is not book
    )
    return ours + sum(_others(node, device) for device in node.gpus if device.device != book.device)
