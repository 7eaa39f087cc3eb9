"""From a placement to slots of workers: arithmetic over what is promised and held."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from math import ceil

from ...placement.model.placement import Lane, Route
from ...probes.report.device_report import DeviceKind
from ..state.clients import JobBook
from ..state.nodes import Place
from ..state.stations import StationBook, StationState

__all__ = ["assign_slots", "cores_for", "promise"]


def assign_slots(
    lanes: Sequence[Lane],
    stations: Iterable[StationBook],
    device_kinds: Mapping[str, DeviceKind],
    jobs: Mapping[str, JobBook],
    places: Mapping[str, Mapping[str, Place]],
) -> dict[str, dict[str, int]]:
    """Deal each lane's sessions out to seats of its node that serve its device: {seat: {job: slots}}.

    A job's sessions go to seats that are ready before those that would have to be started, and to where the job holds
    slots already, so that nothing moves without need. What no seat has room for is left out. ``places`` are where GPUs
    and slices are among what Ray gives out on each node; two nodes of one host may know the same GPU.
    """
    books = {book.station.station: book for book in stations}
    room = {name: _room(book) for name, book in books.items()}
    has = _Had(books.values(), places)
    by_node: dict[str, list[StationBook]] = defaultdict(list)
    for book in books.values():
        if book.state not in _OUT_OF_USE and not book.outgoing:
            by_node[book.station.node].append(book)
    assigned: dict[str, dict[str, int]] = defaultdict(dict)
    for lane in lanes:
        left = lane.sessions
        kind = device_kinds.get(lane.device, DeviceKind.CPU)
        fitting = [book for book in by_node[lane.node] if _fits(book, lane, kind, has)]
        for book in sorted(fitting, key=partial(_order, lane, jobs.get(lane.job))):
            name = book.station.station
            taken = min(left, room[name])
            if taken > 0:
                assigned[name][lane.job] = assigned[name].get(lane.job, 0) + taken
                has.take(book, lane.device)
                room[name] -= taken
                left -= taken
    return dict(assigned)


class _Had:
    """Which device each seat has or is meant to get, and which of Ray's GPUs each bundle: none serves two."""

    def __init__(self, books: Iterable[StationBook], places: Mapping[str, Mapping[str, Place]]) -> None:
        self._places = places
        self._devices: dict[str, str] = {}
        self._units: dict[str, str] = {}
        self._taken: set[str] = set()
        for book in books:
            if book.facts is not None:
                self.take(book, book.device)

    def take(self, book: StationBook, device: str) -> None:
        """Note that a seat has a device, or is meant to get it."""
        self._devices[book.station.station] = device
        place = self._places.get(book.station.node, {}).get(device)
        if place is not None:
            self._units[book.station.bundle] = place.unit
            self._taken.add(place.unit)

    def can_get(self, book: StationBook, device: str) -> bool:
        """Tell whether a seat has a device, or may get it: which GPU a new bundle gets is Ray's choice."""
        if book.station.station in self._devices:
            return self._devices[book.station.station] == device
        if device in self._devices.values():
            return False
        place = self._places.get(book.station.node, {}).get(device, Place(device))
        unit = self._units.get(book.station.bundle)
        is_open = unit == place.unit or (unit is None and place.unit not in self._taken)
        return book.station.part == place.part and is_open


def _fits(book: StationBook, lane: Lane, kind: DeviceKind, has: _Had) -> bool:
    if lane.route is Route.DLA or book.station.dla is not None:
        return book.station.station == lane.device
    if kind is DeviceKind.CPU:
        return not book.station.takes_gpu
    return book.station.takes_gpu and has.can_get(book, lane.device)


_OUT_OF_USE = frozenset({StationState.LEAVING, StationState.RESTING, StationState.QUARANTINED})


def _order(lane: Lane, job: JobBook | None, book: StationBook) -> tuple[bool, bool, int, str]:
    is_ready = book.state is StationState.READY
    has_device = book.facts is not None and book.device == lane.device
    held = 0 if job is None else job.held.get(book.worker, 0)
    return (not is_ready, not has_device, -held, book.station.station)


def _room(book: StationBook) -> int:
    if book.facts is not None:
        return book.facts.slots
    return book.reserved_cores if book.state is StationState.STARTING and book.reserved_cores else book.station.slots


def cores_for(book: StationBook, slots: Mapping[str, int], lanes: Sequence[Lane]) -> int:
    """Return how many cores a seat's process needs: one per slot; a GPU's what its lanes take beside it.

    ``slots`` are {job: slots} that were dealt to the seat.
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


def promise(
    job: JobBook,
    targets: Mapping[str, Mapping[str, int]],
    stations: Mapping[str, StationBook],
    others: Sequence[JobBook],
) -> dict[str, int]:
    """Return what a job may use now: its targets, as far as other jobs have left the slots: {worker: slots}.

    What a job may use at any moment never exceeds a worker's slots, whoever has heard of what: slots that another
    job holds, or was promised and may not know to be revoked, are not promised again.
    """
    promised = {}
    for name, wanted in targets.items():
        book = stations[name]
        if book.state is not StationState.READY or job.key not in wanted:
            continue
        taken = sum(other.occupies(book.worker) for other in others if other.key != job.key)
        slots = min(wanted[job.key], book.ready_slots - taken)
        if slots > 0:
            promised[book.worker] = slots
    return promised
