"""Caps on encoder sessions of devices and machines, learnt from refusals; documented caps change with drivers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from .inventory import Device, Inventory


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntCap:
    """How many sessions to try: those open at the last refusal and, from time to time, one more."""

    sessions: int
    refused_at: int  # how many sessions were open at the last refusal
    retry_at_s: float
    wait_s: float  # the wait before ``retry_at_s``; it doubles if the retry is refused at the same number


KnownCaps = Mapping[str, LearntCap]
"""Caps by the name of a device or node."""
RETRY_S: Final = 300.0
RETRY_MAX_S: Final = 3600.0


def record_cap(caps: KnownCaps, name: str, refused_at: int, now_s: float) -> KnownCaps:
    """Return the caps after a device or node refused another session while ``refused_at`` sessions were open.

    A refusal while no session was open has another cause.
    """
    return {**caps, name: _learnt(caps.get(name), refused_at, now_s)} if refused_at > 0 else caps


def _learnt(before: LearntCap | None, refused_at: int, now_s: float) -> LearntCap:
    wait_s = RETRY_S
    if before is not None and before.refused_at == refused_at:
        # Several refusals count as one until the reduced number of slots takes effect.
        was_retried = before.sessions > refused_at
        wait_s = min(before.wait_s * 2, RETRY_MAX_S) if was_retried else before.wait_s
    return LearntCap(sessions=refused_at, refused_at=refused_at, retry_at_s=now_s + wait_s, wait_s=wait_s)


def record_open(caps: KnownCaps, working: Mapping[str, int]) -> KnownCaps:
    """Return the caps except those that are disproved: more sessions work now than were open at the refusal."""
    return {name: cap for name, cap in caps.items() if cap.refused_at >= working.get(name, 0)}


def relaxed(caps: KnownCaps, now_s: float) -> KnownCaps:
    """Return the caps, each raised by one session if its retry is due."""
    due = ((name, cap) for name, cap in caps.items() if now_s >= cap.retry_at_s)
    return {
        **caps,
        **{name: replace(cap, sessions=cap.refused_at + 1, retry_at_s=now_s + cap.wait_s) for name, cap in due},
    }


def with_caps(inventory: Inventory, caps: KnownCaps) -> Inventory:
    """Return a copy of the inventory in which learnt caps replace documented caps."""
    if not caps:
        return inventory
    nodes = (
        replace(
            node,
            devices=tuple(_capped(device, caps) for device in node.devices),
            system_encoder_sessions_max=caps[node.node].sessions
            if node.node in caps
            else node.system_encoder_sessions_max,
        )
        for node in inventory.nodes
    )
    return Inventory(tuple(nodes))


def _capped(device: Device, caps: KnownCaps) -> Device:
    known = caps.get(device.parent or device.device, caps.get(device.device))
    return device if known is None else replace(device, encoder_sessions_max=known.sessions)
