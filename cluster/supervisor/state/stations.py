"""A station: the place of a worker process, and its states."""

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
"""The most sessions of a GPU's process; placement decides how many it gets."""


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

# The states that can follow each state. A station whose node goes is dropped in any state.
EDGES: dict[StationState, frozenset[StationState]] = {
    # A job wants the station's device, or an earlier supervisor's worker was found in the station.
    StationState.EMPTY: frozenset({StationState.RESERVING, StationState.READY}),
    # Ray reserved its bundle, or did not.
    StationState.RESERVING: frozenset({StationState.STARTING, StationState.RESTING}),
    # Its process answered, died, or did not start.
    StationState.STARTING: frozenset({StationState.READY, StationState.RESTING, StationState.QUARANTINED}),
    # It was unused, or its process died.
    StationState.READY: frozenset({StationState.LEAVING, StationState.RESTING, StationState.QUARANTINED}),
    # Its process and reservation are gone.
    StationState.LEAVING: frozenset({StationState.EMPTY}),
    # It has waited after a death.
    StationState.RESTING: frozenset({StationState.EMPTY}),
    # Its device passed a probe.
    StationState.QUARANTINED: frozenset({StationState.EMPTY}),
}


@dataclass(frozen=True, slots=True)
class Station:
    """The place of one worker process. Ray chooses its GPU; stations for slices of one GPU share it."""

    station: StationId  # its name: node, seat and number
    slots: int
    sharers: int = 1  # the number of stations per GPU
    counts_slices: bool = False  # whether Ray counts each slice as a GPU

    @property
    def node(self) -> NodeId:
        """Its node."""
        return self.station.node

    @property
    def kind(self) -> DeviceKind:
        """The kind of device that it serves."""
        return self.station.kind

    @property
    def dla(self) -> int | None:
        """The number of its DLA, if it has one."""
        return self.station.number if self.kind.runs_networks else None


@dataclass(slots=True)
class StationBook:
    """A station's state; messages about any process but the current one are ignored."""

    station: Station
    state: StationState = StationState.EMPTY
    epoch: int = 0  # of its current process
    worker: WorkerId = NO_WORKER  # its current process
    since_s: float = 0.0  # when it changed to ``state``
    facts: WorkerFacts | None = None  # reported by its process
    device: str = ""  # its current or last GPU
    reserved_cores: int = 0
    unreserved_next: bool = False  # its next process shares cores that other Ray work has reserved
    unreserved: str = ""  # why Ray reserved nothing at the last attempt
    outgoing: bool = False  # its process gets no more work and ends once idle, because it will be replaced
    deaths_in_a_row: int = 0
    quarantines: int = 0
    rest_until_s: float = 0.0
    unused_since_s: float | None = None
    reason: str = ""  # of its last change
    recycle_due: str = ""  # why its process will be replaced once idle
    encoding: int = 0  # its encoder sessions
    refused_at: int | None = None  # sessions open at a refusal, until its device is known
    story: list[str] = field(default_factory=list)  # its last changes, for error messages
    took: dict[int, str] = field(default_factory=dict)  # the devices of its last processes, by epoch

    def begin(self, epoch: int) -> None:
        """Give its next process a name."""
        self.epoch, self.worker = epoch, WorkerId.of(self.station.station, epoch)

    def to(self, state: StationState, now_s: float, reason: str = "") -> None:
        """Change to ``state``. Raises ValueError: no such edge; the message lists the station's last transitions."""
        if state not in EDGES[self.state]:
            name = self.station.station
            raise ValueError(f"station {name} cannot go from {self.state.value} to {state.value}: {self.story}")
        self.story = [*self.story[-7:], f"{self.state.value} -> {state.value} {reason}".rstrip()]
        self.state, self.since_s, self.reason = state, now_s, reason
        if state is not StationState.READY:
            self.facts = self.unused_since_s = self.refused_at = None
            self.outgoing, self.recycle_due, self.encoding = False, "", 0

    def occupy(self, facts: WorkerFacts) -> None:
        """Record its process."""
        self.facts, self.device = facts, on_node(self.station.node, facts.device)
        self.took = {**dict(list(self.took.items())[-TOOK_KEPT:]), self.epoch: self.device}

    @property
    def is_holding(self) -> bool:
        """Whether its process cannot work, and only keeps its GPU so that Ray assigns others to other workers."""
        return (
            self.facts is not None and self.station.kind.takes_gpu and bool(self.facts.trouble or not self.facts.device)
        )

    @property
    def ids(self) -> LogIds:
        """The ids of its process, for the log."""
        return LogIds(node=self.station.node, device=self.device, worker=self.worker)

    @property
    def could_transcode(self) -> bool:
        """Whether a transcoding worker is up here, or starts without a reservation."""
        is_up = self.state in (StationState.READY, StationState.STARTING)
        return not self.station.kind.runs_networks and (is_up or self.unreserved_next)

    @property
    def ready_slots(self) -> int:
        """The slots it offers now."""
        return 0 if self.facts is None else self.facts.slots


def stations_of(node: Node, gpus: int, units: Units) -> list[Station]:
    """Return the stations of a node: one per 8 cores, per GPU or slice that Ray gives out, and per DLA.

    Ray chooses a bundle's GPU, so every GPU has as many stations as the one with the most slices.
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
    """Return the station of a DLA or slice by its name: its worker may be found before its node was probed."""
    if station.kind.runs_networks:
        return Station(station, SESSIONS_PER_DLA)
    return Station(station, GPU_SLOTS) if station.part else None
