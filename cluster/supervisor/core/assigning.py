"""Assigns placed sessions to workers' slots."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import ceil
from typing import NamedTuple

from ...placement.model.placement import Lane, Route
from ...probes.report.device_report import DeviceKind
from ...version import makes_alike
from ..state.clients import JobBook
from ..state.nodes import Place
from ..state.stations import StationBook, StationState


class _Here(NamedTuple):
    """A station at which jobs may get slots, and the names of it and of its process."""

    book: StationBook
    station: str
    worker: str


_Stations = Sequence[_Here]
"""Ready ones first, then by name."""


def assign_slots(
    lanes: Sequence[Lane],
    stations: Iterable[StationBook],
    device_kinds: Mapping[str, DeviceKind],
    jobs: Mapping[str, JobBook],
    places: Mapping[str, Mapping[str, Place]],
) -> dict[str, dict[str, int]]:
    """Assign each lane's sessions to stations of its node that serve its device: {station: {job: slots}}.

    Ready stations come first, and those where the job already holds slots, so that nothing moves without need. Sessions
    that fit no station are left out. ``places`` say where Ray has each GPU and slice of a node; two nodes of one host
    may list the same GPU.
    """
    books = list(stations)
    claims, free = _Claims(books, places), {book.station.station: _slots(book) for book in books}
    processors, others = (_by_node(books, is_processor=of) for of in (True, False))
    assigned: dict[str, dict[str, int]] = {}
    for lane in lanes:
        is_plain = device_kinds.get(lane.device, DeviceKind.CPU) is DeviceKind.CPU and lane.route is not Route.DLA
        left = lane.sessions
        for each in _in_order((processors if is_plain else others)[lane.node], lane, jobs.get(lane.job)):
            taken = min(left, free[each.station])
            if taken <= 0 or not (is_plain or _fits(each.book, lane, claims)):
                continue
            here = assigned.setdefault(each.station, {})
            here[lane.job] = here.get(lane.job, 0) + taken
            free[each.station] -= taken
            left -= taken
            if not is_plain:
                claims.take(each.book, lane.device)
            if not left:
                break
    return assigned


def _by_node(books: Iterable[StationBook], *, is_processor: bool) -> defaultdict[str, list[_Here]]:
    """Return the stations of each node that are in use or may be."""
    found = defaultdict[str, list[_Here]](list)
    for book in books:
        if book.station.is_processor is is_processor and book.state not in _OUT_OF_USE and not book.outgoing:
            found[book.station.node].append(_Here(book, book.station.station, book.worker))
    for here in found.values():
        here.sort(key=lambda each: (each.book.state is not StationState.READY, each.station))
    return found


def _in_order(stations: _Stations, lane: Lane, job: JobBook | None) -> _Stations:
    """Return stations in the order in which a lane takes their slots."""
    held = {} if job is None else job.held
    if any(each.worker in held or each.book.device == lane.device for each in stations):
        return sorted(stations, key=partial(_order, lane, held))
    return stations


class _Claims:
    """The device that each station has or will get, and the Ray GPU of each bundle, so that none serves two."""

    def __init__(self, books: Iterable[StationBook], places: Mapping[str, Mapping[str, Place]]) -> None:
        self._places = places
        self._devices: dict[str, str] = {}
        self._units: dict[str, str] = {}
        self._taken: set[str] = set()
        self._given: set[str] = set()
        for book in books:
            if book.facts is not None and not book.station.is_processor:
                self.take(book, book.device)

    def take(self, book: StationBook, device: str) -> None:
        self._devices[book.station.station] = device
        self._given.add(device)
        place = self._places.get(book.station.node, {}).get(device)
        if place is not None:
            self._units[book.station.bundle] = place.unit
            self._taken.add(place.unit)

    def can_get(self, book: StationBook, device: str) -> bool:
        """Return whether a station has a device or may get it: Ray chooses the GPU of a new bundle."""
        if book.station.station in self._devices:
            return self._devices[book.station.station] == device
        if device in self._given:
            return False
        place = self._places.get(book.station.node, {}).get(device, Place(device))
        unit = self._units.get(book.station.bundle)
        is_open = unit == place.unit or (unit is None and place.unit not in self._taken)
        return book.station.part == place.part and is_open


def _fits(book: StationBook, lane: Lane, claims: _Claims) -> bool:
    if lane.route is Route.DLA or book.station.dla is not None:
        return book.station.station == lane.device
    return claims.can_get(book, lane.device)


_OUT_OF_USE = frozenset({StationState.LEAVING, StationState.RESTING, StationState.QUARANTINED})


def _order(lane: Lane, held: Mapping[str, int], each: _Here) -> tuple[bool, bool, int, str]:
    book = each.book
    has_device = book.facts is not None and book.device == lane.device
    return (book.state is not StationState.READY, not has_device, -held.get(each.worker, 0), each.station)


def _slots(book: StationBook) -> int:
    if book.facts is not None:
        return book.facts.slots
    return book.reserved_cores if book.state is StationState.STARTING and book.reserved_cores else book.station.slots


def cores_for(book: StationBook, slots: Mapping[str, int], lanes: Sequence[Lane]) -> int:
    """Return how many cores a station's process needs: one per slot, or what a GPU's lanes use beside it.

    ``slots`` are {job: slots} assigned to the station.
    """
    if not book.station.takes_gpu:
        return book.station.slots
    need = 0.0
    for job, count in slots.items():
        here = [
            lane for lane in lanes if lane.job == job and lane.node == book.station.node and lane.route is not Route.CPU
        ]
        need += max((count * lane.cores / lane.sessions for lane in here), default=0.0)
    return ceil(need)


def _makes_its_bytes(book: StationBook, job: JobBook) -> bool:
    """Return whether a worker makes the bytes that a job's other workers make."""
    return book.facts is None or makes_alike(job.demand.pyav, book.facts.pyav)


def promise(
    job: JobBook,
    wanted: Mapping[str, int],
    stations: Mapping[str, StationBook],
    occupied: Callable[[str], int],
) -> dict[str, int]:
    """Return what a job may use now of its slots by station, as far as other jobs have left them: {worker: slots}.

    Slots that another job holds, or was promised and may not know to be revoked, are not promised again: a worker's
    slots are never exceeded, however late messages arrive. ``occupied`` says how many of a worker's slots others may be
    using.
    """
    promised = {}
    for name, most in wanted.items():
        book = stations.get(name)
        if book is None or book.state is not StationState.READY or not _makes_its_bytes(book, job):
            continue
        slots = min(most, book.ready_slots - occupied(book.worker))
        if slots > 0:
            promised[book.worker] = slots
    return promised
