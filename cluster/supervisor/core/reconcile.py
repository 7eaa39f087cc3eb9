"""What could be used right now: the inventory as it is, cut down to what Ray would really give us."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ...placement.model.inventory import Device, DeviceState, Dla, Node
from ...probes.report.device_report import DeviceKind
from ...probes.report.engines import Engine
from ..state.nodes import NodeBook, Place, places_of
from ..state.stations import SeatBook, SeatState

__all__ = ["effective_nodes", "reservable_cores"]

NO_SEAT = "Ray gives other GPUs of its node to workers"


def effective_nodes(nodes: Iterable[NodeBook], seats: Mapping[str, SeatBook]) -> Iterator[Node]:
    """Yield each node with the slots that its processor really has for us, and its quarantined devices marked.

    A processor's slots are those of the workers that are there, and for empty seats the cores that nobody else has
    reserved. Where no worker of ours is anywhere, all cores count: then one that shares them is better than none.
    """
    seats_by_node: dict[str, list[SeatBook]] = {}
    for book in seats.values():
        seats_by_node.setdefault(book.seat.node, []).append(book)
    have_any = any(book.could_transcode for book in seats.values())
    for node in nodes:
        here = seats_by_node.get(node.ray.node, [])
        free = node.ray.free_cores if have_any else node.ray.cores
        known = node.node
        yield replace(
            known,
            devices=tuple(_effective(device, here, free) for device in _served(node, known.devices, here)),
            dlas=tuple(_effective_dla(dla, here) for dla in known.dlas),
        )


def _served(node: NodeBook, devices: tuple[Device, ...], seats: list[SeatBook]) -> Iterator[Device]:
    """Yield a node's devices, those of them marked that no worker of ours can get.

    Which GPU a worker gets is Ray's choice, and known once it has taken one: what a worker says outranks what Ray was
    thought to have been shown. A seat that has not had any device yet may stand for one that no seat has; what is left
    then has no seat, because Ray gives others, or because workers in such seats do not even start.
    """
    seats = [book for book in seats if book.seat.takes_gpu]
    taken = {book.device for book in seats if book.device}
    places = places_of(node)
    held = _units_held(seats, places)
    free = [
        book for book in seats if not book.device and book.facts is None and book.state is not SeatState.QUARANTINED
    ]
    broken = next((book.reason for book in seats if not book.device and book.state is SeatState.QUARANTINED), "")
    for device in devices:
        place = places.get(device.device)
        if device.device in taken and device.state_reason == node.units.hidden.get(device.device):
            yield replace(device, state=DeviceState.OPEN, state_reason="")
        elif device.state is not DeviceState.OPEN or place is None or device.device in taken or not seats:
            yield device
        elif (seat := _seat_for(place, free, held)) is not None:
            free.remove(seat)
            yield device
        elif broken:
            yield replace(device, state=DeviceState.QUARANTINED, state_reason=broken)
        else:
            yield replace(device, state=DeviceState.CORDONED, state_reason=NO_SEAT)


def _units_held(seats: list[SeatBook], places: Mapping[str, Place]) -> dict[str, str]:
    """Return which of Ray's GPUs each bundle has, as far as its workers have told: {bundle: unit}."""
    return {book.seat.bundle: places[book.device].unit for book in seats if book.device in places}


def _seat_for(place: Place, free: list[SeatBook], held: Mapping[str, str]) -> SeatBook | None:
    is_held = place.unit in held.values()
    for book in free:
        unit = held.get(book.seat.bundle)
        if book.seat.part == place.part and (unit == place.unit or (unit is None and not is_held)):
            return book
    return None


def _effective_dla(dla: Dla, seats: list[SeatBook]) -> Dla:
    for book in seats:
        if book.seat.seat == dla.device and book.state is SeatState.QUARANTINED:
            return replace(dla, state=DeviceState.QUARANTINED, state_reason=book.reason)
    return dla


def _effective(device: Device, seats: list[SeatBook], free_cores: int) -> Device:
    if device.kind is DeviceKind.CPU:
        slots = _slots([book for book in seats if book.seat.is_processor], free_cores)
        slots += sum(book.reserved_cores for book in seats if book.seat.takes_gpu and book.state in _HOLDING)
        return replace(device, engines={**device.engines, Engine.CPU: slots})
    for book in seats:
        if book.device == device.device and book.state is SeatState.QUARANTINED:
            return replace(device, state=DeviceState.QUARANTINED, state_reason=book.reason)
    return device


_HOLDING = frozenset({SeatState.STARTING, SeatState.READY})
"""A GPU's worker in these holds the cores that encode what it decodes: they are the processor's, and not free."""


def _slots(seats: list[SeatBook], free_cores: int) -> int:
    slots = 0
    for book in seats:
        if book.state is SeatState.READY:
            slots += book.ready_slots
        elif book.state is SeatState.STARTING:
            slots += book.reserved_cores or book.seat.slots
        elif book.state is SeatState.RESERVING or book.unreserved_next:
            slots += book.seat.slots
        elif book.state in (SeatState.EMPTY, SeatState.RESTING):
            taken = min(book.seat.slots, max(0, free_cores))
            free_cores -= taken
            slots += taken
    return slots


def reservable_cores(book: SeatBook, wanted: int, free_cores: dict[str, int]) -> int:
    """Return how many cores a seat should reserve: those wanted, or what is free if that is less; takes them off.

    0 is no reservation of cores: the worker shares them with others. A processor's seat waits for cores where none is
    free; a GPU's takes its GPU at once, since what encodes beside it now will be placed anew. So does a DLA's: what
    decodes for a network is little beside the network.
    """
    if book.unreserved_next:
        return 0
    free = free_cores.get(book.seat.node, 0)
    cores = min(wanted, max(0, free)) if free > 0 or not book.seat.is_processor else wanted
    free_cores[book.seat.node] = free - cores
    return cores
