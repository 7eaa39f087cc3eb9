"""The supervisor's whole state, with simple queries."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from operator import attrgetter

from ...autoscale.speeds import Speeds
from ...autoscale.values import Decision
from ...logs.actions import LogAction
from ...placement.assign.assignment import place
from ...placement.assign.networks import place_networks
from ...placement.model.caps import KnownCaps
from ...placement.model.demand import Demand
from ...placement.model.inventory import Inventory
from ...placement.model.placement import Lane, Placement, Refusal
from ...placement.model.policy import Policy
from ...placement.rates import start_rates
from ...ray.keeper import Driving
from ...worker_names import NodeId, StationId, WorkerId
from .clients import Clients
from .events import Note, Resize
from .nodes import NodeBook, Nodes
from .settings import SupervisorSettings
from .stations import IN_USE, StationBook, StationState

ANSWERS_PER_EPOCH = 1_000_000
"""More grants than one supervisor sends, so that its successor's numbers are larger."""

Targets = Mapping[StationId, Mapping[str, int]]
"""Slots: {station: {job: slots}}."""


class Planner:
    """Places demands by rates that are documented at first, and then updated by measurements of workers."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.rates = start_rates()

    def place(self, demands: Sequence[Demand], inventory: Inventory, *, in_full: bool = True) -> Placement:
        """Return the placement of demands, with ``in_full`` as for ``assignment.place``.

        Networks use only DLAs, so they do not affect transcodes.
        """
        medias = [demand for demand in demands if demand.dlas is None]
        media = place(medias, inventory, self.rates, self.policy, in_full=in_full)
        networks = place_networks([each for each in demands if each.dlas is not None], inventory, self.policy)
        return Placement((*media.lanes, *networks.lanes), (*media.refusals, *networks.refusals))


@dataclass
class JobPlan:
    """Where one job runs."""

    lanes: list[Lane] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)  # why the job is not on any device, or not on some devices
    slots: dict[StationId, int] = field(default_factory=dict)  # the job's slots on each station

    @cached_property
    def lanes_at(self) -> dict[NodeId, list[Lane]]:
        """The job's lanes by node."""
        found: dict[NodeId, list[Lane]] = {}
        for lane in self.lanes:
            found.setdefault(lane.node, []).append(lane)
        return found


_NOTHING = JobPlan()


class Plans:
    """The last placement, by job."""

    def __init__(self, placement: Placement | None = None, targets: Targets | None = None) -> None:
        self.placement = placement or Placement((), ())
        self.targets = targets or {}
        self._jobs = defaultdict[str, JobPlan](JobPlan)
        for job, lanes in groupby(self.placement.lanes, key=attrgetter("job")):
            self._jobs[job].lanes += lanes
        for refusal in self.placement.refusals:
            self._jobs[refusal.job].refusals.append(refusal)
        for station, wanted in self.targets.items():
            for job, slots in wanted.items():
                self._jobs[job].slots[station] = slots

    def of(self, job: str) -> JobPlan:
        """Return where a job runs; an empty plan if it is not placed."""
        return self._jobs.get(job, _NOTHING)


@dataclass(slots=True)
class Scaling:
    """The last decision on the number of nodes, and the inputs for the next decision."""

    decision: Decision = field(default_factory=Decision)
    since_s: dict[str, float] = field(default_factory=dict)  # when each job was first reported, by the job's key
    idle_since_s: Mapping[str, float] = field(default_factory=dict)  # since when each node has had no lease
    able: frozenset[str] = frozenset()  # jobs that at least one group can run
    sent: Resize | None = None  # the last order
    sent_s: float = 0.0  # when the last order was given
    trouble: str = ""  # why Ray refuses orders; "" if it does not

    def may_serve(self, job: str) -> bool:
        """Return whether nodes that can run a job may join."""
        return not self.trouble and job in self.able

    def expected(self) -> str:
        """Return which nodes are pending; "" if no nodes are."""
        coming = [(size.wanted - size.there, size.group) for size in self.decision.sizes if size.wanted > size.there]
        return ", ".join(f"{count} of {group}" for count, group in coming)

    @property
    def holds_nodes(self) -> bool:
        """Whether nodes are requested or ending; the supervisor must then stay."""
        return bool(self.sent and (self.sent.ended or any(each.count for each in self.sent.wanted)))


@dataclass(frozen=True, slots=True)
class Stranded:
    """Why a job may never get the GPU that it needs, and since when."""

    since_s: float
    reason: str


@dataclass(slots=True)
class SupervisorState:
    """The supervisor's knowledge. Only ``Core.decide`` changes it."""

    settings: SupervisorSettings
    planner: Planner  # the policy, and rates updated by workers' measurements
    speeds: Speeds | None  # how fast the nodes of each group are; None if the cluster is not resized
    epoch: int  # the number of the newest process; each start adds one
    recovering_until_s: float  # until then clients keep the slots that they report, and no new slots are granted
    processor_seen_s: float  # when a node with a CPU was last alive
    ticked_s: float  # the last tick
    granted: int  # the number of the newest grants
    event: int = 0  # the number of the current or last event, counted from 1
    is_dirty: bool = False  # something has changed since the last placement, so a tick places all jobs again
    is_urgent: bool = False  # the change cannot wait, because a job came or a node left
    placed_s: float | None = None  # when all jobs were last placed
    early_s: float = 0.0  # how much earlier than scheduled the last placement ran, because it was urgent
    nodes: Nodes = field(default_factory=Nodes)  # live nodes, and the quarantines of their devices
    stations: dict[StationId, StationBook] = field(default_factory=dict)  # all stations by name, such as NODE/cpu#0
    clients: Clients = field(default_factory=Clients)  # all clients, with their jobs and open calls
    plans: Plans = field(default_factory=Plans)  # where jobs run, and why not elsewhere
    capacity_slots: int = 0  # the cores of open nodes: the most slots of one job on an otherwise idle cluster
    unservable: dict[str, str] = field(default_factory=dict)  # why even an idle cluster cannot run a job, by job
    stranded: dict[str, Stranded] = field(default_factory=dict)  # jobs that wait for GPUs that may never appear, by key
    caps: KnownCaps = field(default_factory=dict)  # caps on encoder sessions, learnt from refusals
    scaling: Scaling = field(default_factory=Scaling)  # how many nodes there should be
    orphans_due_s: float | None = None  # when adopted workers cancel the work of clients that have not reported
    end: str = ""  # why the supervisor has ended; "" while it runs

    @property
    def is_idle(self) -> bool:
        """Whether there is no client, no station in use, and no node requested or ending, and all drivers may claim."""
        holds_drivers = any(each.may_drive and each.driving is not Driving.CLAIMS for each in self.nodes)
        if len(self.clients) or self.scaling.holds_nodes or holds_drivers:
            return False
        return not any(book.state in IN_USE for book in self.stations.values())

    @property
    def may_grow(self) -> bool:
        """Whether nodes may join at the supervisor's request."""
        return self.speeds is not None and not self.scaling.trouble

    def is_recovering(self, now_s: float) -> bool:
        """Return whether clients still keep, after a restart, the slots that they report."""
        return now_s < self.recovering_until_s

    def station(self, worker: WorkerId, *states: StationState) -> StationBook | None:
        """Return the station whose current process has this name (with the epoch), if it is in one of ``states``."""
        book = self.stations.get(worker.station)
        return book if book is not None and book.worker == worker and book.state in states else None

    def is_live(self, worker: WorkerId) -> bool:
        """Return whether the worker with this name (with the epoch) is up."""
        return self.station(worker, StationState.READY) is not None

    def node_of(self, book: StationBook) -> NodeBook:
        """Return a station's node, which exists as long as the station."""
        return self.nodes[book.station.node]

    def note(self, action: LogAction, book: StationBook, what: str) -> Note:
        """Return a log entry about a station's process."""
        node, station = self.nodes.title(book.station.node), book.station.station
        return Note(action, f"worker {node}/{station.local} {what}", book.ids)
