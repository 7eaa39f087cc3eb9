"""Packs users' orders and quarantined devices for the next supervisor, with times in UTC."""

from typing import Any, Final

import msgpack

from ...probes.report.engines import Engine
from ...worker_names import NodeId
from .events import KeepQuarantines, Order, Remember
from .quarantine import Cause, DeviceRecord, Quarantine

ORDERS_KEY: Final = "codecfleet/orders"
QUARANTINES_KEY: Final = "codecfleet/quarantines"


def pack_kept(effect: Remember | KeepQuarantines, utc_offset_s: float) -> tuple[str, bytes]:
    """Return the key and the bytes to store; ``utc_offset_s`` plus the supervisor's clock is UTC."""
    if isinstance(effect, Remember):
        return ORDERS_KEY, msgpack.packb({node: order.value for node, order in effect.orders.items()})
    found = ((key, record.quarantine, record.times) for key, record in effect.records.items())
    records = {key: _packed(each, times, utc_offset_s) for key, each, times in found if each is not None}
    return QUARANTINES_KEY, msgpack.packb(records)


def unpack_orders(packed: bytes | None) -> dict[NodeId, Order]:
    """Return the stored orders by node; {} for None."""
    kept = {} if packed is None else msgpack.unpackb(packed)
    known = {order.value for order in Order}
    # An unknown order keeps work off the node too.
    return {NodeId(node): Order(order) if order in known else Order.CORDON for node, order in kept.items()}


def _packed(found: Quarantine, times: int, utc_offset_s: float) -> dict[str, Any]:
    return {
        "cause": found.cause.value,
        "reason": found.reason,
        "since_s": found.since_s + utc_offset_s,
        "rest_until_s": found.rest_until_s + utc_offset_s,
        "until_uncordon": found.until_uncordon,
        "engines": sorted(engine.value for engine in found.engines),
        "times": times,
    }


def unpack_quarantines(packed: bytes | None, utc_offset_s: float) -> dict[str, DeviceRecord]:
    """Return the stored records, on a clock that is ``utc_offset_s`` behind UTC; {} for None."""
    found = {} if packed is None else msgpack.unpackb(packed)
    return {key: _unpacked(values, utc_offset_s) for key, values in found.items()}


def _unpacked(values: dict[str, Any], utc_offset_s: float) -> DeviceRecord:
    causes, engines = {cause.value: cause for cause in Cause}, {engine.value: engine for engine in Engine}
    found = Quarantine(
        cause=causes.get(values["cause"], Cause.POLL),
        reason=values["reason"],
        since_s=values["since_s"] - utc_offset_s,
        rest_until_s=values["rest_until_s"] - utc_offset_s,
        until_uncordon=values.get("until_uncordon", False),
        engines=frozenset(engines[name] for name in values.get("engines", ()) if name in engines),
    )
    return DeviceRecord(quarantine=found, times=values.get("times", 1))
