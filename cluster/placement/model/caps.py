"""How many encoder sessions a device or machine takes, learnt from refusals: documented caps change with drivers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ...worker_names import NodeId
from .inventory import Device, Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsOpen:
    """How many working encoder sessions are open, on a device and on all GPUs of its node."""

    device: str
    node: NodeId
    open_on_device: int
    open_on_node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRefused(SessionsOpen):
    """A device refused another session."""

    system_wide: bool  # the cap is the machine's, as with GeForce cards


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntCap:
    """How many sessions to try: now and then one more than were open at the last refusal."""

    sessions: int
    refused_at: int  # open at the last refusal
    retry_at_s: float
    wait_s: float  # until the next try: doubles each time that the same number is refused again


@dataclass(frozen=True, slots=True)
class KnownCaps:
    """Caps by device and by node."""

    devices: Mapping[str, LearntCap] = field(default_factory=dict)
    nodes: Mapping[str, LearntCap] = field(default_factory=dict)


RETRY_S: Final = 300.0
RETRY_MAX_S: Final = 3600.0


def record_cap(caps: KnownCaps, refused: SessionRefused, now_s: float) -> KnownCaps:
    """Return the caps with one refusal added. A refusal while no session was open has another cause."""
    if refused.system_wide and refused.open_on_node > 0:
        cap = _learnt(caps.nodes.get(refused.node), refused.open_on_node, now_s)
        return replace(caps, nodes={**caps.nodes, refused.node: cap})
    if not refused.system_wide and refused.open_on_device > 0:
        cap = _learnt(caps.devices.get(refused.device), refused.open_on_device, now_s)
        return replace(caps, devices={**caps.devices, refused.device: cap})
    return caps


def _learnt(before: LearntCap | None, refused_at: int, now_s: float) -> LearntCap:
    wait_s = RETRY_S
    if before is not None and before.refused_at == refused_at:
        # Refusals count as one until the first reduction of slots takes effect.
        was_retried = before.sessions > refused_at
        wait_s = min(before.wait_s * 2, RETRY_MAX_S) if was_retried else before.wait_s
    return LearntCap(sessions=refused_at, refused_at=refused_at, retry_at_s=now_s + wait_s, wait_s=wait_s)


def record_open(caps: KnownCaps, seen: SessionsOpen) -> KnownCaps:
    """Return the caps without those that working sessions have exceeded (a new driver, or others closed theirs)."""
    devices, nodes = dict(caps.devices), dict(caps.nodes)
    if (cap := devices.get(seen.device)) is not None and cap.refused_at < seen.open_on_device:
        del devices[seen.device]
    if (cap := nodes.get(seen.node)) is not None and cap.refused_at < seen.open_on_node:
        del nodes[seen.node]
    return KnownCaps(devices, nodes)


def relaxed(caps: KnownCaps, now_s: float) -> KnownCaps:
    """Return the caps with one more session for each cap old enough to be tried again."""
    due = [*caps.devices.values(), *caps.nodes.values()]
    if all(now_s < cap.retry_at_s for cap in due):
        return caps
    devices = {name: _relaxed(cap, now_s) for name, cap in caps.devices.items()}
    return KnownCaps(devices, {name: _relaxed(cap, now_s) for name, cap in caps.nodes.items()})


def _relaxed(cap: LearntCap, now_s: float) -> LearntCap:
    if now_s < cap.retry_at_s:
        return cap
    return replace(cap, sessions=cap.refused_at + 1, retry_at_s=now_s + cap.wait_s)


def with_caps(inventory: Inventory, caps: KnownCaps) -> Inventory:
    """Return the inventory with learnt caps in place of documented ones."""
    if not caps.devices and not caps.nodes:
        return inventory
    nodes = (
        replace(
            node,
            devices=tuple(_capped(device, caps) for device in node.devices),
            system_encoder_sessions_max=caps.nodes[node.node].sessions
            if node.node in caps.nodes
            else node.system_encoder_sessions_max,
        )
        for node in inventory.nodes
    )
    return Inventory(tuple(nodes))


def _capped(device: Device, caps: KnownCaps) -> Device:
    known = caps.devices.get(device.parent or device.device, caps.devices.get(device.device))
    return device if known is None else replace(device, encoder_sessions_max=known.sessions)
