"""Messages between clients and the supervisor, and the cluster's facts: frozen, picklable values.

Each client repeatedly reports what all its jobs want and hold, and receives what they may use. So a lost message costs
a second, a repeated one nothing, and a restarted supervisor learns everything from the next one.
"""

from dataclasses import dataclass, field, replace

from ...placement.model.demand import Demand
from ...placement.model.inventory import Device, Node, dlas_of, processor_of
from ...probes.report.gpu_identity import ShownGpus
from ...worker.heartbeat import WorkerFacts


@dataclass(frozen=True, slots=True)
class JobReport:
    """One job: what it still wants, and how many of its pieces of work run on each worker."""

    demand: Demand
    held: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceFault:
    """A worker's device failed, or gave a wrong result, for one ``file``; ``number`` grows with each of a client.

    ``is_doubtful``: the file, or work beside it, may as well be the cause.
    """

    number: int
    worker: str
    file: str
    is_wrong: bool
    reason: str
    is_doubtful: bool = False


@dataclass(frozen=True, slots=True)
class ClientReport:
    """A client's report; ``sequence`` grows with each, so that late ones are recognised.

    ``client`` is unique; ``where`` names its host and process for people. ``proven`` are workers that completed work
    for it, so their earlier deaths were not a crash loop. ``acknowledged`` is the number of the newest grants it
    received. ``faults`` are repeated for a while, and counted once. ``written_off`` are workers in which its work hung:
    {worker: reason}. ``behind`` is work that it will ask for when some of its jobs are done, and gets no slots: of
    each, ``frames_total`` is how much that is, ``segments`` has the length of one, and ``workers_max`` says how many
    could run at once.
    """

    client: str
    where: str
    sequence: int
    jobs: tuple[JobReport, ...]
    proven: tuple[str, ...] = ()
    acknowledged: int = 0
    faults: tuple[DeviceFault, ...] = ()
    written_off: dict[str, str] = field(default_factory=dict)
    behind: tuple[Demand, ...] = ()


@dataclass(frozen=True, slots=True)
class JobGrants:
    """What one job gets, and why not more: its part of ``Grants``."""

    slots: dict[str, int]
    dead: frozenset[str] = frozenset()
    waiting: str = ""
    refused: str = ""
    too_large: str = ""
    broken: str = ""
    leaving: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grants:
    """What a client may use until the next grants.

    ``slots`` maps each job to {worker: slots}; ``number`` grows with every answer, across supervisors. ``dead`` are
    workers it held that are gone. ``capacity_slots`` is the most one job could get if it were alone. ``waiting`` says
    why a job has no slots, ``refused`` why it never will on these machines, ``too_large`` why none of them has the
    memory for it, ``broken`` why the devices that it needs are lost. ``leaving`` are workers it holds whose nodes
    end then, in seconds of UTC. ``unrecoverable`` says why no slots will ever come, "" while some may, and
    ``what_next`` what to do about it.
    """

    slots: dict[str, dict[str, int]]
    number: int = 0
    dead: frozenset[str] = frozenset()
    capacity_slots: int = 0
    waiting: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    too_large: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    leaving: dict[str, float] = field(default_factory=dict)
    unrecoverable: str = ""
    what_next: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """A live node as Ray lists it: its CPUs and GPUs, and the unreserved CPUs.

    ``devices`` are the GPUs known before any probe, ``shown`` their names, ``dlas`` the number of DLAs. ``unlisted``
    says why ``gpus`` may not count them all, "" where it does. ``preemptible`` nodes may be taken away at any moment.
    ``memory_bytes`` is what workers may use: the object store is not in it. ``leaves_utc_s`` is when the notice of a
    ``draining`` node ends, None where Ray names no time. ``labels`` are those that Ray has of it.
    """

    node: str
    name: str
    cores: int
    free_cores: int
    gpus: int = 0
    preemptible: bool = False
    draining: bool = False
    leaves_utc_s: float | None = None
    devices: tuple[Device, ...] = ()
    shown: ShownGpus | None = None
    dlas: int = 0
    memory_bytes: int | None = None
    unlisted: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def knows_its_gpus(self) -> bool:
        """Whether no probe is needed: tables have what each of its GPUs can do."""
        return not self.unlisted and all(device.trials for device in self.devices) and len(self.devices) >= self.gpus

    def unprobed(self) -> Node:
        """Return what is known before any probe: its CPU with all our software codecs, and its known GPUs."""
        plain = processor_of(self.node, self.name, self.cores, self.memory_bytes)
        devices = (*self.devices, *plain.devices)
        dlas = dlas_of(self.node, self.dlas)
        return replace(plain, devices=devices, preemptible=self.preemptible, shown=self.shown, dlas=dlas)


@dataclass(frozen=True, slots=True)
class FoundWorker:
    """A live worker of an earlier supervisor; ``is_reserved`` says whether it has a bundle."""

    worker: str
    facts: WorkerFacts
    is_reserved: bool = True
