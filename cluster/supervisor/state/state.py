"""The supervisor's whole state, and simple queries of it."""

from dataclasses import dataclass, field

from ...placement.model.caps import KnownCaps
from ...placement.model.demand import Demand
from ...placement.model.inventory import Inventory
from ...placement.model.placement import Lane, Placement, Refusal
from ...worker_names import station_of
from .clients import Clients
from .nodes import Nodes
from .settings import SupervisorSettings
from .stations import IN_USE, StationBook, StationState


@dataclass(frozen=True, slots=True)
class Stranded:
    """Since when a job can get nothing, and why."""

    since_s: float
    reason: str


@dataclass(slots=True)
class JobPlan:
    """What the last conclusions say of one job: where it runs, why not elsewhere, and its slots by station."""

    lanes: list[Lane] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    slots: dict[str, int] = field(default_factory=dict)


_NOTHING = JobPlan()


@dataclass(slots=True)
class SupervisorState:
    """What is known, and the last conclusions.

    ``targets`` are {station: {job: slots}}; ``placed_for`` is the input of ``placement``, which is repeated only when
    that changes. ``unservable`` says which jobs could not be placed even alone, and why; ``stranded`` which can get
    nothing, and since when. ``is_settled``: nothing has changed that requires another reconcile; ``is_due``: there was
    more since the last one than repeated reports. ``processor_seen_s`` is when a node with a CPU was last alive,
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
    targets: dict[str, dict[str, int]] = field(default_factory=dict)
    unservable: dict[str, str] = field(default_factory=dict)
    stranded: dict[str, Stranded] = field(default_factory=dict)
    placement: Placement = field(default_factory=lambda: Placement((), ()))
    placed_for: tuple[tuple[Demand, ...], Inventory] | None = None
    caps: KnownCaps = field(default_factory=KnownCaps)
    capacity_slots: int = 0
    orphans_due_s: float | None = None
    is_settled: bool = False
    is_due: bool = True
    end: str = ""
    _plans: dict[str, JobPlan] = field(default_factory=dict)
    _plans_of: tuple[object, object] = (None, None)

    @property
    def is_idle(self) -> bool:
        """Whether there is no client and no reservation."""
        return not len(self.clients) and not any(book.state in IN_USE for book in self.stations.values())

    def plan_of(self, job: str) -> JobPlan:
        """Return what was concluded for a job."""
        if self._plans_of[0] is not self.placement or self._plans_of[1] is not self.targets:
            plans: dict[str, JobPlan] = {}
            for lane in self.placement.lanes:
                plans.setdefault(lane.job, JobPlan()).lanes.append(lane)
            for refusal in self.placement.refusals:
                plans.setdefault(refusal.job, JobPlan()).refusals.append(refusal)
            for station, wanted in self.targets.items():
                for key, slots in wanted.items():
                    plans.setdefault(key, JobPlan()).slots[station] = slots
            self._plans, self._plans_of = plans, (self.placement, self.targets)
        return self._plans.get(job, _NOTHING)

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
