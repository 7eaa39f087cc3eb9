"""What follows from polls and heartbeats: conditions of devices, the effects of Xids, caps of encoder sessions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...logs.actions import LogAction
from ...placement.model.caps import SessionRefused, SessionsOpen, record_cap, record_open, relaxed
from ...placement.model.inventory import Device
from ...probes.gpus.live_health import DeviceHealth
from ...probes.report.absence import known
from ...probes.report.gpu_identity import on_node
from ...probes.report.xids import XidAction, worst_action, xid_rule
from ...worker_names import station_of
from ..state.conditions import Condition, OwnLoad, next_condition, unseen
from ..state.events import Effect, Encoding, HealthSeen, HealthUnseen, Note
from ..state.guests import join_guests, percent_part
from ..state.nodes import NodeBook
from ..state.quarantine import Blame, Cause
from ..state.state import SupervisorState
from ..state.stations import StationBook, StationState
from .planner import Planner
from .quarantining import device_ids, named, quarantine

if TYPE_CHECKING:
    from ...probes.report.engines import Engine


UNSEEN_POLLS = 3
"""After this many failed polls in a row, others' use is unknown."""


def see_health(state: SupervisorState, planner: Planner, event: HealthSeen, now_s: float) -> list[Effect]:
    """Handle a poll of a node."""
    book = state.nodes.get(event.node)
    if book is None:
        return []
    before = book.node
    book.unseen_polls, book.unseen_reason = 0, ""
    effects = _probe_changed(book, event.devices, now_s)
    for device in book.gpus:
        seen = _found(event.devices, device)
        if seen is None and device.device in book.conditions:
            book.conditions[device.device] = unseen(book.conditions[device.device])
        elif seen is not None:
            stations = [
                each for each in state.stations.values() if each.station.node == device.node and each.station.takes_gpu
            ]
            own = _own_load(state, planner, device, stations, event.fps)
            effects += _heed_xids(state, book, device, seen.health.xids, stations)
            before_poll = book.conditions.get(device.device)
            condition = book.conditions[device.device] = _next(
                before_poll, seen, own, now_s, percent_part(book, device)
            )
            if condition.trouble:
                blame = Blame(Cause.POLL, condition.trouble, now_s, until_uncordon=bool(condition.xids))
                effects += quarantine(state, book, device, blame)
    if book.node != before:
        state.is_dirty = True
    join_guests(state, book, keeps_share=planner.sets_vgpu_share)
    return effects


def unsee_health(state: SupervisorState, event: HealthUnseen) -> list[Effect]:
    """Handle a failed poll; after several in a row, others' use of the node is unknown."""
    book = state.nodes.get(event.node)
    if book is None:
        return []
    is_news = not book.unseen_polls
    book.unseen_polls, book.unseen_reason = book.unseen_polls + 1, event.reason
    if book.unseen_polls == UNSEEN_POLLS:
        book.conditions = {name: unseen(condition) for name, condition in book.conditions.items()}
        state.is_dirty = True
    name = state.nodes.title(event.node)
    line = f"the GPUs of node {name} could not be polled: {event.reason}"
    return [Note(LogAction.NODE_UNPROBED, line, book.ids)] if is_news else []


def forget_xids(book: NodeBook) -> bool:
    """Trust a node's devices again after a user reset them; return whether any was distrusted."""
    had_any = bool(book.lost) or any(each.xids for each in book.conditions.values())
    book.lost = ""
    book.conditions = {name: replace(each, xids=()) for name, each in book.conditions.items()}
    return had_any


def _probe_changed(book: NodeBook, polled: tuple[DeviceHealth, ...], now_s: float) -> list[Effect]:
    """Probe a node again, once, where a poll lists other devices than the probe: a GPU was repartitioned."""
    seen = [each for device in book.gpus if (each := _found(polled, device)) is not None]
    gone = {device.device for device in book.gpus if _found(polled, device) is None}
    came = {known(each.uuid, str(each.index)) for each in polled if each not in seen}
    before, unmatched = book.unmatched, frozenset(gone | came)
    if book.is_probing(now_s):
        return []
    book.unmatched = unmatched
    return [] if unmatched <= before else [book.probe_again(now_s)]


def _found(devices: tuple[DeviceHealth, ...], device: Device) -> DeviceHealth | None:
    """Return the poll of an inventory device, matched by its name there (``gpu_identity``)."""
    for seen in devices:
        names = [seen.uuid] if seen.is_slice else [seen.uuid, seen.pci_bus_id, str(seen.index)]
        if device.device in {on_node(device.node, name) for name in names if isinstance(name, str)}:
            return seen
    return None


def _next(before: Condition | None, seen: DeviceHealth, own: OwnLoad, now_s: float, part: float) -> Condition:
    kept = () if before is None else before.xids
    grave = tuple(xid for xid in seen.health.xids if xid_rule(xid).action in _GRAVE)
    return next_condition(before, seen, own, tuple(dict.fromkeys((*kept, *grave))), now_s, part=part)


_GRAVE = (XidAction.QUARANTINE_DEVICE, XidAction.DRAIN_NODE)


def _heed_xids(
    state: SupervisorState, book: NodeBook, device: Device, xids: tuple[int, ...], stations: list[StationBook]
) -> list[Effect]:
    """Apply the rules of new Xids; the device's own quarantine is in its condition."""
    if not xids:
        return []
    worst = worst_action(xids)
    if worst is XidAction.DRAIN_NODE and not book.lost:
        book.lost = f"{device.name} raised Xid {next(xid for xid in xids if xid_rule(xid).action is worst)}"
    killing = next((xid for xid in xids if xid_rule(xid).action is XidAction.RESTART_WORKER), None)
    for station in stations if killing is not None else ():
        if station.device == device.device and station.state is StationState.READY and not station.recycle_due:
            station.recycle_due = f"its GPU raised Xid {killing}"
            state.is_dirty = True
    rules = [xid_rule(xid) for xid in dict.fromkeys(xids)]
    name = named(state, device)
    lines = (f"{name}: Xid {rule.xid}, {rule.name}: {rule.action.value}: {rule.reason}" for rule in rules)
    return [Note(LogAction.DEVICE_FAULTED, line, device_ids(device)) for line in lines]


def _own_load(
    state: SupervisorState, planner: Planner, device: Device, stations: list[StationBook], fps: Mapping[str, float]
) -> OwnLoad:
    here = [station for station in stations if station.device == device.device and station.state is StationState.READY]
    starting = any(station.state is StationState.STARTING for station in stations)
    parts: dict[Engine, float] = {}
    sessions, is_working = 0, False
    for station in here:
        is_working = is_working or fps.get(station.worker, 0.0) > 0
        for job in state.clients.at(station.worker):
            held = job.held.get(station.worker, 0)
            is_working = is_working or held > 0
            lanes = [each for each in state.plan_of(job.key).lanes if each.device == device.device]
            kinds = lanes[0].kinds if lanes else ()
            sessions += held * sum(kind.is_nvenc for kind in kinds)
            speed_fps = fps.get(station.worker, 0.0)
            for engine, part in planner.engine_parts(job.demand, device, speed_fps, kinds).items():
                parts[engine] = max(parts.get(engine, 0.0), part)
    return OwnLoad(has_worker=bool(here) or starting, is_working=is_working, parts=parts, encoder_sessions=sessions)


def see_encoding(state: SupervisorState, event: Encoding, now_s: float) -> list[Effect]:
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
        book.refused_at = event.refused_at if book.refused_at is None else book.refused_at
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
        state.caps = record_cap(state.caps, refused, now_s)
    if state.caps == before:
        return []
    state.is_dirty = True
    whose = "its node" if state.caps.nodes != before.nodes else "it"
    cap = state.caps.nodes.get(device.node) or state.caps.devices.get(device.device)
    takes = (
        "no cap of encoder sessions is known any more"
        if cap is None
        else f"{whose} takes {cap.sessions} encoder sessions"
    )
    line = f"{device.name} of node {state.nodes.title(device.node)}: {takes}"
    return [Note(LogAction.DEVICE_LIMITED, line, device_ids(device))]


def retry_caps(state: SupervisorState, now_s: float) -> None:
    """Try one more encoder session where a refusal was long ago."""
    before, state.caps = state.caps, relaxed(state.caps, now_s)
    if state.caps != before:
        state.is_dirty = True


def see_devices(state: SupervisorState, node: str, now_s: float) -> list[Effect]:
    """Have a node's devices learn from refusals that were reported before a probe told of them."""
    effects: list[Effect] = []
    for book in state.stations.values():
        if book.station.node == node and book.refused_at is not None:
            refused_at, book.refused_at = book.refused_at, None
            effects += see_encoding(state, Encoding(book.worker, book.encoding, refused_at), now_s)
    return effects


def _others(node: NodeBook, device: Device) -> int:
    condition = node.conditions.get(device.device)
    return 0 if condition is None else condition.encoder_sessions_others


def _elsewhere(state: SupervisorState, node: NodeBook, book: StationBook) -> int:
    """Count the sessions on a node's other GPUs."""
    ours = sum(
        each.encoding for each in state.stations.values() if each.station.node == node.ray.node and each is not book
    )
    return ours + sum(_others(node, device) for device in node.gpus if device.device != book.device)
