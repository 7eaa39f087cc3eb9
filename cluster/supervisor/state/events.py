"""What happens to a supervisor, and what it has done about it: the alphabet of ``core.Core``."""

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from ...placement.model.inventory import Node
from ...probes.gpus.live_health import DeviceHealth
from ...worker.facts import WorkerFacts
from .messages import ClientReport, FoundWorker, RayNode

__all__ = [
    "Abandon",
    "Asked",
    "Departed",
    "Died",
    "Effect",
    "Encoding",
    "Ended",
    "Event",
    "Found",
    "HealthSeen",
    "HealthUnseen",
    "Measured",
    "NodesSeen",
    "NotReserved",
    "Note",
    "Order",
    "Probe",
    "ProbeFailed",
    "Probed",
    "RecycleDue",
    "Remember",
    "Renewed",
    "Reserve",
    "Reserved",
    "Start",
    "Started",
    "Stop",
    "Stopped",
    "Ticked",
]


class Order(Enum):
    """What can be asked about a node."""

    CORDON = "cordon"  #: give it no new work
    DRAIN = "drain"  #: give it no new work, and let its workers go once theirs is done
    UNCORDON = "uncordon"  #: give it work again


@dataclass(frozen=True, slots=True)
class NodesSeen:
    """These nodes are alive, and no others."""

    nodes: tuple[RayNode, ...]


@dataclass(frozen=True, slots=True)
class Probed:
    """A node's probes have reported."""

    node: Node


@dataclass(frozen=True, slots=True)
class ProbeFailed:
    """A node's probes did not report."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reserved:
    """Ray reserved the seat's bundle, with ``cores`` CPUs in it."""

    station: str
    epoch: int
    cores: int


@dataclass(frozen=True, slots=True)
class NotReserved:
    """Ray did not reserve the seat's bundle in time, or never will."""

    station: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Started:
    """The seat's process answered."""

    station: str
    epoch: int
    facts: WorkerFacts


@dataclass(frozen=True, slots=True)
class Died:
    """The seat's process is gone, did not come up, or does not answer any more."""

    station: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The seat's process and reservation are gone, as we wished."""

    station: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Found:
    """An earlier supervisor's workers, alive. Told once, at the beginning."""

    workers: tuple[FoundWorker, ...]


@dataclass(frozen=True, slots=True)
class Renewed:
    """A client says what it wants and holds."""

    report: ClientReport


@dataclass(frozen=True, slots=True)
class Departed:
    """A client says goodbye."""

    client: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A user asks for something about a node; or asked an earlier supervisor, which ``is_recalled``."""

    order: Order
    node: str
    is_recalled: bool = False


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A worker's sessions, all for one job (by the name its driver gave it), gave so many frames a second together.

    ``on_device`` is whether the worker's device decoded for them.
    """

    station: str
    epoch: int
    job: str
    sessions: int
    fps: float
    on_device: bool = False


@dataclass(frozen=True, slots=True)
class RecycleDue:
    """The seat's process has run so long that another should take its place, once it has nothing to do."""

    station: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Encoding:
    """A worker has so many encoder sessions open; None, or how many it had open when its driver opened no further."""

    station: str
    epoch: int
    sessions: int
    refused_at: int | None = None


@dataclass(frozen=True, slots=True)
class HealthSeen:
    """A node's GPUs were polled.

    ``fps`` are {worker: source frames a second}: the most that each there gave since the last poll while its device
    decoded.
    """

    node: str
    devices: tuple[DeviceHealth, ...]
    fps: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HealthUnseen:
    """A node's GPUs could not be polled."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """What everything runs on is gone, or is being closed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Probe a node; Probed or ProbeFailed follows. ``again`` wants no cached answers."""

    node: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Reserve:
    """Reserve a seat's bundle on its node; Reserved or NotReserved follows.

    ``gpus`` is booked once for all ``sharers`` seats of the same ``bundle``: they have slices of one GPU.
    """

    station: str
    epoch: int
    node: str
    cores: int
    gpus: float
    bundle: str = ""
    sharers: int = 1


@dataclass(frozen=True, slots=True)
class Start:
    """Start the seat's process in its bundle; Started or Died follows. ``dla`` is the DLA that it is for, if any.

    ``part`` is the slice that it takes of the GPU that Ray gives it, ``counts_slices`` whether Ray counts slices there.
    """

    station: str
    epoch: int
    node: str
    slots: int
    takes_gpu: bool
    dla: int | None = None
    part: int = 0
    counts_slices: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """End the seat's process, if there is one, and give its reservation back; Stopped follows."""

    station: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Have a worker stop whatever it runs for a client that is gone."""

    station: str
    epoch: int
    client: str


@dataclass(frozen=True, slots=True)
class Remember:
    """Keep what users asked about nodes, for the next supervisor: {node: order}, open nodes left out."""

    orders: dict[str, Order]


@dataclass(frozen=True, slots=True)
class Note:
    """Write a line into the event log."""

    line: str


Event: TypeAlias = (
    NodesSeen
    | Probed
    | ProbeFailed
    | Reserved
    | NotReserved
    | Started
    | Died
    | Stopped
    | Found
    | Renewed
    | Departed
    | Asked
    | Ticked
    | Measured
    | RecycleDue
    | Encoding
    | HealthSeen
    | HealthUnseen
    | Ended
)
Effect: TypeAlias = Probe | Reserve | Start | Stop | Abandon | Remember | Note
