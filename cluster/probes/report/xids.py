"""The Xid errors of NVIDIA's drivers: the name of each error, and how codecfleet reacts to it."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache

from .tables import read_tables


class XidAction(Enum):
    """A reaction to an Xid, the mildest first."""

    NOTE = "note it"
    RESTART_SESSION = "restart the session"
    RESTART_WORKER = "restart the worker"
    QUARANTINE_DEVICE = "quarantine the device"
    DRAIN_NODE = "drain the node"


@dataclass(frozen=True, slots=True)
class XidRule:
    """The rule for an Xid; ``reason`` is a sentence without a full stop."""

    xid: int
    name: str
    action: XidAction
    reason: str


@cache
def xid_rules() -> dict[int, XidRule]:
    """Return all rules, by Xid."""
    rows = read_tables("nvml.toml")["xids"]
    return {
        int(xid): XidRule(int(xid), row["name"], XidAction(row["action"]), row["reason"]) for xid, row in rows.items()
    }


def xid_rule(xid: int) -> XidRule:
    """Return the rule for an Xid; an Xid that is not listed is only noted."""
    return xid_rules().get(xid) or XidRule(xid, f"Xid {xid}", XidAction.NOTE, "codecfleet has no rule for this Xid")


def worst_action(xids: Iterable[int]) -> XidAction:
    """Return the most severe action that these Xids require; ``NOTE`` if there are none."""
    order = list(XidAction)
    return max((xid_rule(xid).action for xid in xids), key=order.index, default=XidAction.NOTE)


def broken_by_xid(xids: Iterable[int]) -> str:
    """Return why a device may get no more work after these errors; "" if it may get work."""
    rules = (xid_rule(xid) for xid in xids)
    bad = next((rule for rule in rules if rule.action in (XidAction.QUARANTINE_DEVICE, XidAction.DRAIN_NODE)), None)
    return "" if bad is None else f"Xid {bad.xid}, {bad.name}: {bad.reason}"
