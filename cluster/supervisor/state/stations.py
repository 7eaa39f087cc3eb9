"""A station: the place of a worker process, with the states of that process."""

from dataclasses import dataclass, field
from enum import Enum

from ....actors.worker.heartbeat import WorkerFacts
from ...logs.entry import LogIds
from ...machine import slots_of_processes
from ...placement.assign.networks import SESSIONS_PER_DLA
from ...placement.model.inventory import Node
from ...probes.report.device_kinds import DeviceKind
from ...probes.report.gpu_identity import Units, on_node
from ...worker_names import NO_WORKER, NodeId, StationId, WorkerId

DEATHS_IN_A_ROW_MAX = 5
"""A station is quarantined after this many deaths in a row, each soon after a start."""
TOOK_KEPT = 4
"""How many earlier processes of a station a client's report may still name."""
GPU_SLOTS = 64
"""The most sessions of a GPU's process; placement decides how many the process gets."""


class StationState(Enum):
    """The state of a station's process."""

    EMPTY = "empty"
    RESERVING = "reserving"
    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"
    RESTING = "resting"
    QUARANTINED = "quarantined"


NOT_STARTED = frozenset({StationState.EMPTY, StationState.RESERVING, StationState.RESTING})
"""States before the start of a station's next process."""
IN_USE = frozenset({StationState.RESERVING, StationState.STARTING, StationState.READY, StationState.LEAVING})
"""States in which a station may have a process or a reservation."""

# The states that can follow each state. A station whose node leaves is dropped in any state.
EDGES: dict[StationState, frozenset[StationState]] = {
    # A job wants the station's device, or an earlier supervisor's worker was found in the station.
    StationState.EMPTY: frozenset({StationState.RESERVING, StationState.READY}),
    # Ray reserved the station's bundle, or did not.
    StationState.RESERVING: frozenset({StationState.STARTING, StationState.RESTING}),
    # The station's process answered, died, or did not start.
    StationState.STARTING: frozenset({StationState.READY, StationState.RESTING, StationState.QUARANTINED}),
    # The station was unused, its node ends, or its process died.
    StationState.READY: frozenset({StationState.LEAVING, StationState.RESTING, StationState.QUARANTINED}),
    # The station's process and reservation are gone.
    StationState.LEAVING: frozenset({StationState.EMPTY}),
    # The station has waited after a death, or after a failed reservation or start.
    StationState.RESTING: frozenset({StationState.EMPTY}),
    # The station has waited long enough, and its node has been probed.
    StationState.QUARANTINED: frozenset({StationState.EMPTY}),
}


@dataclass(frozen=True, slots=True)
class Station:
    """The place of one worker process. If Ray counts a sliced GPU as one, stations for its slices share one bundle."""

    station: StationId  # the station's name: node, seat and number
    slots: int
    sharers: int = 1  # how many stations each GPU has
    counts_slices: bool = False  # whether Ray counts each slice as a GPU
    # Read from the name only once, because a placement needs these two values of each station dozens of times.
    node: NodeId = field(init=False, compare=False, repr=False)  # the node of the station
    kind: DeviceKind = field(init=False, compare=False, repr=False)  # the kind of device that the station serves

    def __post_init__(self) -> None:
        object.__setattr__(self, "node", self.station.node)
        object.__setattr__(self, "kind", self.station.kind)

    @property
    def dla(self) -> int | None:
        """The number of the station's DLA; None without one."""
        return self.station.number if self.kind.runs_networks else None


class Reserving(Enum):
    """How a process gets its cores and its GPU from Ray."""

    BUNDLE = "bundle"  #: in a placement group
    ITSELF = "itself"  #: as resources of the process's actor, because Ray made no placement group from free resources
    NOTHING = "nothing"  #: not reserved: the process shares cores that other work in Ray has reserved


@dataclass(slots=True)
class StationBook:
    """A station's state; only messages about the current process count."""

    station: Station
    state: StationState = StationState.EMPTY
    epoch: int = 0  # the number of the current process
    worker: WorkerId = NO_WORKER  # the station's current process
    since_s: float = 0.0  # when the station changed to ``state``
    facts: WorkerFacts | None = None  # the facts that the station's process reported
    device: str = ""  # the station's current or last GPU
    chosen: str = ""  # the GPU that placement chose for the process; on a cluster, Ray may assign another GPU
    reserved_cores: int = 0
    reserving: Reserving = Reserving.BUNDLE  # how the next process gets its cores and its GPU
    unreserved: str = ""  # why Ray reserved nothing at the last attempt
    outgoing: bool = False  # the process is to be replaced: it gets no more work, and ends when it is idle
    deaths_in_a_row: int = 0
    quarantines: int = 0
    rest_until_s: float = 0.0
    unused_since_s: float | None = None
    reason: str = ""  # the reason for the last change of state
    recycle_due: str = ""  # why the process will be replaced when it is idle
    encoding: int = 0  # the number of encoder sessions of the process
    refused_at: int | None = None  # how many sessions were open at a refusal; kept until the device is known
    story: list[str] = field(default_factory=list)  # the last changes of state, for error messages
    took: dict[int, str] = field(default_factory=dict)  # the devices of the station's last processes, by epoch

    def begin(self, epoch: int) -> None:
        """Give the station's next process a name."""
        self.epoch, self.worker = epoch, WorkerId.of(self.station.station, epoch)

    def to(self, state: StationState, now_s: float, reason: str = "") -> None:
        """Change to ``state``. Raises ValueError: the change is not allowed; the message lists the last changes."""
        if state not in EDGES[self.state]:
            name = self.station.station
            raise ValueError(f"station {name} cannot go from {self.state.value} to {state.value}: {self.story}")
        self.story = [*self.story[-7:], f"{self.state.value} -> {state.value} {reason}".rstrip()]
        self.state, self.since_s, self.reason = state, now_s, reason
        if state is not StationState.READY:
            self.facts = self.unused_since_s = self.refused_at = None
            self.outgoing, self.recycle_due, self.encoding = False, "", 0

    def occupy(self, facts: WorkerFacts) -> None:
        """Record that the station's process has started."""
        self.facts, self.device = facts, on_node(self.station.node, facts.device)
        self.took = {**dict(list(self.took.items())[-TOOK_KEPT:]), self.epoch: self.device}

    @property
    def is_holding(self) -> bool:
        """Whether the process only holds a GPU, on which it cannot work."""
        facts = self.facts
        return facts is not None and bool(facts.trouble or not facts.device) and self.station.kind.takes_gpu

    @property
    def is_astray(self) -> bool:
        """Whether the process cannot work, or has another GPU than the one that placement chose."""
        return self.is_holding or (self.facts is not None and self.device != self.chosen)

    @property
    def expected(self) -> str:
        """The GPU that the station's process has or will have; "" without a process."""
        if self.facts is None and self.state is not StationState.LEAVING:
            return self.chosen if self.state in (StationState.RESERVING, StationState.STARTING) else ""
        return self.device

    @property
    def ids(self) -> LogIds:
        """The ids of the station's process, for the log."""
        return LogIds(node=self.station.node, device=self.device, worker=self.worker)

    @property
    def could_transcode(self) -> bool:
        """Whether a transcoding worker is up or starting in the station, or may start without a reservation."""
        is_up = self.state in (StationState.READY, StationState.STARTING)
        return not self.station.kind.runs_networks and (is_up or self.reserving is Reserving.NOTHING)

    @property
    def ready_slots(self) -> int:
        """The slots that the station offers now."""
        return 0 if self.facts is None else self.facts.slots


def stations_of(node: Node, gpus: int, units: Units) -> list[Station]:
    """Return the stations of a node: one per 8 cores, one per DLA, and one per GPU or slice that Ray assigns.

    Ray chooses a bundle's GPU, so every GPU has as many stations as the GPU with the most slices.
    """
    cores = [sum(device.engines.values()) for device in node.devices if device.kind.is_processor]
    processors = [
        Station(StationId.of(node.node, DeviceKind.CPU, number), slots)
        for count in cores
        for number, slots in enumerate(slots_of_processes(count))
    ]
    slices = [
        Station(StationId.of(node.node, DeviceKind.GPU, number, part), GPU_SLOTS, units.parts_max, units.counts_slices)
        for number in range(gpus)
        for part in range(units.parts_max)
    ]
    return [*processors, *slices, *(Station(StationId(dla.device), SESSIONS_PER_DLA) for dla in node.dlas)]


def unseen_station(station: StationId) -> Station | None:
    """Return an adopted worker's station if it has a DLA or a later slice, which only a probe would list; else None."""
    if station.kind.runs_networks:
        return Station(station, SESSIONS_PER_DLA)
    return Station(station, GPU_SLOTS) if station.part else None
