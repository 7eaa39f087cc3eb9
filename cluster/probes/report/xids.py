"""What an Xid error asks for: NVIDIA's numbers, in words, with what codecfleet does about each.

The meanings are from NVIDIA's "Xid Errors" catalogue; what to do is this project's policy. An Xid that is not listed
is told and counted, and nothing else: most of them belong to other people's programs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

__all__ = ["XID_RULES", "XidAction", "XidRule", "worst_action", "xid_rule"]


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


_SESSION, _WORKER = XidAction.RESTART_SESSION, XidAction.RESTART_WORKER
_QUARANTINE, _DRAIN = XidAction.QUARANTINE_DEVICE, XidAction.DRAIN_NODE

XID_RULES: dict[int, XidRule] = {
    rule.xid: rule
    for rule in (
        XidRule(
            31,
            "GPU memory page fault",
            _WORKER,
            "a program touched memory that is not its own: its context is dead, the GPU is not",
        ),
        XidRule(
            43,
            "GPU stopped processing",
            _WORKER,
            "a program's channel was reset after it failed, and only that program is hurt",
        ),
        XidRule(
            45,
            "preemptive channel removal",
            _SESSION,
            "channels were cleaned up after another error or because a process was ended",
        ),
        XidRule(
            48,
            "double-bit ECC error",
            _QUARANTINE,
            "memory lost data that ECC could not mend, so nothing can be trusted before a reset",
        ),
        XidRule(
            62,
            "internal micro-controller halt",
            _QUARANTINE,
            "the GPU's power management stopped, and only a reset brings it back",
        ),
        XidRule(
            63,
            "row remapping or page retirement recorded",
            XidAction.NOTE,
            "a bad memory row is replaced at the next reset, which can wait until the device is idle",
        ),
        XidRule(
            64,
            "row remapping or page retirement failed",
            _QUARANTINE,
            "a bad memory row could not be replaced, so the device needs a reset or a repair",
        ),
        XidRule(
            68,
            "NVDEC engine exception",
            _WORKER,
            "the decoder engine was reset under a session, so the worker's context is dead",
        ),
        XidRule(
            73,
            "NVENC engine exception",
            _WORKER,
            "the encoder engine was reset under a session, so the worker's context is dead",
        ),
        XidRule(74, "NVLink error", _QUARANTINE, "a link between GPUs failed, which mostly needs a reset of the GPU"),
        XidRule(
            79,
            "GPU has fallen off the bus",
            _DRAIN,
            "the GPU no longer answers, and mostly only a reboot brings it back",
        ),
        XidRule(94, "contained memory error", _WORKER, "a memory error was kept to the program that met it"),
        XidRule(
            95, "uncontained memory error", _QUARANTINE, "a memory error may have spread to every program on the device"
        ),
        XidRule(
            119, "GSP did not answer", _QUARANTINE, "the GPU's system processor hangs, and only a reset brings it back"
        ),
        XidRule(120, "GSP error", _QUARANTINE, "the GPU's system processor failed, and only a reset brings it back"),
    )
}


def xid_rule(xid: int) -> XidRule:
    """Return what an Xid asks for; one that is not listed is only noted."""
    return XID_RULES.get(xid) or XidRule(xid, f"Xid {xid}", XidAction.NOTE, "codecfleet has no rule for it")


def worst_action(xids: Iterable[int]) -> XidAction:
    """Return the severest thing that any of these Xids asks for; ``NOTE`` for none at all."""
    order = list(XidAction)
    return max((xid_rule(xid).action for xid in xids), key=order.index, default=XidAction.NOTE)
