"""What an Xid error asks for: NVIDIA's "Xid Errors" catalogue in words, and codecfleet's policy for each."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from .tables import read_tables


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
    int(xid): XidRule(int(xid), row["name"], XidAction(row["action"]), row["reason"])
    for xid, row in read_tables("nvml.toml")["xids"].items()
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
