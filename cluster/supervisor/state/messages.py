"""Messages between clients and the supervisor, and facts about the cluster: frozen, picklable values.

Each report is complete: a lost report costs a second, and a restarted supervisor learns everything from the next
report.
"""

from dataclasses import dataclass, field, replace

from ....actors.worker.heartbeat import WorkerFacts
from ...device_fault import DeviceFault
from ...placement.model.demand import Demand
from ...placement.model.inventory import Device, Node, dlas_of, processor_of
from ...probes.report.gpu_identity import ShownGpus
from ...ray.keeper import Word
from ...worker_names import NodeId, WorkerId


@dataclass(frozen=True, slots=True)
class JobReport:
    """One job: the remaining demand, and how many of its segments run on each worker."""

    demand: Demand
    held: dict[WorkerId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientReport:
    """A client's report."""

    client: str  # the client's unique name
    where: str  # the client's host and process, as text for display
    sequence: int  # grows with each report, so that late reports are recognized
    jobs: tuple[JobReport, ...]
    node: NodeId | None = None  # the node on which the client runs; None if it is not known
    keeper: str = ""  # ``Node.keeper`` of that node, which differs for each node of a machine; "" without a driver
    # Workers that completed work, so that earlier deaths in their stations no longer count as a crash loop.
    proven: tuple[WorkerId, ...] = ()
    acknowledged: int = 0  # the number of the newest grants that the client received
    faults: tuple[DeviceFault, ...] = ()  # each fault is repeated for a while, and counted once
    # Workers in which the client's work hung: {worker: reason}.
    written_off: dict[WorkerId, str] = field(default_factory=dict)
    # The waiting jobs of batches, which get no slots. ``frames_total`` counts the frames of all these jobs,
    # ``segments`` has the length of one segment, and ``workers_max`` is how many segments could run at once.
    later: tuple[Demand, ...] = ()


@dataclass(frozen=True, slots=True)
class Grants:
    """Slots that a client may use until the next grants; jobs have the client's own names."""

    slots: dict[str, dict[WorkerId, int]]  # how many slots each job may use: {job: {worker: slots}}
    number: int = 0  # grows with every answer, even across supervisors
    dead: frozenset[WorkerId] = frozenset()  # the client's workers that are gone
    capacity_slots: int = 0  # the most slots of one job on an otherwise idle cluster
    waiting: dict[str, str] = field(default_factory=dict)  # why each job without slots has none
    refused: dict[str, str] = field(default_factory=dict)  # why these machines can never run a job, by job
    too_large: dict[str, str] = field(default_factory=dict)  # why no machine has enough memory for a job, by job
    broken: dict[str, str] = field(default_factory=dict)  # why the devices that a job needs are lost, by job
    # The client's workers whose node ends, each with the seconds left when the answer was sent.
    leaving: dict[WorkerId, float] = field(default_factory=dict, compare=False)
    # An order to the driver that started the client, if Ray drains the client's node; otherwise None.
    word: Word | None = field(default=None, compare=False)
    unrecoverable: str = ""  # why there will never be a slot; "" while there may be one
    what_next: str = ""  # the remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """A live node as Ray lists it."""

    node: NodeId
    name: str
    cores: int
    free_cores: int  # cores that nothing has reserved
    gpus: int = 0
    free_gpus: float = 0.0  # GPUs that nothing has reserved
    preemptible: bool = False  # whether the cloud may take the node away at any moment
    draining: bool = False
    leaves_utc_s: float | None = None  # when a draining node leaves, by the node's clock; None if Ray names no time
    devices: tuple[Device, ...] = ()  # the GPUs known before any probe
    shown: ShownGpus | None = None  # the names of the node's GPUs
    dlas: int = 0
    memory_bytes: int | None = None  # memory for workers, without the object store
    unlisted: str = ""  # why ``gpus`` may be too low; "" if it is right
    labels: dict[str, str] = field(default_factory=dict)  # the node's labels in Ray

    @property
    def knows_its_gpus(self) -> bool:
        """Whether all the node's GPUs are known with documented capabilities, so that no probe is needed."""
        return not self.unlisted and all(device.trials for device in self.devices) and len(self.devices) >= self.gpus

    def unprobed(self) -> Node:
        """Return the node before any probe: the CPU with all software codecs, and the known GPUs."""
        plain = processor_of(self.node, self.name, self.cores, self.memory_bytes)
        devices = (*self.devices, *plain.devices)
        dlas = dlas_of(self.node, self.dlas)
        return replace(plain, devices=devices, preemptible=self.preemptible, shown=self.shown, dlas=dlas)


@dataclass(frozen=True, slots=True)
class FoundWorker:
    """A live worker of an earlier supervisor."""

    worker: WorkerId
    facts: WorkerFacts
