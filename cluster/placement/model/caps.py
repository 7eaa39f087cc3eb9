"""How many encoder sessions a device or a machine takes, learnt from its refusals.

Drivers cap the sessions of GeForce cards for the whole machine: one too many fails with an error that looks like a lack
of memory. Documented caps have changed with drivers (3, 5, 8, 12), so the sessions open at a refusal count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .inventory import Device, Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsOpen:
    """How many encoder sessions are open and work, on a device and on all GPUs of its node."""

    device: str
    node: str
    open_on_device: int
    open_on_node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRefused(SessionsOpen):
    """A device refused one more; ``system_wide`` says that the cap is the machine's, as for GeForce cards."""

    system_wide: bool


@dataclass(frozen=True, slots=True)
class KnownCaps:
    """Caps by device and by node."""

    devices: Mapping[str, int] = field(default_factory=dict)
    nodes: Mapping[str, int] = field(default_factory=dict)


def record_cap(caps: KnownCaps, refused: SessionRefused) -> KnownCaps:
    """Return the caps with one refusal added. A refusal with nothing open has another cause than a cap."""
    if refused.system_wide and refused.open_on_node > 0:
        return replace(caps, nodes={**caps.nodes, refused.node: refused.open_on_node})
    if not refused.system_wide and refused.open_on_device > 0:
        return replace(caps, devices={**caps.devices, refused.device: refused.open_on_device})
    return caps


def record_open(caps: KnownCaps, seen: SessionsOpen) -> KnownCaps:
    """Return the caps without those that working sessions have passed (a new driver)."""
    devices, nodes = dict(caps.devices), dict(caps.nodes)
    if devices.get(seen.device, seen.open_on_device) < seen.open_on_device:
        del devices[seen.device]
    if nodes.get(seen.node, seen.open_on_node) < seen.open_on_node:
        del nodes[seen.node]
    return KnownCaps(devices, nodes)


def with_caps(inventory: Inventory, caps: KnownCaps) -> Inventory:
    """Return the inventory with learnt caps in the place of documented ones."""
    if not caps.devices and not caps.nodes:
        return inventory
    nodes = (
        replace(
            node,
            devices=tuple(_capped(device, caps) for device in node.devices),
            system_encoder_sessions_max=caps.nodes.get(node.node, node.system_encoder_sessions_max),
        )
        for node in inventory.nodes
    )
    return Inventory(tuple(nodes))


def _capped(device: Device, caps: KnownCaps) -> Device:
    known = caps.devices.get(device.parent or device.device, caps.devices.get(device.device))
    return device if known is None else replace(device, encoder_sessions_max=known)
