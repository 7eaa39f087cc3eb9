"""How many nodes of each group there should be: one pure, synchronous function of what is known.

Needs come from ``capacity.py``. Here they meet limits and time: a group that shrank does not grow again at once, nor
the other way about; nodes end only after they were idle for a while; a node that runs something is never ended.
docs/autoscaling.md has the rules.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from .capacity import LEAST_FRAMES, NodePool, plan_capacity
from .config import AutoscaleConfig, Group
from .reasons import duration, forecast_of, why_closed, why_idle, why_more, why_same, why_surplus
from .seeing import SeenGroup, passed, pools_of, see_group
from .values import Decision, GroupSize, JobWork, NodeOrder, NodeSeen


def decide(
    config: AutoscaleConfig, work: Sequence[JobWork], nodes: Sequence[NodeSeen], last: Decision | None, now_s: float
) -> Decision:
    """Return how many nodes of each group there should be, which get no new work and which end, each with its reason.

    Args:
        config: groups and limits.
        work: what jobs have left to do; a job appears once.
        nodes: every node of a group that is up.
        last: the last decision, None for the first.
        now_s: the time; it never goes back.
    """
    before = last or Decision()
    resting = frozenset(order.node for order in before.rest)
    seen = [see_group(config, group, nodes, before.size(group.name), now_s) for group in config.groups]
    pools, purse = pools_of(config, seen, now_s)
    served = plan_capacity(config, work, pools, purse, now_s)
    turns = [
        _Turn(config, each, pool, _useful(pool.group, work), resting, now_s)
        for each, pool in zip(seen, pools, strict=True)
    ]
    decided = [turn.decided(why_more(config, turn.pool, served, now_s)) for turn in turns]
    return Decision(
        sizes=tuple(size for size, _, _ in decided),
        rest=tuple(order for _, rest, _ in decided for order in rest),
        drain=tuple(order for _, _, drain in decided for order in drain),
        forecasts=tuple(forecast_of(each, now_s) for each in served),
    )


def _useful(group: Group, work: Sequence[JobWork]) -> int:
    """Return how many nodes of a group all segments that are left could fill."""
    able = [each for each in work if each.fps.get(group.name, 0.0) > 0]
    return ceil(sum(each.at_once / each.sessions[group.name] for each in able) - LEAST_FRAMES)


@dataclass(frozen=True, slots=True)
class _Turn:
    """One group, with what work needs of it: ``useful`` nodes could be filled; ``resting`` ones get no new work."""

    config: AutoscaleConfig
    seen: SeenGroup
    pool: NodePool
    useful: int
    resting: frozenset[str]
    now_s: float

    @property
    def _keep(self) -> int:
        """How many nodes have to stay for work, or in any case."""
        return max(self.pool.needed, self.seen.group.nodes_min)

    def decided(self, more: str) -> tuple[GroupSize, list[NodeOrder], list[NodeOrder]]:
        """Return how many are wanted, which get no new work, and which end; ``more`` says what new ones are for."""
        size = self._sized(more)
        drain = [] if self.pool.new else list(self._ended(size))
        if drain:
            size = replace(size, wanted=size.wanted - len(drain), lowered_s=self.now_s, reason=drain[0].reason)
        gone = {order.node for order in drain}
        here = [node for node in self.seen.here if node.node not in gone]
        surplus = max(0, len(here) - max(self._keep, self.useful))
        since_s = None if not surplus else self.now_s if size.surplus_since_s is None else size.surplus_since_s
        rest = [] if since_s is None or self.now_s - since_s < self.config.idle_s else self._rested(here, surplus)
        return replace(size, surplus_since_s=since_s), rest, drain

    def _sized(self, more: str) -> GroupSize:
        """Return how many nodes are wanted, before any of them ends."""
        before, pool, turn_s = self.seen.before, self.pool, self.config.turn_s
        wanted, reason = pool.there + pool.coming, why_same(self.config, pool, self.seen.here, self.now_s)
        wait_s = passed(before.lowered_s, turn_s) - self.now_s
        if pool.new and wait_s > 0:
            reason = f"{more}; not before {duration(wait_s)} from now, because it shrank lately"
        elif pool.new:
            wanted, reason = wanted + pool.new, more
        elif self.seen.coming and pool.needed <= pool.there and self.now_s >= passed(before.raised_s, turn_s):
            wanted, reason = max(pool.there, self.seen.group.nodes_min), "what was to come is not needed any more"
        if before.closed_until_s is not None and self.now_s < before.closed_until_s:
            reason = why_closed(before.closed_until_s - self.now_s)
        if self.seen.group.limit and not pool.room and not pool.new:
            reason = f"{reason}; {self.seen.group.limit}"
        wanted = min(wanted, max(0, self.seen.group.nodes_max - self.seen.leaving))
        return replace(
            before,
            wanted=wanted,
            reason=reason,
            raised_s=self.now_s if wanted > before.wanted else before.raised_s,
            lowered_s=self.now_s if wanted < before.wanted else before.lowered_s,
        )

    def _ended(self, size: GroupSize) -> Iterator[NodeOrder]:
        """Yield the nodes that end: idle for long enough, and not needed."""
        if self.now_s < passed(size.raised_s, self.config.turn_s):
            return
        idle = [
            (since_s, node.node)
            for node in self.seen.here
            if not node.leases and (since_s := node.idle_since_s) is not None
            if node.node in self.resting or self.now_s - since_s >= self.config.idle_s
        ]
        for since_s, node in sorted(idle)[: max(0, len(self.seen.here) - self._keep)]:
            yield NodeOrder(node, why_idle(self.now_s - since_s))

    def _rested(self, here: Sequence[NodeSeen], count: int) -> list[NodeOrder]:
        """Return the nodes that get no new work, so that few segments do not keep many nodes up."""
        order = sorted(here, key=lambda each: (each.node not in self.resting, each.leases, each.node))
        return [NodeOrder(node.node, why_surplus(self.useful)) for node in order[:count]]
