"""What the autoscaler is told, and what it answers: frozen values. All times are seconds on the supervisor's clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil


@dataclass(frozen=True, slots=True, kw_only=True)
class JobWork:
    """What one job has left to do: ``frames`` in segments, of which ``at_once`` may run at a time.

    ``waiting`` of these run nowhere yet: only for them more nodes may be of use. A segment that runs is half done.
    ``fps`` are source frames a second that one node of each group gives it when the node has nothing else to do; a
    group that cannot do it is not among them, and ``refusals`` say why. ``sessions`` are the segments that such a node
    runs at a time. ``due_s`` is when it should be done; ``is_promised`` says that its user asked for that, not the
    configuration. ``is_behind``: it is not asked for yet, but waits behind what is.
    """

    job: str
    frames: int
    at_once: int
    waiting: int
    longest_frames: int
    due_s: float
    fps: Mapping[str, float]
    sessions: Mapping[str, int]
    is_promised: bool = False
    is_behind: bool = False
    refusals: Mapping[str, str] = field(default_factory=dict)

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
    """A node of a group that is up.

    ``leases`` are the segments that run or may run on it. ``idle_since_s`` is since when it has had none, None where it
    has. ``is_leaving``: it takes no more work, because it ends.
    """

    node: str
    group: str
    leases: int = 0
    idle_since_s: float | None = None
    is_leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSize:
    """How many nodes of a group there should be, and why.

    ``there`` are up and stay, ``wanted`` includes those that are still to come. ``raised_s`` and ``lowered_s`` are when
    more and fewer were last wanted. ``missing_s`` is since when no node has come of those that are wanted;
    ``missing_least`` how many were missing at the fewest since then. ``closed_until_s``: nodes that were wanted did not
    come, so no more than there are count until then. ``surplus_since_s`` is since when it has had more than work could
    use.
    """

    group: str
    wanted: int = 0
    there: int = 0
    reason: str = ""
    raised_s: float | None = None
    lowered_s: float | None = None
    missing_s: float | None = None
    missing_least: int = 0
    closed_until_s: float | None = None
    surplus_since_s: float | None = None


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """A node that is to have no new work, or is to end, and why."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """Whether a job should be done in time with the nodes that are wanted; ``late_s`` is by how much it is too late.

    ``late_s`` is infinite, and ``reason`` says why, where no group can do it. ``cost`` is that of its part of the
    nodes, with the start of new ones and the time for which they are idle at their end.
    """

    job: str
    late_s: float
    reason: str
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How many nodes of each group should be there, in the configuration's order.

    ``rest`` are nodes that get no new work, because there are too many; what runs there may finish. ``drain`` are
    nodes that have nothing to do, and are to end.
    """

    sizes: tuple[GroupSize, ...] = ()
    rest: tuple[NodeOrder, ...] = ()
    drain: tuple[NodeOrder, ...] = ()
    forecasts: tuple[Forecast, ...] = ()

    def size(self, group: str) -> GroupSize:
        """Return what was decided for a group; nothing was for one that is new."""
        return next((size for size in self.sizes if size.group == group), GroupSize(group=group))


@dataclass(frozen=True, slots=True)
class WantedNodes:
    """How many nodes of a group Ray's autoscaler should keep.

    ``labels`` select them, ``resources`` are all that one offers to Ray: a bundle of them fills a node.
    """

    group: str
    labels: Mapping[str, str]
    resources: Mapping[str, float]
    count: int
