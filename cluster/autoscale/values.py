"""The autoscaler's input and output: frozen values. All times are seconds on the supervisor's clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from ..worker_names import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWork:
    """A job's remaining work. ``fps`` and ``sessions`` have only the groups that can do it."""

    job: str
    frames: int  # a running segment counts half
    at_once: int  # segments that may run at a time
    waiting: int  # waiting segments: only they can use more nodes
    longest_frames: int  # of a segment
    due_s: float
    fps: Mapping[str, float]  # source frames a second on an idle node of each group
    sessions: Mapping[str, int]  # segments that such a node runs at a time
    is_promised: bool = False  # whether ``due_s`` is the user's, not the configuration's
    is_later: bool = False  # whether it is the work of a batch's waiting jobs
    refusals: Mapping[str, str] = field(default_factory=dict)  # why other groups cannot do it

    def nodes_most(self, group: str) -> int:
        """Return how many nodes of a group its segments can fill."""
        return ceil(self.at_once / self.sessions[group])

    def longest_s(self, group: str) -> float:
        """Return how long its longest segment takes on a full node of a group that can do it."""
        return self.longest_frames * self.sessions[group] / self.fps[group]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """A running node of a group."""

    node: NodeId
    group: str
    leases: int = 0  # segments that run or may run on it
    idle_since_s: float | None = None  # None while it has leases
    is_leaving: bool = False  # the node is ending, and takes no more work


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSize:
    """The wanted size of a group, and its reason."""

    group: str
    wanted: int = 0  # includes pending nodes
    there: int = 0  # running nodes that stay
    reason: str = ""
    raised_s: float | None = None  # when ``wanted`` last grew
    lowered_s: float | None = None  # when ``wanted`` last shrank
    missing_s: float | None = None  # when requested nodes began to be missing; reset when one arrives
    missing_least: int = 0  # the fewest missing since then
    closed_until_s: float | None = None  # end of the pause in requests after nodes did not arrive
    surplus_since_s: float | None = None  # when it began to have more nodes than the work can use


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """A node that gets no new work or ends, and why."""

    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """A job's expected delay and cost with the wanted nodes."""

    job: str
    late_s: float  # infinite if no group can do it
    reason: str  # why it is late
    cost: float  # the cost of its share of the nodes, including new nodes' start and idle time


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The wanted sizes of all groups."""

    sizes: tuple[GroupSize, ...] = ()  # in the configuration's order
    surplus: tuple[NodeOrder, ...] = ()  # nodes that finish their work and get no more
    drain: tuple[NodeOrder, ...] = ()  # idle nodes, which end
    forecasts: tuple[Forecast, ...] = ()

    def size(self, group: str) -> GroupSize:
        """Return the decision for a group; an empty one for a new group."""
        return next((size for size in self.sizes if size.group == group), GroupSize(group=group))


@dataclass(frozen=True, slots=True)
class WantedNodes:
    """How many nodes of a group Ray's autoscaler should keep."""

    group: str
    labels: Mapping[str, str]  # select its nodes
    resources: Mapping[str, float]  # resources of a node: a bundle of them fills it
    count: int
