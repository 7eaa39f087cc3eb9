"""What clients and the supervisor tell each other, and what the world tells the supervisor: frozen, picklable values.

Clients do not ask for changes: each says, again and again, what it wants and what it holds, and gets back what it may
use. So a lost message costs a second, and a supervisor that begins anew learns everything from the next round.
"""

from dataclasses import dataclass, field, replace

from ...placement.model.demand import Demand
from ...placement.model.inventory import Device, Node, dlas_of
from ...placement.nodes.assumed import processor_of
from ...probes.report.gpu_identity import ShownGpus
from ...worker.facts import WorkerFacts

__all__ = ["ClientReport", "FoundWorker", "Grants", "JobReport", "RayNode"]


@dataclass(frozen=True, slots=True)
class JobReport:
    """One job of a client: what it still wants, and how many of its pieces of work run on which worker."""

    demand: Demand
    held: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientReport:
    """What a client says of itself; ``turn`` grows with every report, so that a late one is told from a new one.

    ``client`` is unique; ``where`` names its host and process for people. ``proven`` are workers that have done work
    for it: what came before is no crash loop. ``heard`` is the number of the newest grants it has heard.
    """

    client: str
    where: str
    sequence: int
    jobs: tuple[JobReport, ...]
    proven: tuple[str, ...] = ()
    acknowledged: int = 0


@dataclass(frozen=True, slots=True)
class Grants:
    """What a client may use until it is told otherwise.

    ``slots`` maps each of its jobs to {worker: slots}; ``number`` grows with every answer, whoever is supervisor.
    ``dead`` names workers it held that are gone. ``capacity_slots`` is what one job could get at most if it were alone.
    ``waiting`` says why a job that has nothing has nothing, ``refused`` why a job will never have anything on the
    machines that there are, and ``broken`` why one that only certain devices serve has nothing any more.
    ``unrecoverable`` says why nothing will ever come, "" while something may, and ``what_next`` what to do about it.
    """

    slots: dict[str, dict[str, int]]
    number: int = 0
    dead: frozenset[str] = frozenset()
    capacity_slots: int = 0
    waiting: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    unrecoverable: str = ""
    what_next: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """A live node as Ray lists it: all of its CPUs and GPUs, and those that nobody has reserved.

    ``devices`` are the GPUs that are known before any probe, ``shown`` their names, ``dlas`` counts the DLAs that are.
    ``preemptible`` is a node that may be taken away at any moment.
    """

    node: str
    name: str
    cores: int
    free_cores: int
    gpus: int = 0
    preemptible: bool = False
    draining: bool = False
    devices: tuple[Device, ...] = ()
    shown: ShownGpus | None = None
    dlas: int = 0

    def unprobed(self) -> Node:
        """Return what is known of it before any probe has reported.

        That is its processor, able to do all our software can, and such GPUs as are known.
        """
        plain = processor_of(self.node, self.name, self.cores)
        devices = (*self.devices, *plain.devices)
        dlas = dlas_of(self.node, self.dlas)
        return replace(plain, devices=devices, preemptible=self.preemptible, shown=self.shown, dlas=dlas)


@dataclass(frozen=True, slots=True)
class FoundWorker:
    """A worker that an earlier supervisor left behind, alive; ``is_reserved`` says whether it has a bundle."""

    station: str
    epoch: int
    facts: WorkerFacts
    is_reserved: bool = True
