"""The input and output of ``core.Core``: events, and the resulting effects.

``worker`` names a station and the epoch of its process (``StationBook.worker``).
"""

from dataclasses import dataclass, field
from enum import Enum

from ....actors.worker.heartbeat import WorkerFacts
from ....actors.worker.orders import GoneClients
from ...autoscale.values import WantedNodes
from ...logs.actions import LogAction
from ...logs.entry import NO_IDS, LogIds
from ...placement.model.inventory import Node
from ...probes.gpus.live_health import DeviceHealth
from ...ray.keeper import Driving
from ...worker_names import NodeId, WorkerId
from .messages import ClientReport, FoundWorker, Grants, RayNode
from .quarantine import DeviceRecord
from .stations import Station


class Order(Enum):
    """A user's order for a node."""

    CORDON = "cordon"  #: the node gets no new work
    DRAIN = "drain"  #: the node gets no new work, and its workers are released when idle
    UNCORDON = "uncordon"  #: the node gets new work again


class SupervisorEvent:
    """A fact that the core learns from the runner."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """An action that the runner carries out for the core."""

    event: int = field(default=0, compare=False)  # the number of the event that caused the action


@dataclass(frozen=True, slots=True)
class _WorkerEvent(SupervisorEvent):
    worker: WorkerId


@dataclass(frozen=True, slots=True)
class _WorkerEffect(Effect):
    worker: WorkerId


@dataclass(frozen=True, slots=True)
class NodesSeen(SupervisorEvent):
    """All live nodes at the time ``utc_s`` of the supervisor's clock."""

    nodes: tuple[RayNode, ...]
    utc_s: float = 0.0
    # How many seconds each node's clock is behind the supervisor's clock; nodes without workers are left out.
    skews_s: dict[NodeId, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Probed(SupervisorEvent):
    """A node's probes reported."""

    node: Node


@dataclass(frozen=True, slots=True)
class ProbeFailed(SupervisorEvent):
    """A node's probes did not report."""

    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Untold(SupervisorEvent):
    """A ``TellNode`` may not have reached the node's program."""

    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Reserved(_WorkerEvent):
    """Ray reserved the station's bundle."""

    cores: int  # how many CPUs the bundle has


@dataclass(frozen=True, slots=True)
class NotReserved(_WorkerEvent):
    """Ray did not reserve the station's bundle in time, or never can."""

    reason: str


@dataclass(frozen=True, slots=True)
class Started(_WorkerEvent):
    """The station's process answered."""

    facts: WorkerFacts


@dataclass(frozen=True, slots=True)
class Died(_WorkerEvent):
    """The station's process ended, did not start, or stopped answering."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stopped(_WorkerEvent):
    """The station's process and reservation are gone, as ``Stop`` ordered."""


@dataclass(frozen=True, slots=True)
class Found(SupervisorEvent):
    """An earlier supervisor's live workers; sent once, at the start."""

    workers: tuple[FoundWorker, ...]


@dataclass(frozen=True, slots=True)
class Renewed(SupervisorEvent):
    """A client sent a report; ``AnswerReport`` follows."""

    report: ClientReport
    wait_s: float = 0.0  # how long the answer may wait for a change


@dataclass(frozen=True, slots=True)
class Departed(SupervisorEvent):
    """A client left."""

    client: str


@dataclass(frozen=True, slots=True)
class Asked(SupervisorEvent):
    """A user gave an order for a node."""

    order: Order
    node: NodeId
    is_recalled: bool = False  # whether the order was given to an earlier supervisor


@dataclass(frozen=True, slots=True)
class QuarantinesRecalled(SupervisorEvent):
    """An earlier supervisor's records of quarantined devices, with times on this supervisor's clock."""

    records: dict[str, DeviceRecord]


@dataclass(frozen=True, slots=True)
class Ticked(SupervisorEvent):
    """Time has passed: handle due tasks, and place all jobs again if something has changed."""

    pass_s: float = 0.0  # how long a placement takes, which decides when the next one may run (``next_pass_s``)


@dataclass(frozen=True, slots=True)
class Measured(_WorkerEvent):
    """A worker's sessions, all for one job, ran at ``fps`` together."""

    job: str  # the client's own name for the job
    sessions: int
    fps: float
    on_device: bool = False  # whether the worker's device decoded


@dataclass(frozen=True, slots=True)
class RecycleDue(_WorkerEvent):
    """The station's process should be replaced when it is idle."""

    reason: str


@dataclass(frozen=True, slots=True)
class Encoding(_WorkerEvent):
    """A worker's open encoder sessions and, after a refusal, the number that was open at the refusal."""

    sessions: int
    refused_at: int | None = None


@dataclass(frozen=True, slots=True)
class HealthSeen(SupervisorEvent):
    """A node's GPUs were polled."""

    node: NodeId
    devices: tuple[DeviceHealth, ...]
    # each worker's highest speed in source frames a second since the last poll, while its device decoded
    fps: dict[WorkerId, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HealthUnseen(SupervisorEvent):
    """A node's GPUs could not be polled."""

    node: NodeId
    reason: str


@dataclass(frozen=True, slots=True)
class Ended(SupervisorEvent):
    """The supervisor must end: Ray is gone, the pool was closed, or a task of the supervisor failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resized(SupervisorEvent):
    """The result of a ``Resize``; ``trouble`` is why the order was not carried out, or ""."""

    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Probe(Effect):
    """Probe a node; ``Probed`` or ``ProbeFailed`` follows."""

    node: NodeId
    again: bool = False  # whether to bypass caches


@dataclass(frozen=True, slots=True)
class Reserve(_WorkerEffect):
    """Reserve a station's bundle on the station's node; ``Reserved`` or ``NotReserved`` follows."""

    station: Station
    cores: int
    gpus: float  # how many GPUs to reserve for the bundle, once for all stations that share it
    is_bundled: bool = True  # whether a bundle reserves cores and GPUs; otherwise the process does when it starts


@dataclass(frozen=True, slots=True)
class Start(_WorkerEffect):
    """Start the station's process in the bundle; ``Started`` or ``Died`` follows."""

    station: Station
    slots: int
    cores: int  # how many cores were reserved
    # Quarantined devices: a process on one of them does no work, and only holds the device.
    avoided: frozenset[str] = frozenset()
    search_path: str | None = None  # the process's LD_LIBRARY_PATH; None for the node's value
    device: str = ""  # the GPU that placement chose; "" for a process without a GPU


@dataclass(frozen=True, slots=True)
class Stop(_WorkerEffect):
    """End the station's process, if any, and release the reservation; ``Stopped`` follows."""


@dataclass(frozen=True, slots=True)
class Abandon(_WorkerEffect):
    """Cancel everything that a worker runs for clients that are gone."""

    clients: GoneClients


@dataclass(frozen=True, slots=True)
class Resize(Effect):
    """Request numbers of nodes from Ray's autoscaler, and end nodes that run nothing; ``Resized`` follows.

    The order is repeated even if nothing has changed, because an order may get lost.
    """

    wanted: tuple[WantedNodes, ...]
    ended: tuple[NodeId, ...] = ()  # nodes to end, repeated in each order until they are gone


@dataclass(frozen=True, slots=True)
class TellNode(Effect):
    """Tell a node's program what its driver of a queue may do; ``Untold`` follows if this fails."""

    node: NodeId
    driving: Driving


@dataclass(frozen=True, slots=True)
class Remember(Effect):
    """Store users' orders for the next supervisor as {node: order}; open nodes are left out."""

    orders: dict[NodeId, Order]


@dataclass(frozen=True, slots=True)
class KeepQuarantines(Effect):
    """Store for the next supervisor which devices are in quarantine."""

    records: dict[str, DeviceRecord]


@dataclass(frozen=True, slots=True)
class AnswerReport(Effect):
    """Answer a client's report with its grants."""

    asked: int  # the number of the event that brought the report
    client: str
    grants: Grants


@dataclass(frozen=True, slots=True)
class Note(Effect):
    """Write a line to the event log, with the ids of the workers, nodes or devices concerned."""

    action: LogAction
    line: str
    ids: LogIds = NO_IDS
    is_shown: bool = True  # whether the supervisor's status shows the line too
