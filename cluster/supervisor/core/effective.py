"""What could be used right now: the inventory as it is, cut down to what Ray would really give us."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ...placement.model.inventory import Device, DeviceState, Dla, Node
from ...probes.report.device_report import DeviceKind
from ...probes.report.engines import Engine
from ..state.nodes import NodeBook, Place, places_of
from ..state.stations import StationBook, StationState

__all__ = ["effective_nodes", "reservable_cores"]

NO_SEAT = "Ray gives other GPUs of its node to workers"


def effective_nodes(nodes: Iterable[NodeBook], stations: Mapping[str, StationBook]) -> Iterator[Node]:
    """Yield each node with the slots that its processor really has for us, and its quarantined devices marked.

    A processor's slots are those of the workers that are there, and for empty seats the cores that nobody else has
    reserved. Where no worker of ours is anywhere, all cores count: then one that shares them is better than none.
    """
    stations_by_node: dict[str, list[StationBook]] = {}
    for book in stations.values():
        stations_by_node.setdefault(book.station.node, []).append(book)
    have_any = any(book.could_transcode for book in stations.values())
    for node in nodes:
        here = stations_by_node.get(node.ray.node, [])
        free = node.ray.free_cores if have_any else node.ray.cores
        known = node.node
        yield replace(
            known,
            devices=tuple(_effective(device, here, free) for device in _served(node, known.devices, here)),
            dlas=tuple(_effective_dla(dla, here) for dla in known.dlas),
        )


def _served(node: NodeBook, devices: tuple[Device, ...], stations: list[StationBook]) -> Iterator[Device]:
    """Yield a node's devices, those of them marked that no worker of ours can get.

    Which GPU a worker gets is Ray's choice, and known once it has taken one: what a worker says outranks what Ray was
    thought to have been shown. A seat that has not had any device yet may stand for one that no seat has; what is left
    then has no seat, because Ray gives others, or because workers in such seats do not even start.
    """
    stations = [book for book in stations if book.station.takes_gpu]
    taken = {book.device for book in stations if book.device}
    places = places_of(node)
    held = _units_held(stations, places)
    free = [
        book
        for book in stations
        if not book.device and book.facts is None and book.state is not StationState.QUARANTINED
    ]
    broken = next((book.reason for book in stations if not book.device and book.state is StationState.QUARANTINED), "")
    for device in devices:
        place = places.get(device.device)
        if device.device in taken and device.state_reason == node.units.hidden.get(device.device):
            yield replace(device, state=DeviceState.OPEN, state_reason="")
        elif device.state is not DeviceState.OPEN or place is None or device.device in taken or not stations:
            yield device
        elif (station := _station_for(place, free, held)) is not None:
            free.remove(station)
            yield device
        elif broken:
            yield replace(device, state=DeviceState.QUARANTINED, state_reason=broken)
        else:
            yield replace(device, state=DeviceState.CORDONED, state_reason=NO_SEAT)


def _units_held(stations: list[StationBook], places: Mapping[str, Place]) -> dict[str, str]:
    """Return which of Ray's GPUs each bundle has, as far as its workers have told: {bundle: unit}."""
    return {book.station.bundle: places[book.device].unit for book in stations if book.device in places}


def _station_for(place: Place, free: list[StationBook], held: Mapping[str, str]) -> StationBook | None:
    is_held = place.unit in held.values()
    for book in free:
        unit = held.get(book.station.bundle)
        if book.station.part == place.part and (unit == place.unit or (unit is None and not is_held)):
            return book
    return None


def _effective_dla(dla: Dla, stations: list[StationBook]) -> Dla:
    for book in stations:
        if book.station.station == dla.device and book.state is StationState.QUARANTINED:
            return replace(dla, state=DeviceState.QUARANTINED, state_reason=book.reason)
    return dla


def _effective(device: Device, stations: list[StationBook], free_cores: int) -> Device:
    if device.kind is DeviceKind.CPU:
        slots = _slots([book for book in stations if book.station.is_processor], free_cores)
        slots += sum(book.reserved_cores for book in stations if book.station.takes_gpu and book.state in _HOLDING)
        return replace(device, engines={**device.engines, Engine.CPU: slots})
    for book in stations:
        if book.device == device.device and book.state is StationState.QUARANTINED:
            return replace(device, state=DeviceState.QUARANTINED, state_reason=book.reason)
    return device


_HOLDING = frozenset({StationState.STARTING, StationState.READY})
"""A GPU's worker in these holds the cores that encode what it decodes: they are the processor's, and not free."""


def _slots(stations: list[StationBook], free_cores: int) -> int:
    slots = 0
    for book in stations:
        if book.state is StationState.READY:
            slots += book.ready_slots
        elif book.state is StationState.STARTING:
            slots += book.reserved_cores or book.station.slots
        elif book.state is StationState.RESERVING or book.unreserved_next:
            slots += book.station.slots
        elif book.state in (StationState.EMPTY, StationState.RESTING):
            taken = min(book.station.slots, max(0, free_cores))
            free_cores -= taken
            slots += taken
    return slots


def reservable_cores(book: StationBook, wanted: int, free_cores: dict[str, int]) -> int:
    """Return how many cores a seat should reserve: those wanted, or what is free if that is less; takes them off.

    0 is no reservation of cores: the worker shares them with others. A processor's seat waits for cores where none is
    free; a GPU's takes its GPU at once, since what encodes beside it now will be placed anew. So does a DLA's: what
    decodes for a network is little beside the network.
    """
    if book.unreserved_next:
        return 0
    free = free_cores.get(book.station.node, 0)
    cores = min(wanted, max(0, free)) if free > 0 or not book.station.is_processor else wanted
    free_cores[book.station.node] = free - cores
    return cores
