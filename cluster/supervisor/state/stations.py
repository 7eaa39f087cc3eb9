"""A station: the place of a worker process, and its states."""

from dataclasses import dataclass, field
from enum import Enum

from ...logs.entry import LogIds
from ...placement.assign.networks import SESSIONS_PER_DLA
from ...placement.model.inventory import Device, Node
from ...probes.report.device_report import DeviceKind
from ...probes.report.gpu_identity import Units, on_node
from ...worker.heartbeat import WorkerFacts
from ...worker_names import epoch_of, node_of

DEATHS_IN_A_ROW_MAX = 5
"""A station whose processes die this often, each soon after its start, is quarantined."""


CORES_PER_PROCESS = 8
"""One process serves up to 8 cores: codecs release the GIL, and another process costs 80 MiB and a start."""
TOOK_KEPT = 4
"""How many earlier processes of a station reports may still name."""
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
"""States that may last for as long as Ray gives nothing; a process that starts answers or dies in time."""
IN_USE = frozenset({StationState.RESERVING, StationState.STARTING, StationState.READY, StationState.LEAVING})
"""States in which a station may have a process or a reservation."""

EDGES: dict[StationState, frozenset[StationState]] = {
    # A station whose node goes is dropped in any state.
    # A job wants its device; or an earlier supervisor's worker was found in it.
    StationState.EMPTY: frozenset({StationState.RESERVING, StationState.READY}),
    # Ray reserved its bundle; or did not.
    StationState.RESERVING: frozenset({StationState.STARTING, StationState.RESTING}),
    # Its process answered; died; or did not start.
    StationState.STARTING: frozenset({StationState.READY, StationState.RESTING, StationState.QUARANTINED}),
    # It was unused; or its process died.
    StationState.READY: frozenset({StationState.LEAVING, StationState.RESTING, StationState.QUARANTINED}),
    # Its process and reservation are gone.
    StationState.LEAVING: frozenset({StationState.EMPTY}),
    # It has rested after a death.
    StationState.RESTING: frozenset({StationState.EMPTY}),
    # Its device passed a probe.
    StationState.QUARANTINED: frozenset({StationState.EMPTY}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """The place of one worker process: its node, kind of device, and slots.

    ``station`` is the node's id, the kind and a number: ``<node>/cpu#0``. Ray chooses a station's GPU; the worker
    reports it (``WorkerFacts.device``). Where one Ray GPU stands for several slices, stations share it: ``bundle`` is
    the first one's name, ``part`` the slice that a station takes of whatever GPU it gets, and ``sharers`` the number of
    stations per GPU. A DLA's station is named like the DLA, whose number is ``dla``: Ray does not know DLAs, and books
    only cores for it.
    """

    station: str
    node: str
    kind: DeviceKind
    slots: int
    dla: int | None = None
    part: int = 0
    sharers: int = 1
    counts_slices: bool = False

    @property
    def bundle(self) -> str:
        """The name of its GPU's bundle, shared or not."""
        return bundle_of(self.station)

    @property
    def takes_gpu(self) -> bool:
        """Whether its bundle books a share of a GPU."""
        return not self.is_processor and self.dla is None

    @property
    def engine(self) -> str:
        """Its engine: cpu, gpu or dla."""
        return "dla" if self.dla is not None else "cpu" if self.is_processor else "gpu"

    @property
    def is_processor(self) -> bool:
        """Whether it runs CPU work alone."""
        return self.kind is DeviceKind.CPU


@dataclass(slots=True)
class StationBook:
    """A station's state. ``epoch`` names its current process; messages about another are ignored.

    ``device`` is its current or last GPU. ``unreserved_next``: its next process shares cores that other Ray work has
    reserved; ``unreserved`` says why Ray reserved nothing at the last attempt. ``outgoing``: the current process gets
    no more work and goes once idle, because it shares cores while others are free, or is ``recycle_due`` for that
    reason. ``encoding`` counts its encoder sessions, ``refused_at`` how many were open at a refusal that its device,
    not known yet, is still to learn from. ``took`` are the devices of its last processes, by epoch.
    """

    station: Station
    state: StationState = StationState.EMPTY
    epoch: int = 0
    since_s: float = 0.0
    facts: WorkerFacts | None = None
    device: str = ""
    reserved_cores: int = 0
    unreserved_next: bool = False
    unreserved: str = ""
    outgoing: bool = False
    deaths_in_a_row: int = 0
    quarantines: int = 0
    rest_until_s: float = 0.0
    unused_since_s: float | None = None
    reason: str = ""
    recycle_due: str = ""
    encoding: int = 0
    refused_at: int | None = None
    story: list[str] = field(default_factory=list)
    took: dict[int, str] = field(default_factory=dict)

    def to(self, state: StationState, now_s: float, reason: str = "") -> None:
        """Change to ``state``.

        Raises:
            ValueError: no such edge; the message lists the station's last transitions.
        """
        if state not in EDGES[self.state]:
            message = f"station {self.station.station} cannot go from {self.state.value} to {state.value}: {self.story}"
            raise ValueError(message)
        self.story = [*self.story[-7:], f"{self.state.value} -> {state.value} {reason}".rstrip()]
        self.state, self.since_s, self.reason = state, now_s, reason
        if state is not StationState.READY:
            self.facts = None
            self.unused_since_s = None
            self.outgoing = False
            self.recycle_due = ""
            self.encoding, self.refused_at = 0, None

    def occupy(self, facts: WorkerFacts) -> None:
        """Record its process."""
        self.facts, self.device = facts, on_node(self.station.node, facts.device)
        self.took = {**dict(list(self.took.items())[-TOOK_KEPT:]), self.epoch: self.device}

    def device_of(self, worker: str) -> str:
        """Return the device of this station's current or an earlier process, "" where that is not known any more."""
        return self.took.get(epoch_of(worker), "")

    @property
    def is_holding(self) -> bool:
        """Whether its process cannot work, and only keeps its GPU so that Ray assigns others to other workers."""
        return self.facts is not None and self.station.takes_gpu and bool(self.facts.trouble or not self.facts.device)

    @property
    def worker(self) -> str:
        """The name of its process: station and epoch."""
        return f"{self.station.station}:{self.epoch}"

    @property
    def ids(self) -> LogIds:
        """The ids of its process, for the log."""
        return LogIds(node=self.station.node, device=self.device, worker=self.worker)

    @property
    def borrows(self) -> bool:
        """Whether its process shares cores that others reserved, because none was free when it started."""
        return self.state is StationState.READY and self.reserved_cores == 0 and self.station.is_processor

    @property
    def could_transcode(self) -> bool:
        """Whether a transcoding worker is up here, or starts without a reservation."""
        is_up = self.state in (StationState.READY, StationState.STARTING)
        return self.station.dla is None and (is_up or self.unreserved_next)

    @property
    def ready_slots(self) -> int:
        """The slots it offers now."""
        return 0 if self.facts is None else self.facts.slots


def stations_of(node: Node, gpus: int, units: Units) -> list[Station]:
    """Return the stations of a node: a process per 8 cores, one for each of Ray's GPUs there, and one per DLA.

    A Ray GPU that is cut into slices has a station per slice. Ray chooses a bundle's GPU, so every GPU has as many as
    the one with the most slices. The first exists before the node was probed, so that a worker left in it is found. One
    process has one DLA: an error there is final for the whole process.
    """
    stations = [
        station for device in node.devices if device.kind is DeviceKind.CPU for station in _processor_stations(device)
    ]
    stations += [
        _gpu_station(node.node, number, part, units) for number in range(gpus) for part in range(units.parts_max)
    ]
    return [*stations, *(_dla_station(dla.device) for dla in node.dlas)]


def unseen_station(station: str) -> Station | None:
    """Return the station of a DLA or slice by its name: its worker may be found before its node was probed."""
    name = station.rpartition("/")[2]
    if name.startswith(_DLA):
        return _dla_station(station)
    _number, dot, part = name.removeprefix(_GPU).partition(_PART)
    return (
        Station(station=station, node=node_of(station), kind=DeviceKind.GPU, slots=GPU_SLOTS, part=int(part))
        if dot
        else None
    )


_DLA = "dla#"
_GPU = "gpu#"
_PART = "."


def _gpu_station(node: str, number: int, part: int, units: Units) -> Station:
    return Station(
        station=f"{node}/{_GPU}{number}" + (f"{_PART}{part}" if part else ""),
        node=node,
        kind=DeviceKind.GPU,
        slots=GPU_SLOTS,
        part=part,
        sharers=units.parts_max,
        counts_slices=units.counts_slices,
    )


def bundle_of(station: str) -> str:
    """Return the name of a station's bundle: its own, or that of the first slice of its GPU."""
    node, slash, name = station.rpartition("/")
    return f"{node}{slash}{name.partition(_PART)[0]}"


def _dla_station(station: str) -> Station:
    number = int(station.rpartition(_DLA)[2])
    return Station(station=station, node=node_of(station), kind=DeviceKind.IGPU, slots=SESSIONS_PER_DLA, dla=number)


def slots_of_processes(cores: int) -> list[int]:
    """Return the slots of each process on this number of cores, the first one's first."""
    count = -(-cores // CORES_PER_PROCESS)
    return [cores // count + (number < cores % count) for number in range(count)]


def _processor_stations(device: Device) -> list[Station]:
    return [
        Station(station=f"{device.node}/cpu#{number}", node=device.node, kind=DeviceKind.CPU, slots=slots)
        for number, slots in enumerate(slots_of_processes(sum(device.engines.values())))
    ]
