"""Which nodes give work the capacity that it needs in time, at the least cost: arithmetic over frames and node-seconds.

Work is served in the order in which it is due, later work last. What it needs is taken where a frame costs least: from
nodes that are there, as far as earlier work leaves them time; or from new ones, whose start and idle time at the end
are paid for too. A job never gets more nodes than its segments can fill.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final

from .config import AutoscaleConfig, Group
from .values import JobWork

AIM: Final = 0.9
"""New nodes are counted so that work takes this part of the time it has; those that are there may take all of it. So a
job that falls behind a little wants no other nodes."""
CATCH_UP_S: Final = 60.0
"""Work that cannot be done in time is to be done so long after its first new node could have done a segment."""
DEAR: Final = 2.0
"""For work that promises no time no nodes come with which it would cost more than this many times the least."""
LEAST_FRAMES: Final = 1e-6


@dataclass(slots=True, kw_only=True)
class NodePool:
    """The nodes of a group while capacity is planned."""

    group: Group
    there: int  # take work now
    coming: int  # take work from ``coming_at_s`` on
    coming_at_s: float
    new_at_s: float
    room: int  # how many more may be asked for
    is_closed: bool = False  # none may, because those that were asked for did not come
    new: int = 0  # asked for by this plan, take work from ``new_at_s`` on
    used_s: float = 0.0  # node-seconds that earlier work takes
    needed: int = 0  # nodes that would do for it
    filled: float = 0.0  # of those that come, how many will be full of earlier work's waiting segments


@dataclass(slots=True)
class Share:
    """What one job takes of a group: frames, and the new nodes that they need."""

    frames: float = 0.0
    new: int = 0


@dataclass(slots=True)
class Served:
    """What one job gets."""

    work: JobWork
    until_s: float  # later than it is due where it is late
    left_frames: float = 0.0  # find no capacity until then
    shares: defaultdict[str, Share] = field(default_factory=lambda: defaultdict(Share))  # by group
    cost: float = 0.0

    def late_s(self, now_s: float) -> float:
        """Return by how much it is late; infinite where nothing can do it."""
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
    new: int = 0  # nodes that would have to come for it


@dataclass(slots=True)
class Purse:
    """What may still be asked for, of all groups together."""

    nodes: int
    price_per_hour: float

    def most(self, group: Group) -> int:
        """Return how many nodes of a group it buys."""
        price = float(group.price_per_hour)
        return max(0, self.nodes if price <= 0 else int(min(self.nodes, self.price_per_hour / price + LEAST_FRAMES)))

    def spend(self, group: Group, nodes: int) -> None:
        """Take nodes of a group out of it."""
        self.nodes -= nodes
        self.price_per_hour -= nodes * float(group.price_per_hour)


def plan_capacity(
    config: AutoscaleConfig, work: Sequence[JobWork], pools: Sequence[NodePool], purse: Purse, now_s: float
) -> list[Served]:
    """Return what each job gets, in the order in which they are served; ``pools`` and ``purse`` then hold the sums."""
    planner = _Planner(config, pools, purse, now_s, _never(config))
    order = sorted(work, key=lambda each: (each.is_later, each.due_s, each.job))
    return [planner.serve(each) for each in order if each.frames > 0]


def _whole(time_s: float, segment_s: float) -> float:
    """Return the part of a time that whole segments fill on a node that begins empty."""
    return time_s // segment_s * segment_s if segment_s > 0 else time_s


def _never(config: AutoscaleConfig) -> frozenset[str]:
    """Return the groups that can have no node, even with all others at their ``nodes_min``."""
    most_per_hour = inf if config.price_per_hour_max is None else float(config.price_per_hour_max)
    purse = Purse(config.nodes_max, most_per_hour)
    for group in config.groups:
        purse.spend(group, group.nodes_min)
    return frozenset(
        group.name for group in config.groups if not group.nodes_min and not (group.nodes_max and purse.most(group))
    )


@dataclass(slots=True)
class _Planner:
    config: AutoscaleConfig
    pools: Sequence[NodePool]
    purse: Purse
    now_s: float
    never: frozenset[str]
    """Groups that can have no node."""
    dear: frozenset[str] = frozenset()
    """Groups that get no new nodes for the job that is served."""
    unplaced: float = 0.0
    """Its waiting segments that no node was asked for yet, in this plan or before; later work asks for no more."""

    def serve(self, work: JobWork) -> Served:
        """Give a job what it needs to be done in time; where that cannot be had, what it needs soon after."""
        pools = [pool for pool in self.pools if work.fps.get(pool.group.name, 0.0) > 0]
        self.dear = self._dear(work, pools)
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
        """Fill nodes that come with a job's waiting segments; return how many are left."""
        left = float(work.waiting)
        for pool in pools:
            sessions = work.sessions[pool.group.name]
            nodes = min(pool.coming - pool.filled, left / sessions)
            pool.filled += nodes
            left -= nodes * sessions
        return left

    def _dear(self, work: JobWork, pools: Sequence[NodePool]) -> frozenset[str]:
        """Return the groups that cost too much to have new nodes for a job that promises no time.

        The least is that of the groups that may have nodes at all, and whose nodes come when they are asked for.
        """
        cost = {pool.group.name: self._cost_alone(work, pool.group) for pool in pools}
        able = (pool.group.name for pool in pools if not pool.is_closed and pool.group.name not in self.never)
        least = min((cost[name] for name in able), default=inf)
        return frozenset() if work.is_promised else frozenset(name for name in cost if cost[name] > DEAR * least)

    def _cost_alone(self, work: JobWork, group: Group) -> float:
        """Return what a job costs with a group's nodes for itself, in the time that jobs have."""
        work_s = work.frames / work.fps[group.name]
        nodes = ceil(work_s / (AIM * self.config.finish_within_s))
        return group.price_per_s * (work_s + nodes * (group.start_s + self.config.idle_s))

    def _most_s(self, work: JobWork, pool: NodePool) -> float:
        """Return for how long a group's nodes could work for a job until it is due, at most."""
        window_s = max(0.0, work.due_s - self.now_s)
        if work.waiting and window_s < work.longest_s(pool.group.name):
            return 0.0
        fresh_s = self._room(pool) * self._fresh_s(work, pool, work.due_s)
        return min(work.nodes_most(pool.group.name) * window_s, self._spare_s(work, pool, work.due_s) + fresh_s)

    def _spare_s(self, work: JobWork, pool: NodePool, until_s: float) -> float:
        """Return the node-seconds until then that earlier work leaves for whole segments of a job."""
        name, window_s = pool.group.name, until_s - self.now_s
        there_s = pool.there * window_s - pool.used_s
        most_s = work.nodes_most(name) * window_s
        empty_s = sum(
            nodes * _whole(max(0.0, until_s - at_s), work.longest_s(name) if work.waiting else 0.0)
            for nodes, at_s in ((pool.coming, pool.coming_at_s), (pool.new, pool.new_at_s))
        )
        # Earlier work takes the nodes that are there first.
        empty_s = max(0.0, empty_s + min(0.0, there_s))
        return min(self._usable(work, name, window_s) * min(max(0.0, there_s), most_s) + empty_s, most_s)

    @staticmethod
    def _usable(work: JobWork, group: str, window_s: float) -> float:
        """Return the part of a time that whole segments fill on nodes that run something: half a segment is lost."""
        longest_s = work.longest_s(group)
        if not work.waiting or longest_s <= 0 or window_s <= 0:
            return 1.0
        return max(0.0, (window_s - longest_s / 2) // longest_s) * longest_s / window_s

    def _fresh_s(self, work: JobWork, pool: NodePool, until_s: float) -> float:
        """Return the time of the whole segments of a job that a new node can do until then."""
        aim_s = self.now_s + (until_s - self.now_s) * AIM - pool.new_at_s
        return _whole(max(0.0, aim_s), work.longest_s(pool.group.name))

    def _late_s(self, work: JobWork, pools: Sequence[NodePool]) -> float:
        """Return until when a late job is to be done: a node that it has or may get can do a segment by then."""
        may_serve = [pool for pool in pools if pool.there or pool.coming or self._room(pool)]
        soonest_s = min(pool.new_at_s + work.longest_s(pool.group.name) for pool in may_serve or pools)
        grace_s = CATCH_UP_S if work.is_promised else self.config.finish_within_s / 4
        return max(work.due_s, self.now_s + (soonest_s - self.now_s) / AIM + grace_s)

    def _room(self, pool: NodePool) -> int:
        return 0 if pool.group.name in self.dear else min(pool.room, self.purse.most(pool.group))

    def _offers(self, served: Served, pools: Sequence[NodePool]) -> list[_Offer]:
        """Return what each group's nodes can do of a job, and new ones, which cost their start and idle time too."""
        offers = [each for pool in pools for each in (self._there(served, pool), self._fresh(served, pool))]
        return [offer for offer in offers if offer is not None and offer.frames > LEAST_FRAMES]

    def _there(self, served: Served, pool: NodePool) -> _Offer | None:
        name, fps = pool.group.name, served.work.fps[pool.group.name]
        window_s = served.until_s - self.now_s
        if served.work.waiting and window_s < served.work.longest_s(name):
            return None
        spare_s = self._spare_s(served.work, pool, served.until_s)
        frames = min(served.left_frames, (spare_s - served.shares[name].frames / fps) * fps)
        return _Offer(pool, frames, pool.group.price_per_s * frames / fps)

    def _fresh(self, served: Served, pool: NodePool) -> _Offer | None:
        name, fps = pool.group.name, served.work.fps[pool.group.name]
        aim_s = self._fresh_s(served.work, pool, served.until_s)
        most = min(self._room(pool), served.work.new_most(name) - served.shares[name].new)
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
        self.purse.spend(pool.group, offer.new)
        pool.used_s += offer.frames / served.work.fps[name]
        window_s = served.until_s - self.now_s
        nodes = pool.there + pool.coming + pool.new
        pool.needed = max(pool.needed, min(nodes, ceil(pool.used_s / window_s - LEAST_FRAMES)), 1)
