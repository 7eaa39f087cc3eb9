"""What an Xid error asks for: NVIDIA's "Xid Errors" catalogue in words, and codecfleet's policy for each.

An Xid that is not listed is only reported and counted: most of them belong to other people's programs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class XidAction(Enum):
    """What to do, the mildest first."""

    NOTE = "note it"
    RESTART_SESSION = "restart the session"
    RESTART_WORKER = "restart the worker"
    QUARANTINE_DEVICE = "quarantine the device"
    DRAIN_NODE = "drain the node"


@dataclass(frozen=True, slots=True)
class XidRule:
    """One Xid: what it is called, what to do, and why, in a sentence without a full stop."""

    xid: int
    name: str
    action: XidAction
    reason: str


XID_RULES: dict[int, XidRule] = {
    xid: XidRule(xid, name, action, reason)
    for action, rules in {
        XidAction.NOTE: {
            63: (
                "row remapping or page retirement recorded",
                "a bad memory row is replaced at the next reset, which can wait until the device is idle",
            ),
        },
        XidAction.RESTART_SESSION: {
            45: ("preemptive channel removal", "channels were cleaned up after another error or a process's end"),
        },
        XidAction.RESTART_WORKER: {
            31: ("GPU memory page fault", "a program touched memory that is not its own: its context is dead"),
            43: ("GPU stopped processing", "a program's channel was reset after it failed; others are not hurt"),
            68: ("NVDEC engine exception", "the decoder was reset under a session: the worker's context is dead"),
            73: ("NVENC engine exception", "the encoder was reset under a session: the worker's context is dead"),
            94: ("contained memory error", "a memory error was kept to the program that met it"),
        },
        XidAction.QUARANTINE_DEVICE: {
            48: ("double-bit ECC error", "ECC could not correct lost data: nothing can be trusted before a reset"),
            62: ("internal micro-controller halt", "power management stopped, and only a reset brings it back"),
            64: ("row remapping or page retirement failed", "a bad memory row needs a reset or a repair"),
            74: ("NVLink error", "a link between GPUs failed, which mostly needs a reset of the GPU"),
            95: ("uncontained memory error", "a memory error may have spread to every program on the device"),
            119: ("GSP did not answer", "the GPU's system processor hangs, and only a reset brings it back"),
            120: ("GSP error", "the GPU's system processor failed, and only a reset brings it back"),
        },
        XidAction.DRAIN_NODE: {
            79: ("GPU has fallen off the bus", "the GPU does not answer, and mostly only a reboot brings it back"),
        },
    }.items()
    for xid, (name, reason) in rules.items()
}


def xid_rule(xid: int) -> XidRule:
    """Return what an Xid asks for; one that is not listed is only noted."""
    return XID_RULES.get(xid) or XidRule(xid, f"Xid {xid}", XidAction.NOTE, "codecfleet has no rule for it")


def worst_action(xids: Iterable[int]) -> XidAction:
    """Return the severest thing that any of these Xids asks for; ``NOTE`` for none at all."""
    order = list(XidAction)
    return max((xid_rule(xid).action for xid in xids), key=order.index, default=XidAction.NOTE)


def broken_by_xid(xids: Iterable[int]) -> str:
    """Return why a device may not be trusted after these errors, "" where it may."""
    rules = (xid_rule(xid) for xid in xids)
    bad = next((rule for rule in rules if rule.action in (XidAction.QUARANTINE_DEVICE, XidAction.DRAIN_NODE)), None)
    return "" if bad is None else f"Xid {bad.xid}, {bad.name}: {bad.reason}"
