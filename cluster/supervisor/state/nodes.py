"""The nodes of a cluster: alive or not, probed or not, open for work or not."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ...logs.entry import LogIds
from ...placement.model.inventory import Device, DeviceState, Node, cordoned
from ...probes.report.device_report import DeviceKind
from ...probes.report.engines import Engine
from ...probes.report.gpu_identity import NamedGpu, NamedSlice, ShownGpus, Units, on_node
from ...probes.vgpu.hosted import HostedVgpu
from .conditions import Condition, with_condition, with_hosted
from .events import Order, Probe
from .messages import RayNode
from .quarantine import DeviceRecord, Quarantine, Quarantines, key_of
from .stations import Station, stations_of

PROBE_AGAIN_S = 60.0
"""A probe that has not answered for this long may be requested again."""


ORDERED_STATES = {
    Order.CORDON: DeviceState.CORDONED,
    Order.DRAIN: DeviceState.DRAINING,
    Order.UNCORDON: DeviceState.OPEN,
}
"""What becomes of a node by a user's last order for it."""


NO_UNITS = Units((), {}, counts_slices=False)


@dataclass(slots=True)
class NodeBook:
    """One live node. ``has_answered``: a probe of it has ended, well or badly.

    ``conditions`` are those of its GPUs, by device. ``lost`` says what drains it all, "" for nothing. ``unseen_polls``
    counts failed polls in a row, ``unseen_reason`` the last one's. ``unmatched`` are devices that only the last probe
    or only the last poll listed. ``quarantines`` are those of the cluster's devices. ``leaves_s`` is when the
    node ends, if it does. ``surplus`` says why the autoscaler keeps new work away, and ``given_up`` why it ends the
    node; "" where it does not.
    """

    ray: RayNode
    quarantines: Quarantines = field(default_factory=Quarantines)
    probed: Node | None = None
    surplus: str = ""
    given_up: str = ""
    order: Order = Order.UNCORDON
    probing_since_s: float | None = None
    has_answered: bool = False
    conditions: dict[str, Condition] = field(default_factory=dict)
    hosted: dict[str, HostedVgpu] = field(default_factory=dict)  # vGPUs whose host is in the cluster, by device
    lost: str = ""
    unseen_polls: int = 0
    unseen_reason: str = ""
    unmatched: frozenset[str] = frozenset()
    leaves_s: float | None = None
    _seen: tuple[RayNode | None, Node | None] = (None, None)
    _known_for: tuple[RayNode, Node | None] | None = None
    _units: Units = NO_UNITS
    _stations: list[Station] = field(default_factory=list)

    @property
    def ids(self) -> LogIds:
        """Its ids, for the log."""
        return LogIds(node=self.ray.node)

    @property
    def has_order(self) -> bool:
        """Whether a user keeps work away from it."""
        return self.order is not Order.UNCORDON

    def key_of(self, device: str) -> str:
        """Return the name of one of its devices in ``quarantines``."""
        return key_of(device, self.ray.node, self.ray.name)

    def record_of(self, device: str) -> DeviceRecord:
        """Return what is held against one of its devices."""
        return self.quarantines.of(self.key_of(device))

    def quarantine_of(self, device: str) -> Quarantine | None:
        """Return the quarantine that one of its devices is in."""
        return self.record_of(device).quarantine

    def report(self, node: Node) -> None:
        """Apply what its probes found."""
        self.probed, self.probing_since_s, self.has_answered = node, None, True

    @property
    def is_known(self) -> bool:
        """Whether its GPUs are as they will be: none is still to be listed, or to be probed for the first time."""
        return self.has_answered or not (self.ray.gpus or self.ray.unlisted)

    def is_probing(self, now_s: float) -> bool:
        """Whether a probe is under way."""
        return self.probing_since_s is not None and now_s - self.probing_since_s < PROBE_AGAIN_S

    def probe_again(self, now_s: float, *, from_scratch: bool = True) -> Probe:
        """Return the order of another probe, which is under way from now on.

        Not ``from_scratch``, it has each GPU decode one frame, and no NVENC takes a session.
        """
        self.probing_since_s = now_s
        return Probe(self.ray.node, again=from_scratch)

    @property
    def state(self) -> DeviceState:
        """Whether it takes new work; Ray's own drain counts."""
        if self.ray.draining or self.lost or self.given_up:
            return DeviceState.DRAINING
        is_surplus = self.surplus and self.order is Order.UNCORDON
        return DeviceState.CORDONED if is_surplus else ORDERED_STATES[self.order]

    @property
    def gpus(self) -> tuple[Device, ...]:
        """All its GPUs and slices, as probed."""
        known = self.probed or self.ray.unprobed()
        return tuple(device for device in known.devices if device.kind is not DeviceKind.CPU)

    @property
    def is_polled(self) -> bool:
        """Whether its GPUs are polled: not while it drains, since a watched GPU cannot be reset."""
        return bool(self.gpus) and self.state is not DeviceState.DRAINING

    @property
    def stations(self) -> list[Station]:
        """Its places for worker processes."""
        self._look_up()
        return self._stations

    @property
    def units(self) -> Units:
        """What each of Ray's GPUs stands for there, by the devices' cluster identities."""
        self._look_up()
        return self._units

    def _look_up(self) -> None:
        if self._seen[0] is self.ray and self._seen[1] is self.probed:
            return
        self._seen = (self.ray, self.probed)
        key = (replace(self.ray, free_cores=0), self.probed)
        if self._known_for != key:
            known = self.probed or self.ray.unprobed()
            self._known_for = key
            self._units = _in_cluster(known, (known.shown or _shown_by(known)).units(self.ray.gpus))
            self._stations = stations_of(self.node, self.ray.gpus, self._units)

    @property
    def node(self) -> Node:
        """Its inventory: the CPU alone until it was probed.

        Ray decides how many CPUs and how much memory it may use (its owner may have set that), and which GPUs.
        """
        known = self.probed or self.ray.unprobed()
        reason = "" if self.state is DeviceState.OPEN else f"node {self.ray.name} is {self.state.value}"
        reason = self.lost or self.given_up or (self.surplus if self.state is DeviceState.CORDONED else "") or reason
        devices = [
            replace(device, engines={**device.engines, Engine.CPU: self.ray.cores})
            for device in known.devices
            if device.kind is DeviceKind.CPU
        ]
        devices += [self._offered(device) for device in self.gpus]
        return replace(
            known,
            devices=tuple(devices),
            preemptible=self.ray.preemptible,
            memory_bytes=self.ray.memory_bytes or known.memory_bytes,
            state=self.state,
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
        hidden = self.units.hidden.get(device.device)
        return polled if hidden is None else cordoned(polled, hidden)

    @property
    def summary(self) -> str:
        """Its devices in a few words."""
        dlas = len(self.node.dlas)
        return ", ".join([*map(_words, self.node.devices), *([f"{dlas} DLA"] if dlas else [])])


@dataclass(frozen=True, slots=True)
class Place:
    """A device's place in what Ray gives out: which unit, and which part of it."""

    unit: str
    part: int = 0


def places_of(node: NodeBook) -> dict[str, Place]:
    """Return the place of every GPU and slice of a node: {device: place}.

    Devices that Ray is not thought to give out have a place too, in a unit of their own: a worker may have got one
    anyway.
    """
    offered = {
        name: Place(f"{node.ray.node}#{number}", part)
        for number, unit in enumerate(node.units.units)
        for part, name in enumerate(unit)
    }
    return {**{name: Place(name) for name in node.units.hidden}, **offered}


def _shown_by(node: Node) -> ShownGpus:
    """Return the GPUs that a node's devices are or belong to, where NVML gave no names."""
    devices = [device for device in node.devices if device.kind is not DeviceKind.CPU]
    gpus = []
    for index, gpu in enumerate(dict.fromkeys(device.parent or device.device for device in devices)):
        slices = tuple(NamedSlice(device.device, 0, 0) for device in devices if device.parent == gpu)
        gpus.append(NamedGpu(index=index, uuid=gpu, is_cut=bool(slices), slices=slices))
    return ShownGpus(tuple(gpus))


def _in_cluster(node: Node, units: Units) -> Units:
    return Units(
        tuple(tuple(on_node(node.node, name) for name in unit) for unit in units.units),
        {on_node(node.node, name): reason for name, reason in units.hidden.items()},
        units.counts_slices,
    )


def _words(device: Device) -> str:
    if device.kind is DeviceKind.CPU:
        return f"{device.engines.get(Engine.CPU, 0)} cores"
    counts = ", ".join(f"{count} {engine.value.upper()}" for engine, count in device.engines.items() if count)
    share = f", {device.share:.0%} of them" if device.share < 1 and counts else ""
    return f"{device.name} ({counts or 'no engines'}{share}{', of an unknown share' if device.share_unknown else ''})"


class Nodes:
    """Every live node, in the order of arrival."""

    def __init__(self) -> None:
        self._books: dict[str, NodeBook] = {}
        self._named: Counter[str] = Counter()
        self.quarantines = Quarantines()

    def __iter__(self) -> Iterator[NodeBook]:
        return iter(self._books.values())

    def __len__(self) -> int:
        return len(self._books)

    def get(self, node: str) -> NodeBook | None:
        """Return a live node by its id."""
        return self._books.get(node)

    def title(self, node: str) -> str:
        """Return a node's display name: its host's, with the id where several nodes share a host."""
        book = self._books.get(node)
        if book is None:
            return node
        return book.ray.name if self._named[book.ray.name] == 1 else f"{book.ray.name}[{node[:8]}]"

    def find(self, wanted: str) -> NodeBook | None:
        """Return the node that a user names by id, id prefix, host name or title; None if none or several match."""
        if wanted in self._books:
            return self._books[wanted]
        found = [book for name, book in self._books.items() if wanted in (book.ray.name, self.title(name))]
        found = found or [book for name, book in self._books.items() if wanted and name.startswith(wanted)]
        return found[0] if len(found) == 1 else None

    def is_left(self, node: str) -> bool:
        """Return whether Ray drains a node, and another one stays: then what may run on any moves there."""
        leaving = {book.ray.node for book in self if book.ray.draining}
        return node in leaving and len(leaving) < len(self)

    def see(self, nodes: Iterable[RayNode]) -> tuple[list[NodeBook], list[NodeBook], set[str]]:
        """Update which nodes are alive; return those that came, those that went, and the ids of all that changed."""
        alive = {node.node: node for node in nodes}
        went = [self._books.pop(name) for name in list(self._books) if name not in alive]
        came = []
        changed = {book.ray.node for book in went}
        for name, ray in alive.items():
            if name not in self._books:
                self._books[name] = NodeBook(ray, self.quarantines)
                came.append(self._books[name])
            if self._books[name].ray != ray:
                changed.add(name)
            self._books[name].ray = ray
        self._named = Counter(book.ray.name for book in self)
        return came, went, changed
