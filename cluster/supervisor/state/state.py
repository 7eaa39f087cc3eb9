"""The supervisor's whole state, and simple queries of it."""

from dataclasses import dataclass, field

from ...placement.model.caps import KnownCaps
from ...placement.model.placement import Placement
from ...worker_names import station_of
from .clients import Clients
from .nodes import Nodes
from .plans import JobPlan, Plans
from .scaling import Scaling
from .settings import SupervisorSettings
from .stations import IN_USE, StationBook, StationState

ANSWERS_PER_EPOCH = 1_000_000
"""So that the numbers of a supervisor's grants are larger than any earlier one's."""


@dataclass(frozen=True, slots=True)
class Stranded:
    """A job that can get nothing."""

    since_s: float
    reason: str


@dataclass(slots=True)
class SupervisorState:
    """What is known, and what follows from it. Only ``Core.decide`` changes it."""

    settings: SupervisorSettings
    epoch: int  # the newest process has it; grows by one with each start
    recovering_until_s: float  # until then clients keep what they report to hold, and nothing else moves
    processor_seen_s: float  # when a node with a CPU was last alive
    ticked_s: float  # the last tick
    event: int = 0  # the number of the event that is being decided, or was last; from 1
    is_dirty: bool = False  # something has changed since everything was placed; a tick places it again
    placed_s: float | None = None  # when everything was last placed
    granted: int = 0  # the number of the newest grants
    nodes: Nodes = field(default_factory=Nodes)  # live nodes, and the quarantines of their devices
    stations: dict[str, StationBook] = field(default_factory=dict)  # by name: NODE/cpu#0
    clients: Clients = field(default_factory=Clients)  # what each wants, holds and was promised, and its open calls
    plans: Plans = field(default_factory=Plans)  # where jobs run, and why not elsewhere
    capacity_slots: int = 0  # the cores of open nodes: what one job could get if it were alone
    unservable: dict[str, str] = field(default_factory=dict)  # why a job could not be placed even alone, by its key
    stranded: dict[str, Stranded] = field(default_factory=dict)  # jobs that wait for GPUs that may never come, by key
    caps: KnownCaps = field(default_factory=KnownCaps)  # encoder sessions that refusals have taught
    scaling: Scaling = field(default_factory=Scaling)  # how many nodes there should be
    orphans_due_s: float | None = None  # then adopted workers drop the work of clients that have not reported by then
    end: str = ""  # why everything has ended; "" while it runs

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
        """Return where a job runs."""
        return self.plans.of(job)

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
