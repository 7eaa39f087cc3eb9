"""Decides how many nodes each group should have, by the rules in docs/autoscaling.md.

``capacity.py`` computes how many nodes the work needs. This module adds hysteresis: a group does not grow soon after it
shrank, nor shrink soon after it grew, and a node ends only after some idle time.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Final

from ..grouping import counted
from ..placement.model.inventory import plain_type
from .capacity import LEAST_FRAMES, Budget, NodePool, plan_capacity
from .config import AutoscaleConfig, Group
from .reasons import duration, forecast_of, why_more, why_same
from .values import Decision, GroupSize, JobWork, NodeOrder, NodeSeen

NO_SHOW: Final = 3.0
"""If requested nodes are missing for longer than ``NO_SHOW`` times the group's ``start_s``, plus ``NO_SHOW_S``, the
group gets no more requests during the next ``CLOSED_S``.
"""
NO_SHOW_S: Final = 60.0
CLOSED_S: Final = 600.0


def decide(
    config: AutoscaleConfig, work: Sequence[JobWork], nodes: Sequence[NodeSeen], last: Decision | None, now_s: float
) -> Decision:
    """Return each group's size, the nodes that get no new work, and the nodes that end, each with its reason.

    ``work`` is the remaining work of each job, ``nodes`` are all running nodes of the groups, and ``now_s`` is
    monotonic.
    """
    before = last or Decision()
    surplus = frozenset(order.node for order in before.surplus)
    groups = [
        _GroupNow.of(config, group, nodes, before.size(group.name), surplus, now_s=now_s) for group in config.groups
    ]
    price = sum(each.held * float(each.group.price_per_hour) for each in groups)
    most = inf if config.price_per_hour_max is None else float(config.price_per_hour_max)
    budget = Budget(max(0, config.nodes_max - sum(each.held for each in groups)), most - price)
    pools = [each.pool(budget) for each in groups]
    served = plan_capacity(config, work, pools, budget, now_s)
    decided = [
        each.decided(pool, _useful(each.group, work), why_more(config, pool, served, now_s))
        for each, pool in zip(groups, pools, strict=True)
    ]
    return Decision(
        sizes=tuple(size for size, _, _ in decided),
        surplus=tuple(order for _, surplus, _ in decided for order in surplus),
        drain=tuple(order for _, _, drain in decided for order in drain),
        forecasts=tuple(forecast_of(each, now_s) for each in served),
    )


def _useful(group: Group, work: Sequence[JobWork]) -> int:
    """Return how many nodes of a group the remaining segments can fill."""
    able = [each for each in work if each.fps.get(group.name, 0.0) > 0]
    return ceil(sum(each.at_once / each.sessions[group.name] for each in able) - LEAST_FRAMES)


def _passed(at_s: float | None, wait_s: float) -> float:
    """Return ``at_s`` plus ``wait_s``; minus infinity if ``at_s`` is None."""
    return -inf if at_s is None else at_s + wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupNow:
    """The current state of a group, from which its new size follows."""

    config: AutoscaleConfig
    group: Group
    here: tuple[NodeSeen, ...]  # nodes of the group that take work
    leaving: int  # nodes of the group that are ending
    coming: int  # nodes requested but not yet running
    before: GroupSize  # the last decision, updated with what has been seen since
    surplus: frozenset[str]  # nodes that get no new work
    now_s: float

    @classmethod
    def of(
        cls,
        config: AutoscaleConfig,
        group: Group,
        nodes: Sequence[NodeSeen],
        before: GroupSize,
        surplus: frozenset[str],
        *,
        now_s: float,
    ) -> "_GroupNow":
        """Return the state of a group; the group is closed for a while if requested nodes did not arrive."""
        own = [node for node in nodes if node.group == group.name]
        here = tuple(node for node in own if not node.is_leaving)
        before = replace(before, wanted=max(before.wanted, len(here)))  # other programs may have started nodes too
        coming = before.wanted - len(here)
        is_fewer = coming < before.missing or before.missing_s is None
        missing_s = None if not coming else now_s if is_fewer else before.missing_s
        before = replace(before, there=len(here), missing_s=missing_s, missing=coming)
        limit_s = NO_SHOW * group.start_s + NO_SHOW_S
        if missing_s is not None and now_s - missing_s > limit_s and now_s >= _passed(before.raised_s, config.turn_s):
            closed = replace(before, wanted=len(here), missing_s=None, missing=0)
            before, coming = replace(closed, closed_until_s=now_s + CLOSED_S, lowered_s=now_s), 0
        return cls(
            config=config,
            group=group,
            here=here,
            leaving=len(own) - len(here),
            coming=coming,
            before=before,
            surplus=surplus,
            now_s=now_s,
        )

    @property
    def held(self) -> int:
        """The number of running, ending and requested nodes of the group."""
        return len(self.here) + self.leaving + self.coming

    @property
    def _is_closed(self) -> bool:
        return self.before.closed_until_s is not None and self.now_s < self.before.closed_until_s

    def pool(self, budget: Budget) -> NodePool:
        """Return the group's nodes, filled up to ``nodes_min`` from ``budget`` as far as the limits allow."""
        group, before, now_s = self.group, self.before, self.now_s
        room = max(0, group.nodes_max - self.held)
        least = min(max(0, group.nodes_min - len(self.here) - self.coming), room, budget.most(group))
        budget.spend(group, least)
        return NodePool(
            group=group,
            there=len(self.here),
            coming=self.coming + least,
            coming_at_s=max(now_s, (now_s if before.raised_s is None else before.raised_s) + group.start_s),
            new_at_s=max(now_s, _passed(before.lowered_s, self.config.turn_s)) + group.start_s,
            room=0 if self._is_closed else room - least,
            is_closed=self._is_closed,
        )

    def decided(self, pool: NodePool, useful: int, more: str) -> tuple[GroupSize, list[NodeOrder], list[NodeOrder]]:
        """Return the wanted size, the nodes that get no new work, and the nodes that end.

        ``pool`` has the planned nodes, ``more`` is the reason for new nodes, and ``useful`` is the number of nodes that
        all work together can fill.
        """
        keep = max(pool.needed, self.group.nodes_min)
        size = self._sized(pool, more)
        drain = [] if pool.new else list(self._ended(size, keep))
        if drain:
            size = replace(size, wanted=size.wanted - len(drain), lowered_s=self.now_s, reason=drain[0].reason)
        gone = {order.node for order in drain}
        here = [node for node in self.here if node.node not in gone]
        excess = max(0, len(here) - max(keep, useful))
        since_s = None if not excess else self.now_s if size.surplus_since_s is None else size.surplus_since_s
        surplus: list[NodeOrder] = []
        if since_s is not None and self.now_s - since_s >= self.config.idle_s:
            # Nodes with the fewest leases get no new work: a few segments must not keep many nodes running.
            here.sort(key=lambda each: (each.node not in self.surplus, each.leases, each.node))
            reason = f"the remaining work fills {counted(useful, 'node')}"
            surplus = [NodeOrder(node.node, reason) for node in here[:excess]]
        return replace(size, surplus_since_s=since_s), surplus, drain

    def _sized(self, pool: NodePool, more: str) -> GroupSize:
        """Return the wanted size, before idle nodes are ended."""
        before, turn_s, now_s = self.before, self.config.turn_s, self.now_s
        wanted, reason = pool.there + pool.coming, why_same(self.config, pool, self.here, now_s)
        wait_s = _passed(before.lowered_s, turn_s) - now_s
        if pool.new and wait_s > 0:
            reason = f"{more}; in {duration(wait_s)} at the earliest, because the group shrank recently"
        elif pool.new:
            wanted, reason = wanted + pool.new, more
        elif self.coming and pool.needed <= pool.there and now_s >= _passed(before.raised_s, turn_s):
            wanted, reason = max(pool.there, self.group.nodes_min), "the requested nodes are no longer needed"
        if before.closed_until_s is not None and self._is_closed:
            left = duration(before.closed_until_s - now_s)
            reason = f"requested nodes did not arrive; no more are requested for {left}"
        if self.group.limit and not pool.room and not pool.new:
            reason = f"{reason}; {self.group.limit}"
        wanted = min(wanted, max(0, self.group.nodes_max - self.leaving))
        return replace(
            before,
            wanted=wanted,
            reason=reason,
            raised_s=now_s if wanted > before.wanted else before.raised_s,
            lowered_s=now_s if wanted < before.wanted else before.lowered_s,
        )

    def _ended(self, size: GroupSize, keep: int) -> Iterator[NodeOrder]:
        """Yield the nodes to end: idle nodes beyond ``keep`` that have been idle for ``idle_s`` or are surplus."""
        if self.now_s < _passed(size.raised_s, self.config.turn_s):
            return
        idle = [
            (since_s, node.node)
            for node in self.here
            if not node.leases and (since_s := node.idle_since_s) is not None
            if node.node in self.surplus or self.now_s - since_s >= self.config.idle_s
        ]
        for since_s, node in sorted(idle)[: max(0, len(self.here) - keep)]:
            yield NodeOrder(node, f"it was idle for {duration(self.now_s - since_s)}")


def with_vgpu_rooms(
    config: AutoscaleConfig, nodes: Sequence[NodeSeen], last: Decision, rooms: Mapping[str, int] | None
) -> AutoscaleConfig:
    """Limit groups of machines with vGPUs to the vGPUs that the cluster's hosts can still create.

    ``rooms`` is the number of such vGPUs by type (vGPU Management SDK guide, 2.2); None if no node hosts vGPUs.
    Requested nodes are not subtracted, because a machine may get its vGPU before it joins the cluster.
    """
    if rooms is None:
        return config
    return replace(config, groups=tuple(_limited(group, nodes, last, rooms) for group in config.groups))


def _limited(group: Group, nodes: Sequence[NodeSeen], last: Decision, rooms: Mapping[str, int]) -> Group:
    needs = Counter(plain_type(each.name) for each in group.node.devices if each.kind.is_guest)
    if not needs:
        return group
    name, room = min(((name, rooms.get(name, 0) // count) for name, count in needs.items()), key=lambda each: each[1])
    here = sum(node.group == group.name for node in nodes)
    most = max(last.size(group.name).wanted, here + room)
    if most >= group.nodes_max:
        return group
    return replace(group, nodes_max=max(most, group.nodes_min), limit=f"no host can create another {name} now")
