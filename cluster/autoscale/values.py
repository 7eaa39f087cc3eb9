"""What the autoscaler is given, and what it answers: frozen values. All times are seconds on the supervisor's clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from ..worker_names import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWork:
    """What one job has left to do. Groups that cannot do it are not in ``fps`` and ``sessions``."""

    job: str
    frames: int  # a segment that runs is half done
    at_once: int  # segments that may run at a time
    waiting: int  # of these run nowhere yet: only for them more nodes may be of use
    longest_frames: int  # of a segment
    due_s: float
    fps: Mapping[str, float]  # source frames a second that an otherwise idle node of each group gives it
    sessions: Mapping[str, int]  # segments that such a node runs at a time
    is_promised: bool = False  # its user asked for ``due_s``, not the configuration
    is_later: bool = False  # it is not asked for yet: a batch will ask when some of its jobs are done
    refusals: Mapping[str, str] = field(default_factory=dict)  # why other groups cannot do it

    def nodes_most(self, group: str) -> int:
        """Return how many nodes of a group its segments can fill at a time."""
        return ceil(self.at_once / self.sessions[group])

    def new_most(self, group: str) -> int:
        """Return how many more nodes of a group its waiting segments can fill."""
        return ceil(self.waiting / self.sessions[group])

    def longest_s(self, group: str) -> float:
        """Return how long its longest segment takes beside others on a node of a group that can do it."""
        return self.longest_frames * self.sessions[group] / self.fps[group]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """A node of a group that is up."""

    node: NodeId
    group: str
    leases: int = 0  # segments that run or may run on it
    idle_since_s: float | None = None  # None where it has leases
    is_leaving: bool = False  # it takes no more work, because it ends


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSize:
    """How many nodes of a group there should be, and why."""

    group: str
    wanted: int = 0  # includes those that are still to come
    there: int = 0  # up, and stay
    reason: str = ""
    raised_s: float | None = None  # when more were last wanted
    lowered_s: float | None = None  # when fewer were last wanted
    missing_s: float | None = None  # since when no node has come of those that are wanted
    missing_least: int = 0  # how many were missing at the fewest since then
    closed_until_s: float | None = None  # no more are asked for until then: those that were wanted did not come
    surplus_since_s: float | None = None  # since when it has had more than work could use


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """A node that is to have no new work, or is to end, and why."""

    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """Whether a job should be done in time with the nodes that are wanted."""

    job: str
    late_s: float  # infinite where no group can do it
    reason: str  # why it is late
    cost: float  # of its part of the nodes, with the start of new ones and their idle time at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How many nodes of each group should be there."""

    sizes: tuple[GroupSize, ...] = ()  # in the configuration's order
    rest: tuple[NodeOrder, ...] = ()  # too many: they get no new work, what runs there may finish
    drain: tuple[NodeOrder, ...] = ()  # idle, and to end
    forecasts: tuple[Forecast, ...] = ()

    def size(self, group: str) -> GroupSize:
        """Return what was decided for a group; nothing was for one that is new."""
        return next((size for size in self.sizes if size.group == group), GroupSize(group=group))


@dataclass(frozen=True, slots=True)
class WantedNodes:
    """How many nodes of a group Ray's autoscaler should keep."""

    group: str
    labels: Mapping[str, str]  # select them
    resources: Mapping[str, float]  # all that one offers to Ray: a bundle of them fills a node
    count: int
