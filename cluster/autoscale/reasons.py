"""Explains the size of a group, and the delay of a job, in one line."""

from collections.abc import Iterable, Sequence
from math import isinf

from ..grouping import counted
from .capacity import NodePool, Served
from .config import AutoscaleConfig
from .values import Forecast, JobWork, NodeSeen

MILLION, MINUTE_S, HOUR_S = 1_000_000, 60, 3600
LATE_S = 1.0
LITTLE = 0.25
"""If the work takes less than this fraction of a node's start time, the reason given is not the price of
frames but the cost of starting a node."""


def duration(seconds: float) -> str:
    """Return a readable time: ``40 s``, ``25 min``, ``3.5 h``."""
    if seconds < 2 * MINUTE_S:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE_S:.0f} min" if seconds < 2 * HOUR_S else f"{seconds / HOUR_S:.1f} h"


def why_more(config: AutoscaleConfig, pool: NodePool, served: Sequence[Served], now_s: float) -> str:
    """Return why this group, rather than another group, gets new nodes; "" if it gets no nodes."""
    name = pool.group.name
    takers = [each for each in served if each.shares[name].new]
    if not takers:
        return ""
    largest = max(takers, key=lambda each: each.shares[name].frames)
    until = duration(max(0.0, largest.until_s - now_s))
    jobs = counted(len(takers), "job")
    if largest.shares[name].frames / largest.work.fps[name] < LITTLE * pool.group.start_s:
        return f"{pool.new} more for {jobs} {_little(config, largest, name, len(takers))}"
    return f"{pool.new} more for {jobs}, to end within {until}: {'; '.join(_prices(config, largest.work, name))}"


def _little(config: AutoscaleConfig, served: Served, name: str, jobs: int) -> str:
    """Return why nodes of this group are started for work that takes less time than starting a node."""
    frames, fps = served.shares[name].frames, served.work.fps
    able = [group for group in config.groups if fps.get(group.name, 0.0) > 0]
    paid_s = {group.name: group.start_s + config.idle_s + frames / fps[group.name] for group in able}
    cost = {group.name: group.price_per_s * paid_s[group.name] for group in able}
    work = f"of {'at most ' * (jobs > 1)}about {duration(max(1.0, frames / fps[name]))} of work"
    is_least = len(cost) > 1 and cost[name] <= min(cost.values())
    return f"{work}: starting and releasing a node costs least on {name}" if is_least else work


def _prices(config: AutoscaleConfig, work: JobWork, name: str) -> Iterable[str]:
    """Yield the price of a million frames in each group, or why the group cannot run the job; chosen group first."""
    for group in sorted(config.groups, key=lambda each: each.name != name):
        fps = work.fps.get(group.name, 0.0)
        if fps > 0:
            cost = f"{group.price_per_s * MILLION / fps:.2f}"
            yield f"a million frames cost {cost} on {name}" if group.name == name else f"{cost} on {group.name}"
        else:
            yield f"{group.name} cannot: {work.refusals.get(group.name, 'it has no device for the job')}"


def why_same(config: AutoscaleConfig, pool: NodePool, here: Sequence[NodeSeen], now_s: float) -> str:
    """Return why a group keeps its size."""
    if pool.coming:
        is_needed = pool.needed > pool.there
        return f"{counted(pool.coming, 'node')} pending{'' if is_needed else ', no longer needed'}"
    if not here:
        return "no work for it"
    idle = [node.idle_since_s for node in here if not node.leases and node.idle_since_s is not None]
    if not idle:
        return "all busy"
    if len(here) <= pool.group.nodes_min:
        return (
            f"{counted(pool.group.nodes_min, 'node')} always stay" if pool.group.nodes_min > 1 else "one always stays"
        )
    if len(here) - len(idle) < pool.needed:
        return f"{len(idle)} idle, {counted(pool.needed, 'node')} needed"
    left_s = max(0.0, min(idle) + config.idle_s - now_s)
    return f"{len(idle)} idle, the first may end in {duration(left_s)}"


def forecast_of(served: Served, now_s: float) -> Forecast:
    """Return a job's expected delay, with the reason for the delay."""
    late_s, work = served.late_s(now_s), served.work
    if isinf(late_s):
        why = next(iter(work.refusals.values()), "the limits allow no node for the job")
        return Forecast(work.job, late_s, f"no group can run the job now: {why}", served.cost)
    if late_s < LATE_S:
        return Forecast(work.job, 0.0, "", served.cost)
    asked = "promised" if work.is_promised else "planned"
    limit = "the limits allow no more nodes" if served.left_frames else "nodes cannot start sooner"
    return Forecast(work.job, late_s, f"about {duration(late_s)} later than {asked}: {limit}", served.cost)
