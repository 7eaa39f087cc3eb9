"""Assigns placed sessions to workers' slots."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import ceil

from ...placement.model.placement import Lane
from ...worker_names import NodeId, StationId
from ..state.clients import JobBook
from ..state.nodes import Place
from ..state.stations import StationBook, StationState

_OUT_OF_USE = frozenset({StationState.LEAVING, StationState.RESTING, StationState.QUARANTINED})


def assign_slots(
    lanes: Sequence[Lane],
    stations: Iterable[StationBook],
    jobs: Mapping[str, JobBook],
    places: Mapping[NodeId, Mapping[str, Place]],
) -> dict[StationId, dict[str, int]]:
    """Assign each lane's sessions to stations of its node that serve its device: {station: {job: slots}}.

    Ready stations come first, and those where the job already holds slots, so that nothing moves without need. Sessions
    that fit no station are left out. ``places`` say where Ray has each GPU and slice of a node; two nodes of one host
    may list the same GPU.
    """
    books = list(stations)
    claims, free = _Claims(books, places), {book.station.station: _slots(book) for book in books}
    usable = _by_seat(books)
    held = {name: {each.station: slots for each, slots in job.held.items()} for name, job in jobs.items()}
    assigned: dict[StationId, dict[str, int]] = {}
    for lane in lanes:
        left = lane.sessions
        for book in _in_order(usable[lane.node, lane.route.seat], lane, held.get(lane.job, {})):
            name = book.station.station
            taken = min(left, free[name])
            if taken <= 0 or not _fits(book, lane, claims):
                continue
            here = assigned.setdefault(name, {})
            here[lane.job] = here.get(lane.job, 0) + taken
            free[name] -= taken
            left -= taken
            if book.station.kind.takes_gpu:
                claims.take(book, lane.device)
            if not left:
                break
    return assigned


def _by_seat(books: Iterable[StationBook]) -> defaultdict[tuple[NodeId, str], list[StationBook]]:
    """Return the stations that are in use or may be, by node and seat: ready ones first."""
    found = defaultdict[tuple[NodeId, str], list[StationBook]](list)
    for book in sorted(books, key=lambda each: (each.state is not StationState.READY, each.station.station)):
        if book.state not in _OUT_OF_USE and not book.outgoing:
            found[book.station.node, book.station.kind.seat].append(book)
    return found


def _in_order(books: list[StationBook], lane: Lane, held: Mapping[StationId, int]) -> list[StationBook]:
    """Return stations in the order in which a lane takes their slots; its job holds slots at those in ``held``."""
    first = [each for each in books if each.station.station in held or each.device == lane.device]
    if not first:
        return books
    if all(book.state is StationState.READY for book in first):
        chosen = {book.station.station for book in first}
        first.sort(key=partial(_order, lane, held))
        return [*first, *(book for book in books if book.station.station not in chosen)]
    return sorted(books, key=partial(_order, lane, held))


def _order(lane: Lane, held: Mapping[StationId, int], book: StationBook) -> tuple[bool, bool, int, str]:
    has_device, name = book.facts is not None and book.device == lane.device, book.station.station
    return (book.state is not StationState.READY, not has_device, -held.get(name, 0), name)


class _Claims:
    """The device that each station has or will get, and the Ray GPU of each bundle, so that none serves two."""

    def __init__(self, books: Iterable[StationBook], places: Mapping[NodeId, Mapping[str, Place]]) -> None:
        self._places = places
        self._devices: dict[StationId, str] = {}  # by station
        self._units: dict[StationId, str] = {}  # by bundle
        self._taken: set[str] = set()  # units
        self._given: set[str] = set()  # devices
        for book in books:
            if book.facts is not None and book.station.kind.takes_gpu:
                self.take(book, book.device)

    def take(self, book: StationBook, device: str) -> None:
        self._devices[book.station.station] = device
        self._given.add(device)
        place = self._places.get(book.station.node, {}).get(device)
        if place is not None:
            self._units[book.station.station.bundle] = place.unit
            self._taken.add(place.unit)

    def can_get(self, book: StationBook, device: str) -> bool:
        """Return whether a station has a device or may get it: Ray chooses the GPU of a new bundle."""
        if book.station.station in self._devices:
            return self._devices[book.station.station] == device
        if device in self._given:
            return False
        place = self._places.get(book.station.node, {}).get(device, Place(device))
        unit = self._units.get(book.station.station.bundle)
        is_open = unit == place.unit or (unit is None and place.unit not in self._taken)
        return book.station.station.part == place.part and is_open


def _fits(book: StationBook, lane: Lane, claims: _Claims) -> bool:
    kind = book.station.kind
    if kind.takes_gpu:
        return claims.can_get(book, lane.device)
    return kind.is_processor or book.station.station == lane.device


def _slots(book: StationBook) -> int:
    if book.facts is not None:
        return book.facts.slots
    return book.reserved_cores if book.state is StationState.STARTING and book.reserved_cores else book.station.slots


def cores_for(book: StationBook, slots: Mapping[str, int], lanes: Sequence[Lane]) -> int:
    """Return how many cores a station's process needs: one per slot, or what a GPU's lanes use beside it.

    ``slots`` are {job: slots} assigned to the station.
    """
    if not book.station.kind.takes_gpu:
        return book.station.slots
    here = [lane for lane in lanes if lane.node == book.station.node and not lane.route.is_software]
    return ceil(
        sum(
            max((count * lane.cores / lane.sessions for lane in here if lane.job == job), default=0.0)
            for job, count in slots.items()
        )
    )
