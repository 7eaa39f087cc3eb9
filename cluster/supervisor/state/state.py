"""The supervisor's whole state, and simple queries of it."""

from dataclasses import dataclass, field

from ...placement.model.caps import KnownCaps
from ...placement.model.demand import Demand
from ...placement.model.inventory import Inventory
from ...placement.model.placement import Placement
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
class SupervisorState:
    """What is known, and the last conclusions.

    ``targets`` are {station: {job: slots}}; ``placed_for`` is the input of ``placement``, which is repeated only when
    that changes. ``unservable`` says which jobs could not be placed even alone, and why; ``stranded`` which can get
    nothing, and since when. ``is_settled``: nothing has changed that requires another reconcile. ``processor_seen_s``
    is when a node with a CPU was last alive, ``ticked_s`` the last tick. Until ``recovering_until_s`` clients keep what
    they report to hold, and nothing else moves. At ``orphans_due_s`` adopted workers drop the work of clients that have
    not reported by then.
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
    end: str = ""

    @property
    def is_idle(self) -> bool:
        """Whether there is no client and no reservation."""
        return not len(self.clients) and not any(book.state in IN_USE for book in self.stations.values())

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
