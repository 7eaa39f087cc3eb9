"""The supervisor's whole state, and simple queries of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...placement.assign.standing import StandingPlacement
from ...placement.model.caps import KnownCaps
from ...placement.model.demand import Demand
from ...placement.model.inventory import Inventory, Node
from ...placement.model.placement import Placement
from ...worker_names import station_of
from .clients import Clients, JobBook
from .nodes import Nodes
from .plans import JobPlan, Plans
from .scaling import Scaling
from .settings import SupervisorSettings
from .stations import IN_USE, StationBook, StationState


@dataclass(frozen=True, slots=True)
class Stranded:
    """Since when a job can get nothing, and why."""

    since_s: float
    reason: str


Wanted = tuple[tuple[Demand, ...], Inventory]
"""What is placed, in round numbers, and on what."""


@dataclass(slots=True)
class Basis:
    """What the last full placement rests on, and what single nodes have become since.

    ``wanted`` is what it was made for, and ``standing`` what it can follow changes with, None where it cannot.
    ``nodes`` and ``stations`` are those that it knows now, by node; ``changed`` are the nodes that have changed since,
    and ``is_moved`` says that work moved for them. ``shared`` are nodes of which another lists a device too.
    ``has_transcoder`` is whether there was any worker that transcodes, or about to be.
    """

    wanted: Wanted
    standing: StandingPlacement | None
    nodes: dict[str, Node]
    shared: frozenset[str]
    stations: dict[str, list[StationBook]] = field(default_factory=dict)
    has_transcoder: bool = False
    changed: set[str] = field(default_factory=set)
    is_moved: bool = False

    def is_as_placed(self, wanted: Wanted) -> bool:
        """Return whether a full placement would give what there is."""
        if self.is_moved or self.wanted != wanted:
            return False
        return all(self.nodes[node.node] == node for node in wanted[1].nodes if node.node in self.changed)


@dataclass(slots=True)
class SupervisorState:
    """What is known, and the last conclusions.

    ``plans`` say where jobs run, and ``basis`` what that rests on. ``unservable`` says which jobs could not be placed
    even alone, and why; ``stranded`` which can get nothing, and since when. ``is_settled``: nothing has changed that
    requires a look at everything; ``touched`` are nodes that have changed, they or a station of theirs, and are looked
    at alone; at ``settle_at_s`` a look at everything follows. ``is_due``: unused workers may have to go.
    ``has_other_holdings``: jobs report to use other slots than before. ``has_settled`` and ``has_news``: the last
    conclusions looked at everything, and may give clients other slots. ``turn`` grows
    with whatever may change the grants of any job. ``processor_seen_s`` is when a node with a CPU was last alive,
    ``ticked_s`` the last tick. Until ``recovering_until_s`` clients keep what they report to hold, and nothing else
    moves. At ``orphans_due_s`` adopted workers drop the work of clients that have not reported by then.
    """

    settings: SupervisorSettings
    epoch: int
    recovering_until_s: float
    processor_seen_s: float
    ticked_s: float
    nodes: Nodes = field(default_factory=Nodes)
    stations: dict[str, StationBook] = field(default_factory=dict)
    clients: Clients = field(default_factory=Clients)
    plans: Plans = field(default_factory=Plans)
    unservable: dict[str, str] = field(default_factory=dict)
    stranded: dict[str, Stranded] = field(default_factory=dict)
    basis: Basis | None = None
    caps: KnownCaps = field(default_factory=KnownCaps)
    scaling: Scaling = field(default_factory=Scaling)
    capacity_slots: int = 0
    orphans_due_s: float | None = None
    is_settled: bool = False
    touched: set[str] = field(default_factory=set)
    settle_at_s: float | None = None
    is_due: bool = True
    has_other_holdings: bool = False
    has_settled: bool = False
    has_news: bool = False
    turn: int = 0
    end: str = ""

    @property
    def is_idle(self) -> bool:
        """Whether there is no client, no reservation, and no node that it asked for."""
        if len(self.clients) or self.scaling.holds_nodes:
            return False
        return not any(book.state in IN_USE for book in self.stations.values())

    @property
    def may_grow(self) -> bool:
        """Whether nodes may come because the supervisor asks for them."""
        return self.settings.autoscale is not None and not self.scaling.trouble

    @property
    def targets(self) -> dict[str, dict[str, int]]:
        """The slots of jobs, by station and job."""
        return self.plans.targets

    @property
    def placement(self) -> Placement:
        """Where every job runs, and why not elsewhere."""
        return self.plans.placement

    def plan_of(self, job: str) -> JobPlan:
        """Return what was concluded for a job."""
        return self.plans.of(job)

    def touch(self, node: str) -> None:
        """Note that a node, or a station of it, is not any more what the last conclusions took it for."""
        self.touched.add(node)

    def must_settle(self, now_s: float) -> bool:
        """Return whether everything has to be looked at, not only the nodes that were touched."""
        return not self.is_settled or (self.settle_at_s is not None and now_s >= self.settle_at_s)

    def stations_at(self, nodes: Iterable[str]) -> list[StationBook]:
        """Return the stations of nodes that were there at the last conclusions."""
        return [] if self.basis is None else [book for node in nodes for book in self.basis.stations.get(node, ())]

    def jobs_at(self, nodes: Iterable[str]) -> list[JobBook]:
        """Return the jobs that are placed on nodes."""
        return [job for key in self.plans.at(nodes) if (job := self.clients.job(key)) is not None]

    def is_recovering(self, now_s: float) -> bool:
        """Return whether clients still keep what they report to hold, after a restart."""
        return now_s < self.recovering_until_s

    def is_live(self, worker: str) -> bool:
        """Return whether a worker of this name, epoch included, is up."""
        book = self.stations.get(station_of(worker))
        return book is not None and book.state is StationState.READY and book.worker == worker

    def named(self, book: StationBook) -> str:
        """Return a station's display name."""
        return f"worker {self.nodes.title(book.station.node)}/{book.station.station.rpartition('/')[2]}"
