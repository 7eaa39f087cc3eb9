"""Finds the cheapest nodes that finish all work on time.

Jobs are served in order of due time, and the waiting jobs of batches come last. Each job takes the capacity with the
lowest cost per frame: free time on existing nodes, or new nodes, whose cost includes their start and idle time.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final

from .config import AutoscaleConfig, Group
from .values import JobWork

AIM: Final = 0.9
"""The fraction of the remaining time that work on new nodes may take. The margin keeps a slight delay from causing
requests for more nodes. Work on existing nodes may use all of the time."""
CATCH_UP_S: Final = 60.0
"""A late job with a promised end time should end this long after a new node could have finished a segment."""
COST_RATIO_MAX: Final = 2.0
"""For a job without a promised time, a group gets no new nodes if the job costs more there than this multiple of the
cheapest group's cost."""
LEAST_FRAMES: Final = 1e-6
"""Amounts below this are rounding errors."""


@dataclass(slots=True, kw_only=True)
class NodePool:
    """A group's nodes and their use, while capacity is planned."""

    group: Group
    there: int  # running nodes
    coming: int  # nodes requested earlier or for ``nodes_min``, which take work from ``coming_at_s`` on
    coming_at_s: float
    new_at_s: float
    room: int  # how many more nodes may be requested
    is_closed: bool = False  # whether no nodes are requested for a while, because earlier ones did not arrive
    new: int = 0  # nodes that this plan requests, which will take work from ``new_at_s`` on
    used_s: float = 0.0  # node-seconds that jobs have taken
    needed: int = 0  # the fewest nodes that can provide ``used_s``
    filled: float = 0.0  # how many of the ``coming`` nodes the waiting segments of earlier jobs fill


@dataclass(slots=True)
class Share:
    """How many of a job's frames one node group takes, and how many new nodes the group needs for these frames."""

    frames: float = 0.0
    new: int = 0


@dataclass(slots=True)
class Served:
    """The capacity that one job gets."""

    work: JobWork
    until_s: float  # when the job ends: its due time, or later if the job is late
    left_frames: float = 0.0  # frames of the job that have no capacity yet
    shares: defaultdict[str, Share] = field(default_factory=lambda: defaultdict(Share))  # the share of each group
    cost: float = 0.0

    def late_s(self, now_s: float) -> float:
        """Return the job's delay in seconds, as if its frames without capacity ran at the speed of its other frames.

        The delay is infinite if no frame has capacity.
        """
        done = self.work.frames - self.left_frames
        if done <= LEAST_FRAMES:
            return inf
        takes_s = (self.until_s - now_s) * self.work.frames / done
        return max(0.0, now_s + takes_s - self.work.due_s)


@dataclass(frozen=True, slots=True)
class _Offer:
    """Capacity for some of a job's frames."""

    pool: NodePool
    frames: float
    cost: float
    new: int = 0  # how many new nodes this capacity requires


@dataclass(slots=True)
class Budget:
    """The nodes, and the money per hour, that the limits for all groups together still allow."""

    nodes: int
    price_per_hour: float

    def most(self, group: Group) -> int:
        """Return how many more nodes of a group the limits allow."""
        price = float(group.price_per_hour)
        return max(0, self.nodes if price <= 0 else int(min(self.nodes, self.price_per_hour / price + LEAST_FRAMES)))

    def spend(self, group: Group, nodes: int) -> None:
        """Subtract the number and the price of new nodes of a group."""
        self.nodes -= nodes
        self.price_per_hour -= nodes * float(group.price_per_hour)


def plan_capacity(
    config: AutoscaleConfig, work: Sequence[JobWork], pools: Sequence[NodePool], budget: Budget, now_s: float
) -> list[Served]:
    """Return each job's capacity, in the order of service; update ``pools`` and ``budget``."""
    planner = _Planner(config, pools, budget, now_s, _never(config))
    order = sorted(work, key=lambda each: (each.is_later, each.due_s, each.job))
    return [planner.serve(each) for each in order if each.frames > 0]


def _whole(time_s: float, segment_s: float) -> float:
    """Return how many of ``time_s`` seconds an idle node can fill with whole segments."""
    return time_s // segment_s * segment_s if segment_s > 0 else time_s


def _never(config: AutoscaleConfig) -> frozenset[str]:
    """Return the groups for which the limits allow no node, even if all other groups are at ``nodes_min``."""
    most_per_hour = inf if config.price_per_hour_max is None else float(config.price_per_hour_max)
    budget = Budget(config.nodes_max, most_per_hour)
    for group in config.groups:
        budget.spend(group, group.nodes_min)
    return frozenset(
        group.name for group in config.groups if not group.nodes_min and not (group.nodes_max and budget.most(group))
    )


@dataclass(slots=True)
class _Planner:
    """Gives capacity to one job after the other."""

    config: AutoscaleConfig
    pools: Sequence[NodePool]
    budget: Budget
    now_s: float
    never: frozenset[str]  # groups for which the limits allow no node
    too_costly: frozenset[str] = frozenset()  # groups that may not grow for the current job
    unplaced: float = 0.0  # waiting segments of the current job that fit on no requested node

    def serve(self, work: JobWork) -> Served:
        """Give a job enough capacity to finish on time or, if that is impossible, soon after."""
        pools = [pool for pool in self.pools if work.fps.get(pool.group.name, 0.0) > 0]
        self.too_costly = self._too_costly(work, pools)
        if not pools:
            return Served(work, work.due_s, float(work.frames))
        self.unplaced = self._unplaced(work, pools)
        late_s = self._late_s(work, pools)
        served = Served(work, work.due_s, float(work.frames))
        frames_in_time = sum(self._most_s(work, pool) * work.fps[pool.group.name] for pool in pools)
        for until_s in (work.due_s, late_s) if frames_in_time >= work.frames else (late_s,):
            served.until_s = until_s
            while served.left_frames > LEAST_FRAMES and (offers := self._offers(served, pools)):
                self._take(served, min(offers, key=lambda offer: offer.cost / offer.frames))
            if served.left_frames <= LEAST_FRAMES:
                break
        return served

    @staticmethod
    def _unplaced(work: JobWork, pools: Sequence[NodePool]) -> float:
        """Give a job's waiting segments to nodes that were requested earlier; return how many segments do not fit."""
        left = float(work.waiting)
        for pool in pools:
            sessions = work.sessions[pool.group.name]
            nodes = min(pool.coming - pool.filled, left / sessions)
            pool.filled += nodes
            left -= nodes * sessions
        return left

    def _too_costly(self, work: JobWork, pools: Sequence[NodePool]) -> frozenset[str]:
        """Return the groups that cost too much for a job, compared with the cheapest group that can grow."""
        cost = {pool.group.name: self._cost_alone(work, pool.group) for pool in pools}
        able = (pool.group.name for pool in pools if not pool.is_closed and pool.group.name not in self.never)
        least = min((cost[name] for name in able), default=inf)
        most = inf if work.is_promised else COST_RATIO_MAX * least
        return frozenset(name for name in cost if cost[name] > most)

    def _cost_alone(self, work: JobWork, group: Group) -> float:
        """Return a job's cost on nodes that serve only this job, if the job ends within ``finish_within_s``."""
        work_s = work.frames / work.fps[group.name]
        nodes = ceil(work_s / (AIM * self.config.finish_within_s))
        return group.price_per_s * (work_s + nodes * (group.start_s + self.config.idle_s))

    def _most_s(self, work: JobWork, pool: NodePool) -> float:
        """Return the most node-seconds that a group can give a job before it is due."""
        window_s = max(0.0, work.due_s - self.now_s)
        if work.waiting and window_s < work.longest_s(pool.group.name):
            return 0.0
        fresh_s = self._room(pool) * self._fresh_s(work, pool, work.due_s)
        return min(work.nodes_most(pool.group.name) * window_s, self._spare_s(work, pool, work.due_s) + fresh_s)

    def _spare_s(self, work: JobWork, pool: NodePool, until_s: float) -> float:
        """Return the node-seconds that earlier jobs leave free for whole segments of this job."""
        name, window_s = pool.group.name, until_s - self.now_s
        there_s = pool.there * window_s - pool.used_s
        most_s = work.nodes_most(name) * window_s
        empty_s = sum(
            nodes * _whole(max(0.0, until_s - at_s), work.longest_s(name) if work.waiting else 0.0)
            for nodes, at_s in ((pool.coming, pool.coming_at_s), (pool.new, pool.new_at_s))
        )
        # If earlier jobs use more than all of the running nodes' time, the rest is taken from the empty nodes.
        empty_s = max(0.0, empty_s + min(0.0, there_s))
        return min(self._usable(work, name, window_s) * min(max(0.0, there_s), most_s) + empty_s, most_s)

    @staticmethod
    def _usable(work: JobWork, group: str, window_s: float) -> float:
        """Return the fraction of ``window_s`` that whole segments can fill on busy nodes.

        On average, half a segment's time passes until a busy node can start another segment.
        """
        longest_s = work.longest_s(group)
        if not work.waiting or longest_s <= 0 or window_s <= 0:
            return 1.0
        return max(0.0, (window_s - longest_s / 2) // longest_s) * longest_s / window_s

    def _fresh_s(self, work: JobWork, pool: NodePool, until_s: float) -> float:
        """Return how long a new node can work on whole segments before ``until_s``."""
        aim_s = self.now_s + (until_s - self.now_s) * AIM - pool.new_at_s
        return _whole(max(0.0, aim_s), work.longest_s(pool.group.name))

    def _late_s(self, work: JobWork, pools: Sequence[NodePool]) -> float:
        """Return when a late job should end: not before one of the nodes could have finished a segment."""
        may_serve = [pool for pool in pools if pool.there or pool.coming or self._room(pool)]
        soonest_s = min(pool.new_at_s + work.longest_s(pool.group.name) for pool in may_serve or pools)
        grace_s = CATCH_UP_S if work.is_promised else self.config.finish_within_s / 4
        return max(work.due_s, self.now_s + (soonest_s - self.now_s) / AIM + grace_s)

    def _room(self, pool: NodePool) -> int:
        return 0 if pool.group.name in self.too_costly else min(pool.room, self.budget.most(pool.group))

    def _offers(self, served: Served, pools: Sequence[NodePool]) -> list[_Offer]:
        offers = [each for pool in pools for each in (self._on_existing(served, pool), self._on_new(served, pool))]
        return [offer for offer in offers if offer is not None and offer.frames > LEAST_FRAMES]

    def _on_existing(self, served: Served, pool: NodePool) -> _Offer | None:
        name, fps = pool.group.name, served.work.fps[pool.group.name]
        window_s = served.until_s - self.now_s
        if served.work.waiting and window_s < served.work.longest_s(name):
            return None
        spare_s = self._spare_s(served.work, pool, served.until_s)
        frames = min(served.left_frames, (spare_s - served.shares[name].frames / fps) * fps)
        return _Offer(pool, frames, pool.group.price_per_s * frames / fps)

    def _on_new(self, served: Served, pool: NodePool) -> _Offer | None:
        name, fps = pool.group.name, served.work.fps[pool.group.name]
        aim_s = self._fresh_s(served.work, pool, served.until_s)
        most = min(self._room(pool), ceil(served.work.waiting / served.work.sessions[name]) - served.shares[name].new)
        if served.work.is_later:
            most = min(most, ceil(self.unplaced / served.work.sessions[name] - LEAST_FRAMES))
        if most <= 0 or aim_s <= 0:
            return None
        nodes = min(most, max(1, ceil(served.left_frames / (fps * aim_s) - LEAST_FRAMES)))
        frames = min(served.left_frames, nodes * fps * aim_s)
        paid_s = nodes * (pool.group.start_s + self.config.idle_s) + frames / fps
        return _Offer(pool, frames, pool.group.price_per_s * paid_s, nodes)

    def _take(self, served: Served, offer: _Offer) -> None:
        pool, name = offer.pool, offer.pool.group.name
        served.shares[name].frames += offer.frames
        served.shares[name].new += offer.new
        served.left_frames -= offer.frames
        served.cost += offer.cost
        pool.new += offer.new
        pool.room -= offer.new
        self.unplaced = max(0.0, self.unplaced - offer.new * served.work.sessions[name])
        self.budget.spend(pool.group, offer.new)
        pool.used_s += offer.frames / served.work.fps[name]
        window_s = served.until_s - self.now_s
        nodes = pool.there + pool.coming + pool.new
        pool.needed = max(pool.needed, min(nodes, ceil(pool.used_s / window_s - LEAST_FRAMES)), 1)
