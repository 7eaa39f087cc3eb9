"""The usable inventory: the devices that probes found, limited to what Ray can assign."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ...placement.model.inventory import Device, DeviceState, Inventory, Node, cordoned
from ...probes.report.engines import Engine
from ...worker_names import NodeId, StationId
from ..state.nodes import NodeBook, Place
from ..state.stations import Reserving, StationBook, StationState


def effective_nodes(nodes: Iterable[NodeBook], stations: Mapping[StationId, StationBook]) -> Iterator[Node]:
    """Yield each node with its usable CPU slots; quarantined devices are marked.

    A worker counts with its slots, an empty station with free cores. Before the first worker starts, all cores count as
    free.
    """
    by_node, has_any = stations_by_node(stations), any(book.could_transcode for book in stations.values())
    in_use = {book.device: book for book in stations.values() if book.device and book.facts and not book.is_holding}
    for node in nodes:
        here, known = by_node.get(node.ray.node, []), node.node
        free = node.ray.free_cores if has_any else node.ray.cores
        broken = [book for book in here if book.state is StationState.QUARANTINED]
        slots = _cpu_slots(here, free)
        yield replace(
            known,
            devices=tuple(_effective(device, broken, slots) for device in _served(node, known.devices, here, in_use)),
            dlas=tuple(_effective(dla, broken, slots) for dla in known.dlas),
        )


def stations_by_node(stations: Mapping[StationId, StationBook]) -> dict[NodeId, list[StationBook]]:
    """Return the stations of each node; nodes without stations are left out."""
    found: dict[NodeId, list[StationBook]] = {}
    for book in stations.values():
        found.setdefault(book.station.node, []).append(book)
    return found


def without_late_gpus(inventory: Inventory, stations: Iterable[StationBook]) -> Inventory:
    """Return the inventory without the GPUs that have no ready worker."""
    ready = {book.device for book in stations if book.state is StationState.READY}
    there = (
        tuple(each for each in node.devices if each.kind.is_processor or each.device in ready)
        for node in inventory.nodes
    )
    return Inventory(tuple(replace(node, devices=each) for node, each in zip(inventory.nodes, there, strict=True)))


def _served(
    node: NodeBook, devices: tuple[Device, ...], stations: list[StationBook], in_use: Mapping[str, StationBook]
) -> list[Device]:
    """Return a node's devices, first those with a worker; devices that no worker can get are closed.

    ``in_use`` maps each device that a worker uses to that worker's station: two Ray nodes of one host may list the same
    GPU.
    """
    expected = {book.expected for book in stations if not book.is_holding}
    found = (_closed_elsewhere(device, in_use.get(device.device)) for device in _reachable(node, devices, stations))
    return sorted(found, key=lambda device: device.device not in expected)


def _closed_elsewhere(device: Device, book: StationBook | None) -> Device:
    if book is None or book.station.node == device.node:
        return device
    return cordoned(device, in_use_by(book))


def in_use_by(book: StationBook) -> str:
    """Return why a device gets no other worker: the worker of ``book`` uses it."""
    return f"codecfleet's worker {book.worker} uses it already"


def _reachable(node: NodeBook, devices: tuple[Device, ...], stations: list[StationBook]) -> Iterator[Device]:
    """Yield a node's devices; devices that no worker can get are closed.

    Ray chooses a worker's GPU, which only the worker reports. A station that never had a GPU may get any free GPU.
    """
    stations = [book for book in stations if book.station.kind.takes_gpu]
    taken = {book.device for book in stations if book.device}
    places = node.places
    held = {book.station.station.bundle: places[book.device].unit for book in stations if book.device in places}
    unknown = [book for book in stations if not book.device]
    free = [book for book in unknown if book.facts is None and book.state is not StationState.QUARANTINED]
    broken = next((book.reason for book in unknown if book.state is StationState.QUARANTINED), "")
    for device in devices:
        place = places.get(device.device)
        if device.device in taken and device.state_reason == node.hidden.get(device.device):
            yield replace(device, state=DeviceState.OPEN, state_reason="")
        elif device.state is not DeviceState.OPEN or place is None or device.device in taken or not stations:
            yield device
        elif (station := _station_for(place, free, held)) is not None:
            free.remove(station)
            yield device
        elif broken:
            yield replace(device, state=DeviceState.QUARANTINED, state_reason=broken)
        else:
            reason = "Ray gives the workers other GPUs of this node"
            yield replace(device, state=DeviceState.CORDONED, state_reason=reason)


def _station_for(place: Place, free: list[StationBook], held: Mapping[StationId, str]) -> StationBook | None:
    is_held = place.unit in held.values()
    for book in free:
        unit = held.get(book.station.station.bundle) if held else None
        if book.station.station.part == place.part and (unit == place.unit or (unit is None and not is_held)):
            return book
    return None


def _effective(device: Device, broken: list[StationBook], cpu_slots: int) -> Device:
    if device.kind.is_processor:
        return replace(device, engines={**device.engines, Engine.CPU: cpu_slots})
    for book in broken:
        if device.device in (book.device, book.station.station):
            return replace(device, state=DeviceState.QUARANTINED, state_reason=book.reason)
    return device


def _cpu_slots(stations: list[StationBook], free_cores: int) -> int:
    """Return a node's CPU slots: the slots of CPU stations, and the cores that GPU workers hold for encoding."""
    slots = 0
    for book in stations:
        if book.station.kind.takes_gpu:
            slots += book.reserved_cores if book.state in (StationState.STARTING, StationState.READY) else 0
        elif not book.station.kind.is_processor:
            continue
        elif book.state is StationState.READY:
            slots += book.ready_slots
        elif book.state is StationState.STARTING:
            slots += book.reserved_cores or book.station.slots
        elif book.state is StationState.RESERVING or book.reserving is Reserving.NOTHING:
            slots += book.station.slots
        elif book.state in (StationState.EMPTY, StationState.RESTING):
            taken = min(book.station.slots, max(0, free_cores))
            free_cores -= taken
            slots += taken
    return slots


def reservable_cores(book: StationBook, wanted: int, free_cores: dict[NodeId, int]) -> int:
    """Return how many cores a station should reserve (at most ``wanted``), and deduct them from the free cores.

    If no core is free, a CPU station waits for ``wanted`` cores; any other station shares the cores of other workers.
    """
    if book.reserving is Reserving.NOTHING:
        return 0
    free = free_cores.get(book.station.node, 0)
    cores = min(wanted, max(0, free)) if free > 0 or not book.station.kind.is_processor else wanted
    free_cores[book.station.node] = free - cores
    return cores
