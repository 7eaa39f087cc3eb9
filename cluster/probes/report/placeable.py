"""When a device may not be given new work for its health: the one rule of the inventory and of the running supervisor.

Doctor says the same as findings, with what to do. Pure functions over ``Health``.
"""

from collections.abc import Iterable

from .absence import known
from .device_report import Health
from .xids import XidAction, xid_rule

_NO_ACTION = "none"


def why_unplaceable(health: Health) -> str:
    """Return why a device may get no new work, as a sentence without a full stop; "" where it may.

    It is lost; an Xid error asks for a quarantine; its driver advises recovery; memory errors could not be corrected;
    or bad memory waits for the next reset to be replaced (NVML API Reference Manual, "Device Queries"; the vGPU
    Management SDK guide's 3.3.2 for which of these a guest has).
    """
    if health.lost:
        return health.lost
    if broken := broken_by_xid(health.xids):
        return broken
    if (action := known(health.recovery_action, _NO_ACTION)) != _NO_ACTION:
        return f"its driver advises: {action}"
    if errors := known(health.ecc_uncorrected, 0):
        return f"its memory is damaged: {errors} error{'' if errors == 1 else 's'} could not be corrected"
    if known(health.retirement_pending, otherwise=False) or known(health.remapped_rows_pending, otherwise=False):
        return "a reset is pending: bad memory was found and is replaced then"
    return ""


def broken_by_xid(xids: Iterable[int]) -> str:
    """Return why a device may not be trusted after these errors, "" where it may."""
    rules = (xid_rule(xid) for xid in xids)
    bad = next((rule for rule in rules if rule.action in (XidAction.QUARANTINE_DEVICE, XidAction.DRAIN_NODE)), None)
    return "" if bad is None else f"Xid {bad.xid}, {bad.name}: {bad.reason}"
