"""A cluster's live nodes: devices of each node, and whether the node takes work."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ...logs.entry import LogIds
from ...placement.model.inventory import Device, DeviceState, Node, cordoned
from ...probes.report.engines import Engine
from ...probes.report.gpu_identity import NamedGpu, NamedSlice, ShownGpus, on_node
from ...probes.vgpu.hosted import HostedVgpu
from ...ray.keeper import Driving
from ...worker_names import NodeId
from .conditions import Condition, with_condition, with_hosted
from .events import Order, Probe
from .messages import RayNode
from .quarantine import CLEAN, DeviceRecord, Quarantine, key_of
from .stations import Station, stations_of

PROBE_AGAIN_S = 60.0
"""A probe that has not answered for this long may be requested again."""

WITHHELD_S = 30.0
"""How long placement avoids a GPU that Ray does not assign."""

SKEW_MAX_S = 2.0
"""A node's clock is reported if it differs from the supervisor's clock by at least this much."""


ORDERED_STATES = {
    Order.CORDON: DeviceState.CORDONED,
    Order.DRAIN: DeviceState.DRAINING,
    Order.UNCORDON: DeviceState.OPEN,
}
"""A node's state after a user's last order."""


@dataclass(frozen=True, slots=True)
class Place:
    """A device's place among Ray's GPUs."""

    unit: str  # the GPU as Ray counts GPUs: a whole GPU, or a slice if Ray counts slices
    part: int = 0  # which slice, if the unit has several


@dataclass(slots=True)
class NodeBook:
    """A live node, with everything that the supervisor knows about it."""

    ray: RayNode
    # Records of devices by ``key_of``, shared by all nodes.
    quarantines: dict[str, DeviceRecord] = field(default_factory=dict)
    probed: Node | None = None
    surplus: str = ""  # why the autoscaler keeps new work off the node; "" if it does not
    ending: str = ""  # why the autoscaler ends the node; "" if it does not
    order: Order = Order.UNCORDON
    told: Driving | None = None  # what the node's driver was told; None if this supervisor has told it nothing
    tell_at_s: float = -math.inf  # when the driver may be told again
    probing_since_s: float | None = None
    has_answered: bool = False  # whether a probe of the node has ended, successfully or not
    # The conditions of GPUs after the last polls, by device.
    conditions: dict[str, Condition] = field(default_factory=dict)
    hosted: dict[str, HostedVgpu] = field(default_factory=dict)  # vGPUs whose host is in the cluster, by device
    lost: str = ""  # which device's Xid made this supervisor drain the node, as text; "" for none
    unseen_polls: int = 0  # failed polls in a row
    unseen_reason: str = ""  # why the last poll failed
    # Devices that the last probe listed and the last poll did not, or the reverse.
    unmatched: frozenset[str] = frozenset()
    leaves_s: float | None = None  # when the node ends; only an estimate before its clock is known; None if it stays
    # how far the node's clock is behind the supervisor's clock; None before the first heartbeat
    skew_s: float | None = None
    withheld: dict[str, float] = field(default_factory=dict)  # until when a GPU counts as held by other Ray work
    hidden: dict[str, str] = field(default_factory=dict)  # why Ray does not assign a device, by device
    # The place of every GPU and slice. A device that Ray hides is its own unit, because a worker may hold it.
    places: dict[str, Place] = field(default_factory=dict)
    stations: list[Station] = field(default_factory=list)  # the node's places for worker processes

    def __post_init__(self) -> None:
        """List the node's stations."""
        self._list_stations()

    def update(self, ray: RayNode) -> bool:
        """Apply Ray's view of the node; return whether the view has changed."""
        before, self.ray = self.ray, ray
        if before == ray:
            return False
        if replace(before, free_cores=ray.free_cores, free_gpus=ray.free_gpus) != ray:
            self._list_stations()
        return True

    def report(self, node: Node) -> None:
        """Apply the report of the node's probes."""
        self.probed, self.probing_since_s, self.has_answered = node, None, True
        self._list_stations()

    def _list_stations(self) -> None:
        known = self.known
        units = (known.shown or _shown_by(known)).units(self.ray.gpus)
        self.hidden = {on_node(known.node, name): reason for name, reason in units.hidden.items()}
        self.places = {name: Place(name) for name in self.hidden} | {
            on_node(known.node, name): Place(f"{self.ray.node}#{number}", part)
            for number, unit in enumerate(units.units)
            for part, name in enumerate(unit)
        }
        self.stations = stations_of(self.node, self.ray.gpus, units)

    @property
    def ends_s(self) -> float | None:
        """When the node ends; None if the node stays, or if its clock is not known yet."""
        return None if self.skew_s is None else self.leaves_s

    @property
    def clock(self) -> str:
        """What is wrong with the node's clock; "" if nothing is."""
        if self.skew_s is None or abs(self.skew_s) < SKEW_MAX_S:
            return ""
        return f"its clock is {abs(self.skew_s):.0f} s {'behind' if self.skew_s > 0 else 'ahead'}"

    @property
    def ids(self) -> LogIds:
        """The node's ids, for the log."""
        return LogIds(node=self.ray.node)

    def record_of(self, device: str) -> DeviceRecord:
        """Return the record of one of the node's devices."""
        return self.quarantines.get(key_of(device, self.ray.node, self.ray.name), CLEAN)

    def set_record(self, device: str, record: DeviceRecord) -> None:
        """Change the record of one of the node's devices."""
        self.quarantines[key_of(device, self.ray.node, self.ray.name)] = record

    def quarantine_of(self, device: str) -> Quarantine | None:
        """Return the quarantine of one of the node's devices; None if the device is not in quarantine."""
        return self.record_of(device).quarantine

    def withhold(self, device: str, now_s: float) -> None:
        """Keep placement off a GPU for a while, because Ray assigned every other GPU of the node instead."""
        self.withheld[device] = now_s + WITHHELD_S

    def reopen(self, now_s: float) -> bool:
        """Open the GPUs that were withheld for long enough; return whether there are any."""
        before = len(self.withheld)
        self.withheld = {device: until_s for device, until_s in self.withheld.items() if now_s < until_s}
        return len(self.withheld) < before

    @property
    def known(self) -> Node:
        """The node as probed, or as known without a probe."""
        return self.probed or self.ray.unprobed()

    @property
    def is_known(self) -> bool:
        """Whether the first probe of the node has ended, or is not needed because the node has no GPUs."""
        return self.has_answered or not (self.ray.gpus or self.ray.unlisted)

    def is_probing(self, now_s: float) -> bool:
        """Whether a probe that ``probe_again`` ordered is under way."""
        return self.probing_since_s is not None and now_s - self.probing_since_s < PROBE_AGAIN_S

    def probe_again(self, now_s: float, *, from_scratch: bool = True) -> Probe:
        """Return the order for another probe, and record that this probe is under way.

        ``from_scratch`` bypasses caches; otherwise each GPU only decodes one frame, and no NVENC session opens.
        """
        self.probing_since_s = now_s
        return Probe(self.ray.node, again=from_scratch)

    @property
    def state(self) -> DeviceState:
        """Whether the node takes new work; a drain by Ray counts too."""
        if self.ray.draining or self.lost or self.ending:
            return DeviceState.DRAINING
        is_surplus = self.surplus and self.order is Order.UNCORDON
        return DeviceState.CORDONED if is_surplus else ORDERED_STATES[self.order]

    @property
    def driving(self) -> Driving:
        """What a driver of a queue on this node may do.

        The driver of a surplus node still claims jobs; a node on which a job runs does not end.
        """
        if self.state is DeviceState.DRAINING:
            return Driving.RESTS
        return Driving.HOLDS if self.order is Order.CORDON else Driving.CLAIMS

    @property
    def may_drive(self) -> bool:
        """Whether the node may have a driver; true until a probe finds none."""
        return self.probed is None or bool(self.probed.keeper)

    def is_untold(self, now_s: float) -> bool:
        """Whether the driver must be told what it may do.

        Before the first probe has ended, only a restriction is sent. Nothing is sent to a node that Ray drains, because
        Ray starts no task there; jobs of the driver pass the order on (``Grants.word``).
        """
        is_due = now_s >= self.tell_at_s and (self.has_answered or self.driving is not Driving.CLAIMS)
        return is_due and self.may_drive and self.told is not self.driving and not self.ray.draining

    @property
    def gpus(self) -> tuple[Device, ...]:
        """All GPUs and slices of the node, as far as they are known."""
        return self.known.gpus

    def gpu(self, device: str) -> Device | None:
        """Return a GPU or slice of the node; None if it is not known."""
        return next((each for each in self.gpus if each.device == device), None)

    @property
    def is_polled(self) -> bool:
        """Whether the node's GPUs are polled: not while the node drains, because a watched GPU cannot be reset."""
        return bool(self.gpus) and self.state is not DeviceState.DRAINING

    @property
    def node(self) -> Node:
        """The node's inventory within Ray's limits, with its current conditions and quarantines."""
        known = self.known
        state = self.state
        surplus = self.surplus if state is DeviceState.CORDONED else ""
        by_order = "" if state is DeviceState.OPEN else f"node {self.ray.name} is {state.value}"
        reason = self.lost or self.ending or surplus or by_order
        devices = [
            replace(device, engines={**device.engines, Engine.CPU: self.ray.cores})
            for device in known.devices
            if device.kind.is_processor
        ]
        devices += [self._offered(device) for device in self.gpus]
        return replace(
            known,
            devices=tuple(devices),
            preemptible=self.ray.preemptible,
            memory_bytes=self.ray.memory_bytes or known.memory_bytes,
            state=state,
            state_reason=reason,
        )

    def _offered(self, device: Device) -> Device:
        if self.ray.gpus == 0:
            return cordoned(device, "Ray was started without GPUs on its node")
        condition = self.conditions.get(device.device)
        hosted = self.hosted.get(device.device)
        device = device if hosted is None else with_hosted(device, hosted)
        polled = device if condition is None else with_condition(device, condition)
        quarantine = self.quarantine_of(device.device)
        if quarantine is not None:
            polled = replace(polled, state=DeviceState.QUARANTINED, state_reason=quarantine.reason)
        withheld = "other Ray work holds it" if device.device in self.withheld else None
        hidden = self.hidden.get(device.device, withheld)
        return polled if hidden is None else cordoned(polled, hidden)

    @property
    def summary(self) -> str:
        """The node's devices in a few words."""
        node = self.node
        return ", ".join([*map(_words, node.devices), *([f"{len(node.dlas)} DLA"] if node.dlas else [])])


def _shown_by(node: Node) -> ShownGpus:
    """Return a node's GPUs; if NVML gave no names, derive the GPUs from the node's devices."""
    devices = node.gpus
    gpus = []
    for index, gpu in enumerate(dict.fromkeys(device.parent or device.device for device in devices)):
        slices = tuple(NamedSlice(device.device, 0, 0) for device in devices if device.parent == gpu)
        gpus.append(NamedGpu(index=index, uuid=gpu, is_cut=bool(slices), slices=slices))
    return ShownGpus(tuple(gpus))


def _words(device: Device) -> str:
    if device.kind.is_processor:
        return f"{device.engines.get(Engine.CPU, 0)} cores"
    counts = ", ".join(f"{count} {engine.value.upper()}" for engine, count in device.engines.items() if count)
    share = f", {device.share:.0%} of them" if device.share < 1 and counts else ""
    return f"{device.name} ({counts or 'no engines'}{share}{', of an unknown share' if device.share_unknown else ''})"


class Nodes:
    """Every live node, in the order of arrival."""

    def __init__(self) -> None:
        self._books: dict[NodeId, NodeBook] = {}
        self._named: Counter[str] = Counter()
        self.quarantines: dict[str, DeviceRecord] = {}
        self.quarantines_kept_s = 0.0  # when the quarantines were last stored for the next supervisor

    def __iter__(self) -> Iterator[NodeBook]:
        return iter(self._books.values())

    def __len__(self) -> int:
        return len(self._books)

    def __getitem__(self, node: NodeId) -> NodeBook:
        return self._books[node]

    def get(self, node: NodeId) -> NodeBook | None:
        """Return the live node with this id."""
        return self._books.get(node)

    def title(self, node: NodeId) -> str:
        """Return a node's display name: the host name, with the node's id if several nodes share the host."""
        book = self._books.get(node)
        if book is None:
            return node
        return book.ray.name if self._named[book.ray.name] == 1 else f"{book.ray.name}[{node[:8]}]"

    def find(self, wanted: str) -> NodeBook | None:
        """Return the only node with this id, id prefix, host name or title; None if no node or several match."""
        if (named := self._books.get(NodeId(wanted))) is not None:
            return named
        found = [book for name, book in self._books.items() if wanted in (book.ray.name, self.title(name))]
        found = found or [book for name, book in self._books.items() if wanted and name.startswith(wanted)]
        return found[0] if len(found) == 1 else None

    @property
    def orders(self) -> dict[NodeId, Order]:
        """The user's order for each node that is cordoned or draining."""
        return {book.ray.node: book.order for book in self._books.values() if book.order is not Order.UNCORDON}

    def is_left(self, node: NodeId) -> bool:
        """Return whether Ray is draining this node but not all nodes."""
        leaving = {book.ray.node for book in self if book.ray.draining}
        return node in leaving and len(leaving) < len(self)

    def see(self, nodes: Iterable[RayNode]) -> tuple[list[NodeBook], list[NodeBook], bool]:
        """Update the live nodes; return the new nodes, the lost nodes, and whether anything changed."""
        alive = {node.node: node for node in nodes}
        went = [self._books.pop(name) for name in list(self._books) if name not in alive]
        came = []
        is_changed = bool(went)
        for name, ray in alive.items():
            if (book := self._books.get(name)) is not None:
                is_changed |= book.update(ray)
            else:
                self._books[name] = NodeBook(ray, self.quarantines)
                came.append(self._books[name])
        self._named = Counter(book.ray.name for book in self)
        return came, went, is_changed or bool(came)
