"""Packs users' orders and quarantined devices for the next supervisor.

Durations are stored instead of times, because the next supervisor may run on a machine with another clock. So the time
between the last storing and the next supervisor's start is not counted.
"""

from typing import Any, Final

import msgpack

from ...probes.report.engines import Engine
from ...worker_names import NodeId
from .events import KeepQuarantines, Order, Remember
from .quarantine import Cause, DeviceRecord, Quarantine

ORDERS_KEY: Final = "codecfleet/orders"
QUARANTINES_KEY: Final = "codecfleet/quarantines"


def pack_kept(effect: Remember | KeepQuarantines, now_s: float) -> tuple[str, bytes]:
    """Return the orders or quarantines of ``effect`` as bytes, with the key under which they are stored."""
    if isinstance(effect, Remember):
        return ORDERS_KEY, msgpack.packb({node: order.value for node, order in effect.orders.items()})
    found = ((key, record.quarantine, record.times) for key, record in effect.records.items())
    records = {key: _packed(each, times, now_s) for key, each, times in found if each is not None}
    return QUARANTINES_KEY, msgpack.packb(records)


def unpack_orders(packed: bytes | None) -> dict[NodeId, Order]:
    """Return the orders that ``packed`` holds, by node; {} for None."""
    kept = {} if packed is None else msgpack.unpackb(packed)
    known = {order.value for order in Order}
    # An order that this version does not know keeps work off the node too.
    return {NodeId(node): Order(order) if order in known else Order.CORDON for node, order in kept.items()}


def _packed(found: Quarantine, times: int, now_s: float) -> dict[str, Any]:
    return {
        "cause": found.cause.value,
        "reason": found.reason,
        "age_s": now_s - found.since_s,
        "rest_s": max(0.0, found.rest_until_s - now_s),
        "until_uncordon": found.until_uncordon,
        "engines": sorted(engine.value for engine in found.engines),
        "times": times,
    }


def unpack_quarantines(packed: bytes | None, now_s: float) -> dict[str, DeviceRecord]:
    """Return the records of quarantined devices that ``packed`` holds, by key; {} for None."""
    found = {} if packed is None else msgpack.unpackb(packed)
    return {key: _unpacked(values, now_s) for key, values in found.items()}


def _unpacked(values: dict[str, Any], now_s: float) -> DeviceRecord:
    causes, engines = {cause.value: cause for cause in Cause}, {engine.value: engine for engine in Engine}
    found = Quarantine(
        cause=causes.get(values["cause"], Cause.POLL),
        reason=values["reason"],
        since_s=now_s - values.get("age_s", 0.0),
        rest_until_s=now_s + values.get("rest_s", 0.0),
        until_uncordon=values.get("until_uncordon", False),
        engines=frozenset(engines[name] for name in values.get("engines", ()) if name in engines),
    )
    return DeviceRecord(quarantine=found, times=values.get("times", 1))
