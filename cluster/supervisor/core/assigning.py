"""Assigns placed sessions to workers' slots."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

    Ready stations and those where the job holds slots come first. Sessions that fit no station are left out. ``places``
    are Ray's GPUs and slices, by node: two nodes of one host may list the same GPU.
    """
    books = list(stations)
    claims, free = _Claims(books, places), {book.station.station: _slots(book) for book in books}
    groups = _groups(books)
    held = {name: {each.station: slots for each, slots in job.held.items()} for name, job in jobs.items()}
    assigned = defaultdict[StationId, dict[str, int]](dict)
    for lane in lanes:
        left = lane.sessions
        group = groups[lane.node, lane.route.seat]
        for book in group.in_order(lane, held.get(lane.job, {})):
            name = book.station.station
            if not _fits(book, lane, claims):
                continue
            taken = min(left, free[name])
            here = assigned[name]
            here[lane.job] = here.get(lane.job, 0) + taken
            free[name] -= taken
            left -= taken
            if not free[name]:
                group.leave_out(book)
            if book.station.kind.takes_gpu:
                claims.take(book, lane.device)
            if not left:
                break
    return dict(assigned)


class _Group:
    """The stations of one seat on one node that are in use or may be."""

    def __init__(self) -> None:
        self.books: dict[StationId, StationBook] = {}  # ready ones first
        self.on: defaultdict[str, dict[StationId, StationBook]] = defaultdict(dict)  # by their device

    def in_order(self, lane: Lane, held: Mapping[StationId, int]) -> Iterator[StationBook]:
        """Yield them in the order in which a lane takes their slots; its job holds slots at those in ``held``."""
        mine, others = self.on.get(lane.device, {}), self.books
        first = [*mine.values(), *(others[name] for name in held if name in others and name not in mine)]
        if any(book.state is not StationState.READY for book in first):
            first = [*others.values()]
        if len(first) > 1:
            first.sort(key=partial(_order, lane, held))
        yield from first
        chosen = {book.station.station for book in first}
        yield from [book for name, book in others.items() if name not in chosen]

    def leave_out(self, book: StationBook) -> None:
        """Yield a station no more: its slots are all taken."""
        del self.books[book.station.station], self.on[book.device][book.station.station]


def _groups(books: Iterable[StationBook]) -> defaultdict[tuple[NodeId, str], _Group]:
    found = defaultdict[tuple[NodeId, str], _Group](_Group)
    for book in sorted(books, key=lambda each: (each.state is not StationState.READY, each.station.station)):
        if book.state not in _OUT_OF_USE and not book.outgoing and _slots(book):
            group = found[book.station.node, book.station.kind.seat]
            group.books[book.station.station] = group.on[book.device][book.station.station] = book
    return found


def _order(lane: Lane, held: Mapping[StationId, int], book: StationBook) -> tuple[bool, bool, int, str]:
    has_device, name = book.facts is not None and book.device == lane.device, book.station.station
    return (book.state is not StationState.READY, not has_device, -held.get(name, 0), name)


class _Claims:
    """The device of each station and the Ray GPU of each bundle, so that none is used twice."""

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
    """Return how many cores a station's process needs: one per slot, or its lanes' share beside a GPU.

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
