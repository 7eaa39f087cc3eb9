"""Assigns placed sessions to workers' slots."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from math import ceil
from operator import attrgetter

from ...placement.model.placement import Lane
from ...probes.report.device_kinds import DeviceKind, Route
from ...worker_names import NodeId, StationId, WorkerId
from ..state.clients import JobBook
from ..state.nodes import Place
from ..state.stations import StationBook, StationState

_OUT_OF_USE = frozenset({StationState.LEAVING, StationState.RESTING, StationState.QUARANTINED})
_Held = dict[StationId, int]


def assign_slots(
    lanes: Sequence[Lane],
    stations: Iterable[StationBook],
    jobs: Mapping[str, JobBook],
    places: Mapping[NodeId, Mapping[str, Place]],
) -> tuple[dict[StationId, dict[str, int]], dict[StationId, str]]:
    """Assign each lane's sessions to stations that serve the lane's device on its node.

    Return {station: {job: slots}} and {station: GPU}. Ready stations, and stations where the job holds slots, come
    first. Sessions that fit no station are left out.
    ``places`` maps each node's GPUs and slices to places among Ray's GPUs; two nodes of one host may list the same GPU.
    """
    books = list(stations)
    claims, groups, assigned = _Claims(books, places), _groups(books), defaultdict[StationId, dict[str, int]](dict)
    seats = {id(route): route.seat for route in Route}  # enums hash slowly
    at = {name: group for group in groups.values() for name in group.books}
    free = {name: _slots(group.books[name]) for name, group in at.items()}
    for job, lanes_of_job in groupby(lanes, key=attrgetter("job")):
        held = _held_in(jobs[job].held, at) if job in jobs else {}
        for lane in lanes_of_job:
            left, group = lane.sessions, groups.get((lane.node, seats[id(lane.route)]))
            if group is None:
                continue
            for book in group.in_order(lane.device, held.get(group, {})):
                name = book.station.station
                room = free[name]
                if not room or not _serves(book, group.kind, lane.device, claims):
                    continue
                taken = min(left, room)
                slots = assigned[name]
                slots[job] = slots.get(job, 0) + taken
                free[name] = room - taken
                if taken == room:
                    del group.books[name]
                left -= taken
                if not left:
                    break
    return dict(assigned), claims.devices


def _held_in(held: Mapping[WorkerId, int], at: Mapping[StationId, "_Group"]) -> dict["_Group", _Held]:
    """Return a job's slots by group; ``at`` maps each station to its group."""
    found: dict[_Group, _Held] = {}
    for worker, slots in held.items():
        station = worker.station
        if (group := at.get(station)) is not None:
            found.setdefault(group, {})[station] = slots
    return found


class _Group:
    """The usable stations on one node with the same seat."""

    def __init__(self, kind: DeviceKind) -> None:
        self.kind = kind
        self.books: dict[StationId, StationBook] = {}  # stations with free slots, ready ones first
        self.on: defaultdict[str, list[StationBook]] = defaultdict(list)  # the stations of each device

    def in_order(self, device: str, held: _Held) -> Iterable[StationBook]:
        """Return the stations, the best one first, for a job that holds ``held``; a station may occur twice."""
        if not held and device not in self.on:
            return [*self.books.values()]
        first = [*self.on.get(device, ()), *(self.books[name] for name in held if name in self.books)]
        if any(book.state is not StationState.READY for book in first):
            return sorted(self.books.values(), key=partial(_order, device, held))
        if len(first) > 1:
            first.sort(key=partial(_order, device, held))
        return [*first, *self.books.values()]


def _groups(books: Iterable[StationBook]) -> dict[tuple[NodeId, str], _Group]:
    found: dict[tuple[NodeId, str], _Group] = {}
    for book in sorted(books, key=lambda each: (_rank(each), each.station.station)):
        if book.state not in _OUT_OF_USE and not book.outgoing and not book.is_holding and _slots(book):
            kind = book.station.kind
            key = (book.station.node, kind.seat)
            group = found.get(key) or found.setdefault(key, _Group(kind))
            group.books[book.station.station] = book
            group.on[book.expected or book.device].append(book)
    return found


def _rank(book: StationBook) -> int:
    """Return 0 for a ready worker, 1 for a worker that is not ready, 2 for no worker."""
    return 2 if book.state is StationState.EMPTY else int(book.state is not StationState.READY)


def _order(device: str, held: _Held, book: StationBook) -> tuple[int, bool, int, str]:
    has_device, name = book.expected == device, book.station.station
    return (_rank(book), not has_device, -held.get(name, 0), name)


class _Claims:
    """Keeps a device, or one of Ray's GPUs, from being assigned twice."""

    def __init__(self, books: Iterable[StationBook], places: Mapping[NodeId, Mapping[str, Place]]) -> None:
        self._places = places
        self.devices: dict[StationId, str] = {}  # the device given to each station
        self._units: dict[StationId, str] = {}  # the unit (see ``Place``) of each bundle
        self._taken: set[str] = set()  # units in use
        self._given: set[str] = set()  # devices in use
        gpus = (book for book in books if book.station.kind.takes_gpu and book.expected)
        for book in sorted(gpus, key=lambda each: each.facts is None):
            # A starting worker gets a different GPU than expected if a ready worker has the expected one.
            if book.facts is not None:
                self._take(book, book.expected)
            else:
                self.claim(book, book.expected)

    def claim(self, book: StationBook, device: str) -> bool:
        """Give a device to a station that may get it; return whether the station has the device."""
        has = self.devices.get(book.station.station)
        if has is not None:
            return has == device
        if not self._can_get(book, device):
            return False
        self._take(book, device)
        return True

    def _take(self, book: StationBook, device: str) -> None:
        self.devices[book.station.station] = device
        self._given.add(device)
        place = self._places.get(book.station.node, {}).get(device)
        if place is not None:
            self._units[book.station.station.bundle] = place.unit
            self._taken.add(place.unit)

    def _can_get(self, book: StationBook, device: str) -> bool:
        """Return whether a station without a device may get ``device``: in a new bundle, any GPU that is not in use."""
        if device in self._given:
            return False
        place = self._places.get(book.station.node, {}).get(device, Place(device))
        unit = self._units.get(book.station.station.bundle)
        is_open = unit == place.unit or (unit is None and place.unit not in self._taken)
        return book.station.station.part == place.part and is_open


def _serves(book: StationBook, kind: DeviceKind, device: str, claims: _Claims) -> bool:
    """Return whether a station serves a device. A GPU station claims the device if it can."""
    if kind.takes_gpu:
        return claims.claim(book, device)
    return kind.is_processor or book.station.station == device


def _slots(book: StationBook) -> int:
    if book.facts is not None:
        return book.facts.slots
    return book.reserved_cores if book.state is StationState.STARTING and book.reserved_cores else book.station.slots


def cores_for(book: StationBook, slots: Mapping[str, int], lanes: Sequence[Lane]) -> int:
    """Return how many cores a station's process needs: one per slot; on a GPU station, the cores of the jobs' lanes.

    ``slots`` maps jobs to their slots on the station.
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
