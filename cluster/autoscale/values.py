"""The autoscaler's input and output: frozen values. All times are seconds on the supervisor's clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from ..worker_names import NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWork:
    """A job's remaining work. ``fps`` and ``sessions`` contain only groups that can run the job."""

    job: str
    frames: int  # frames left; a running segment counts half
    at_once: int  # segments that may run at the same time
    waiting: int  # segments that wait; only these can run on additional nodes
    longest_frames: int  # the frames of the longest segment
    due_s: float
    fps: Mapping[str, float]  # source frames a second on an idle node of each group
    sessions: Mapping[str, int]  # how many segments an idle node of each group can run at the same time
    is_promised: bool = False  # whether ``due_s`` comes from the user rather than the configuration
    is_later: bool = False  # whether this is the work of a batch's waiting jobs
    refusals: Mapping[str, str] = field(default_factory=dict)  # why other groups cannot run the job

    def nodes_most(self, group: str) -> int:
        """Return how many nodes of a group the job's segments can fill."""
        return ceil(self.at_once / self.sessions[group])

    def longest_s(self, group: str) -> float:
        """Return how long the job's longest segment takes on a full node of a group that can run the job."""
        return self.longest_frames * self.sessions[group] / self.fps[group]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
    """A running node of a group."""

    node: NodeId
    group: str
    leases: int = 0  # slots in use or planned; at least 1 while anything else keeps the node from being idle
    idle_since_s: float | None = None  # since when the node has had no leases; None if it has leases
    is_leaving: bool = False  # the node is ending and takes no more work


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSize:
    """The wanted size of a group, with the reason."""

    group: str
    wanted: int = 0  # how many nodes the group should have, including pending nodes
    there: int = 0  # running nodes that stay
    reason: str = ""
    raised_s: float | None = None  # when ``wanted`` last grew
    lowered_s: float | None = None  # when ``wanted`` last shrank
    missing_s: float | None = None  # since when requested nodes are missing, counted from the last arrival
    missing: int = 0  # how many requested nodes are missing
    # the time until which no nodes are requested, because requested nodes did not arrive
    closed_until_s: float | None = None
    surplus_since_s: float | None = None  # since when the group has had more nodes than the work can use


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """A node that should get no new work, or should end, and the reason."""

    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """A job's expected delay and cost with the wanted nodes."""

    job: str
    late_s: float  # the delay; infinite if no group can run the job
    reason: str  # why the job is late; "" if it is not
    cost: float  # the cost of the job's share of the nodes, including start and idle time of new nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The wanted sizes of all groups, and the orders for single nodes."""

    sizes: tuple[GroupSize, ...] = ()  # all groups, in the order of the configuration
    surplus: tuple[NodeOrder, ...] = ()  # nodes that finish their work and get no new work
    drain: tuple[NodeOrder, ...] = ()  # idle nodes that are to be ended
    forecasts: tuple[Forecast, ...] = ()

    def size(self, group: str) -> GroupSize:
        """Return the decided size of a group; for a new group, an empty size."""
        return next((size for size in self.sizes if size.group == group), GroupSize(group=group))


@dataclass(frozen=True, slots=True)
class WantedNodes:
    """How many nodes of a group Ray's autoscaler should provide."""

    group: str
    labels: Mapping[str, str]  # the labels of the group's nodes
    resources: Mapping[str, float]  # the resources of one node, so that one bundle fills a node
    count: int
