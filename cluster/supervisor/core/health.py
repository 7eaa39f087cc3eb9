"""Updates devices' conditions, Xids and caps on encoder sessions after polls and heartbeats."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...logs.actions import LogAction
from ...placement.measurements import engine_parts
from ...placement.model.caps import record_cap, record_open, relaxed
from ...placement.model.inventory import Device
from ...probes.gpus.live_health import DeviceHealth
from ...probes.report.absence import known
from ...probes.report.gpu_identity import on_node
from ...probes.report.xids import XidAction, worst_action, xid_rule
from ...worker_names import NodeId, WorkerId
from ..state.conditions import OwnLoad, next_condition, unseen
from ..state.events import Effect, Encoding, HealthSeen, HealthUnseen, Note, Order, Remember
from ..state.guests import join_guests, percent_part
from ..state.nodes import NodeBook
from ..state.quarantine import Cause, Quarantine
from ..state.state import SupervisorState
from ..state.stations import StationBook, StationState
from .quarantining import device_ids, named, quarantine

if TYPE_CHECKING:
    from ...probes.report.engines import Engine

UNSEEN_POLLS = 3
"""After this many failed polls in a row, placement no longer counts other programs' use of the node's GPUs."""
_GRAVE = (XidAction.QUARANTINE_DEVICE, XidAction.DRAIN_NODE)


def health_seen(state: SupervisorState, event: HealthSeen, now_s: float) -> list[Effect]:
    """Apply the result of polling a node's GPUs."""
    book = state.nodes.get(event.node)
    if book is None:
        return []
    before = book.node
    book.unseen_polls, book.unseen_reason = 0, ""
    effects = _probe_changed(book, event.devices, now_s)
    here = [each for each in state.stations.values() if each.station.node == event.node]
    gpus = [each for each in here if each.station.kind.takes_gpu]
    for device in book.gpus:
        effects += _device_seen(state, book, device, event, now_s, gpus=gpus)
    state.is_dirty |= book.node != before
    join_guests(state, book)
    return effects


def _device_seen(
    state: SupervisorState, book: NodeBook, device: Device, event: HealthSeen, now_s: float, *, gpus: list[StationBook]
) -> list[Effect]:
    """Apply a poll of one device; ``gpus`` are the stations of the node's GPUs."""
    before, seen = book.conditions.get(device.device), _found(event.devices, device)
    if seen is None:
        if before is not None:
            book.conditions[device.device] = unseen(before)
        return []
    effects = _heed_xids(state, book, device, seen.health.xids, gpus)
    own = _own_load(state, device, gpus, event.fps)
    grave = [xid for xid in seen.health.xids if xid_rule(xid).action in _GRAVE]
    xids = tuple(dict.fromkeys((*(() if before is None else before.xids), *grave)))
    condition = next_condition(before, seen, own, xids, now_s, part=percent_part(book, device))
    book.conditions[device.device] = condition
    if condition.trouble:
        found = Quarantine(cause=Cause.POLL, reason=condition.trouble, since_s=now_s, until_uncordon=bool(xids))
        effects += quarantine(state, book, device, found)
    return effects


def health_unseen(state: SupervisorState, event: HealthUnseen, _now_s: float) -> list[Effect]:
    """Apply a failed poll; after ``UNSEEN_POLLS`` in a row, drop the last known use of the GPUs by other programs."""
    book = state.nodes.get(event.node)
    if book is None:
        return []
    book.unseen_polls, book.unseen_reason = book.unseen_polls + 1, event.reason
    if book.unseen_polls == UNSEEN_POLLS:
        book.conditions = {name: unseen(condition) for name, condition in book.conditions.items()}
        state.is_dirty = True
    line = f"the GPUs of node {state.nodes.title(event.node)} could not be polled: {event.reason}"
    return [Note(LogAction.NODE_UNPROBED, line, book.ids)] if book.unseen_polls == 1 else []


def forget_xids(book: NodeBook) -> bool:
    """Forget a node's Xids, because a user trusts its devices again; return whether there were any."""
    had_any = bool(book.lost) or any(each.xids for each in book.conditions.values())
    book.lost = ""
    book.conditions = {name: replace(each, xids=()) for name, each in book.conditions.items()}
    return had_any


def _probe_changed(book: NodeBook, polled: tuple[DeviceHealth, ...], now_s: float) -> list[Effect]:
    """Probe a node again if a poll lists other devices than the last probe, for example after repartitioning a GPU."""
    if book.is_probing(now_s):
        return []
    found = {device.device: _found(polled, device) for device in book.gpus}
    gone = {device for device, seen in found.items() if seen is None}
    came = {known(each.uuid, str(each.index)) for each in polled if each not in found.values()}
    before, book.unmatched = book.unmatched, frozenset(gone | came)
    return [] if book.unmatched <= before else [book.probe_again(now_s)]


def _found(devices: tuple[DeviceHealth, ...], device: Device) -> DeviceHealth | None:
    """Return the polled device with the same name as this device of the inventory."""
    for seen in devices:
        names = [seen.uuid] if seen.is_slice else [seen.uuid, seen.pci_bus_id, str(seen.index)]
        if device.device in {on_node(device.node, name) for name in names if isinstance(name, str)}:
            return seen
    return None


def _heed_xids(
    state: SupervisorState, book: NodeBook, device: Device, xids: tuple[int, ...], stations: list[StationBook]
) -> list[Effect]:
    """Apply the rules for new Xids to the node and its workers; the caller adds the Xids to the device's condition."""
    if not xids:
        return []
    effects: list[Effect] = []
    rules = [xid_rule(xid) for xid in dict.fromkeys(xids)]
    # The only node of a cluster is not drained, because work could go nowhere else. The device is in quarantine anyway.
    if worst_action(xids) is XidAction.DRAIN_NODE and not book.lost and len(state.nodes) > 1:
        draining = next(rule.xid for rule in rules if rule.action is XidAction.DRAIN_NODE)
        book.lost, book.order = f"{device.name} raised Xid {draining}", Order.DRAIN
        effects.append(Remember(state.nodes.orders))
    killing = next((rule.xid for rule in rules if rule.action is XidAction.RESTART_WORKER), None)
    for station in stations if killing is not None else ():
        if station.device == device.device and station.state is StationState.READY and not station.recycle_due:
            station.recycle_due = f"its GPU raised Xid {killing}"
            state.is_dirty = True
    name = named(state, device)
    lines = (f"{name}: Xid {rule.xid}, {rule.name}: {rule.action.value}: {rule.reason}" for rule in rules)
    return [*effects, *(Note(LogAction.DEVICE_FAULTED, line, device_ids(device)) for line in lines)]


def _own_load(
    state: SupervisorState, device: Device, stations: list[StationBook], fps: Mapping[WorkerId, float]
) -> OwnLoad:
    here = [station for station in stations if station.device == device.device and station.state is StationState.READY]
    starting = any(station.state is StationState.STARTING for station in stations)
    parts: dict[Engine, float] = {}
    sessions, is_working = 0, False
    for station in here:
        speed_fps = fps.get(station.worker, 0.0)
        is_working = is_working or speed_fps > 0
        for job in state.clients.at(station.worker):
            held = job.held.get(station.worker, 0)
            is_working = is_working or held > 0
            lanes = [each for each in state.plans.of(job.key).lanes if each.device == device.device]
            kinds = lanes[0].kinds if lanes else ()
            sessions += held * sum(kind.is_nvenc for kind in kinds)
            for engine, part in engine_parts(state.planner.rates, job.demand, device, speed_fps, kinds).items():
                parts[engine] = max(parts.get(engine, 0.0), part)
    return OwnLoad(has_worker=bool(here) or starting, is_working=is_working, parts=parts, encoder_sessions=sessions)


def encoding(state: SupervisorState, event: Encoding, now_s: float) -> list[Effect]:
    """Apply a worker's number of encoder sessions, and the refusal if the driver refused another session."""
    book = state.station(event.worker, StationState.READY)
    if book is None:
        return []
    book.encoding = event.sessions
    node = state.node_of(book)
    device = node.gpu(book.device)
    if device is None:
        book.refused_at = event.refused_at if book.refused_at is None else book.refused_at
        return []
    before = state.caps
    others = _others(node, device)
    beside = {device.device: others, device.node: others + _elsewhere(state, node, book)}  # other sessions
    if event.refused_at is not None:
        # The driver of GeForce cards counts the sessions of the whole machine.
        name = device.device if node.known.system_encoder_sessions_max is None else device.node
        state.caps = record_cap(state.caps, name, event.refused_at + beside[name], now_s)
    # Last, because the refusal may be old: an adopted worker repeats its last refusal, and may have more sessions now.
    state.caps = record_open(state.caps, {name: event.sessions + count for name, count in beside.items()})
    if state.caps == before:
        return []
    state.is_dirty = True
    whose = "its node" if state.caps.get(device.node) != before.get(device.node) else "it"
    cap = state.caps.get(device.node) or state.caps.get(device.device)
    known_cap = "it no longer has a known cap on encoder sessions"
    takes = known_cap if cap is None else f"{whose} takes {cap.sessions} encoder sessions"
    line = f"{device.name} of node {state.nodes.title(device.node)}: {takes}"
    return [Note(LogAction.DEVICE_LIMITED, line, device_ids(device))]


def retry_caps(state: SupervisorState, now_s: float) -> None:
    """Allow one more encoder session for each cap whose last refusal was long ago."""
    before, state.caps = state.caps, relaxed(state.caps, now_s)
    state.is_dirty |= state.caps != before


def learn_refusals(state: SupervisorState, node: NodeId, now_s: float) -> list[Effect]:
    """Apply refusals that workers reported before a node's first probe listed the devices."""
    effects: list[Effect] = []
    for book in state.stations.values():
        if book.station.node == node and book.refused_at is not None:
            refused_at, book.refused_at = book.refused_at, None
            effects += encoding(state, Encoding(book.worker, book.encoding, refused_at), now_s)
    return effects


def _others(node: NodeBook, device: Device) -> int:
    condition = node.conditions.get(device.device)
    return 0 if condition is None else condition.encoder_sessions_others


def _elsewhere(state: SupervisorState, node: NodeBook, book: StationBook) -> int:
    here = (each for each in state.stations.values() if each.station.node == node.ray.node and each is not book)
    others = sum(_others(node, device) for device in node.gpus if device.device != book.device)
    return sum(each.encoding for each in here) + others
