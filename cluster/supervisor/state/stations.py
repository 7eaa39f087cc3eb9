"""The place of a worker process, and the states it goes through."""

from dataclasses import dataclass, field
from enum import Enum

from ...placement.assign.networks import SESSIONS_PER_DLA
from ...placement.model.inventory import Device, Node
from ...probes.report.device_report import DeviceKind
from ...probes.report.gpu_identity import Units, on_node
from ...worker.facts import WorkerFacts
from .slot_share import CORES_PER_PROCESS, share_out

__all__ = [
    "DEATHS_IN_A_ROW_MAX",
    "EDGES",
    "Seat",
    "SeatBook",
    "SeatState",
    "bundle_of",
    "node_of",
    "seat_of",
    "seats_of",
    "unseen_seat",
]


DEATHS_IN_A_ROW_MAX = 5
"""A seat whose processes die this often, each soon after its start, is quarantined."""


GPU_SLOTS = 64
"""Sessions a GPU's process may have at most; how many it is given is placement's to say."""


class SeatState(Enum):
    """What is in a seat."""

    EMPTY = "empty"
    RESERVING = "reserving"
    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"
    RESTING = "resting"
    QUARANTINED = "quarantined"


EDGES: dict[SeatState, frozenset[SeatState]] = {
    # A seat whose node goes is forgotten, whatever its state.
    # Somebody wants what it could give; or a worker of an earlier supervisor was found in it.
    SeatState.EMPTY: frozenset({SeatState.RESERVING, SeatState.READY}),
    # Ray reserved its bundle; or did not.
    SeatState.RESERVING: frozenset({SeatState.STARTING, SeatState.RESTING}),
    # Its process answered; or died, or did not come.
    SeatState.STARTING: frozenset({SeatState.READY, SeatState.RESTING, SeatState.QUARANTINED}),
    # Nobody used it; or its process died.
    SeatState.READY: frozenset({SeatState.LEAVING, SeatState.RESTING, SeatState.QUARANTINED}),
    # Its process and reservation are gone.
    SeatState.LEAVING: frozenset({SeatState.EMPTY}),
    # It has rested after a death.
    SeatState.RESTING: frozenset({SeatState.EMPTY}),
    # Its device passed a probe.
    SeatState.QUARANTINED: frozenset({SeatState.EMPTY}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The place of one worker process: on which node, for which kind of device, and how many slots it is meant for.

    ``seat`` is the node's id, the kind and a number: ``<node>/cpu#0``. Which of a node's GPUs a seat gets is Ray's
    choice; the worker tells (``WorkerFacts.device``). Where a GPU of Ray's may stand for several slices, seats share
    it: ``bundle`` is the name of the first of them, ``part`` says which slice a seat gets, whatever GPU it is, and
    ``sharers`` how many seats there are for one GPU. A DLA's seat has the name of the DLA itself, whose number ``dla``
    is: Ray knows nothing of DLAs, and books nothing but cores for it.
    """

    seat: str
    node: str
    kind: DeviceKind
    slots: int
    dla: int | None = None
    part: int = 0
    sharers: int = 1
    counts_slices: bool = False

    @property
    def bundle(self) -> str:
        """The name of the GPU's bundle that it shares, or has alone."""
        return bundle_of(self.seat)

    @property
    def takes_gpu(self) -> bool:
        """Whether its bundle books a share of a GPU."""
        return not self.is_processor and self.dla is None

    @property
    def engine(self) -> str:
        """What it is for, in a word: cpu, gpu or dla."""
        return "dla" if self.dla is not None else "cpu" if self.is_processor else "gpu"

    @property
    def is_processor(self) -> bool:
        """Whether it is for work of the processor alone."""
        return self.kind is DeviceKind.CPU


@dataclass(slots=True)
class SeatBook:
    """What is known of a seat. ``epoch`` names its present process; whatever speaks of another one is ignored.

    ``device`` is the GPU it has, or had last. ``unreserved_next`` says that its next process is to share cores that
    other Ray work has reserved, ``unreserved`` why Ray reserved nothing at the last attempt. ``outgoing`` says that the
    present one gets no more work, and goes when it is idle:
    it shares cores while others are free now, or it is ``worn``, for the reason that this holds. ``encoding`` counts
    its encoder sessions.
    """

    seat: Seat
    state: SeatState = SeatState.EMPTY
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
    worn: str = ""
    encoding: int = 0
    story: list[str] = field(default_factory=list)

    def to(self, state: SeatState, now_s: float, reason: str = "") -> None:
        """Go into ``state``.

        Raises:
            ValueError: there is no such edge; the message tells the seat's story.
        """
        if state not in EDGES[self.state]:
            message = f"seat {self.seat.seat} cannot go from {self.state.value} to {state.value}: {self.story}"
            raise ValueError(message)
        self.story = [*self.story[-7:], f"{self.state.value} -> {state.value} {reason}".rstrip()]
        self.state, self.since_s, self.reason = state, now_s, reason
        if state is not SeatState.READY:
            self.facts = None
            self.unused_since_s = None
            self.outgoing = False
            self.worn = ""
            self.encoding = 0

    def sit_down(self, facts: WorkerFacts) -> None:
        """Note who sits here now."""
        self.facts, self.device = facts, on_node(self.seat.node, facts.device)

    @property
    def worker(self) -> str:
        """The name of its process: seat and epoch."""
        return f"{self.seat.seat}:{self.epoch}"

    @property
    def borrows(self) -> bool:
        """Whether its process shares cores that others have reserved, because nothing was free when it came."""
        return self.state is SeatState.READY and self.reserved_cores == 0 and self.seat.is_processor

    @property
    def could_transcode(self) -> bool:
        """Whether a worker that transcodes is up here, or is coming up whatever others have reserved."""
        is_up = self.state in (SeatState.READY, SeatState.STARTING)
        return self.seat.dla is None and (is_up or self.unreserved_next)

    @property
    def ready_slots(self) -> int:
        """How many slots it offers now."""
        return 0 if self.facts is None else self.facts.slots


def seats_of(node: Node, gpus: int, units: Units) -> list[Seat]:
    """Return the seats of a node: a process per 8 cores, one for each GPU that Ray has there, and one for each DLA.

    A GPU of Ray's that is cut into slices has a seat for each of them. Which GPU its bundle gets is Ray's choice, so
    every GPU has as many as the one with the most slices. The first is there before the node was probed: a worker that
    was left in it is found again. One process has one DLA: whatever goes wrong there is final for all of the process.
    """
    seats = [seat for device in node.devices if device.kind is DeviceKind.CPU for seat in _processor_seats(device)]
    seats += [_gpu_seat(node.node, number, part, units) for number in range(gpus) for part in range(units.parts_max)]
    return [*seats, *(_dla_seat(dla.device) for dla in node.dlas)]


def unseen_seat(seat: str) -> Seat | None:
    """Return the seat of a name that is there only once its node was probed: a DLA's, or a slice's.

    Its worker may be found before that.
    """
    name = seat.rpartition("/")[2]
    if name.startswith(_DLA):
        return _dla_seat(seat)
    _number, dot, part = name.removeprefix(_GPU).partition(_PART)
    return Seat(seat=seat, node=node_of(seat), kind=DeviceKind.GPU, slots=GPU_SLOTS, part=int(part)) if dot else None


_DLA = "dla#"
_GPU = "gpu#"
_PART = "."


def _gpu_seat(node: str, number: int, part: int, units: Units) -> Seat:
    return Seat(
        seat=f"{node}/{_GPU}{number}" + (f"{_PART}{part}" if part else ""),
        node=node,
        kind=DeviceKind.GPU,
        slots=GPU_SLOTS,
        part=part,
        sharers=units.parts_max,
        counts_slices=units.counts_slices,
    )


def bundle_of(seat: str) -> str:
    """Return the name of the bundle that a seat has: the seat's own, or that of the first slice of its GPU."""
    node, slash, name = seat.rpartition("/")
    return f"{node}{slash}{name.partition(_PART)[0]}"


def _dla_seat(seat: str) -> Seat:
    number = int(seat.rpartition(_DLA)[2])
    return Seat(seat=seat, node=node_of(seat), kind=DeviceKind.IGPU, slots=SESSIONS_PER_DLA, dla=number)


def node_of(seat: str) -> str:
    """Return the node's id in a seat's."""
    return seat.rpartition("/")[0]


def seat_of(worker: str) -> str:
    """Return the seat's id in a worker's name."""
    return worker.rpartition(":")[0]


def _processor_seats(device: Device) -> list[Seat]:
    cores = sum(device.engines.values())
    if cores < 1:
        return []
    shares = share_out(cores, [1] * -(-cores // CORES_PER_PROCESS))
    return [
        Seat(seat=f"{device.node}/cpu#{number}", node=device.node, kind=DeviceKind.CPU, slots=slots)
        for number, slots in enumerate(shares)
    ]
