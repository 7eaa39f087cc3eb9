"""Assigns placed sessions to workers' slots."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import ceil

from ...placement.model.placement import Lane, Route
from ...probes.report.device_report import DeviceKind
from ...version import makes_alike
from ..state.clients import JobBook
from ..state.nodes import Place
from ..state.plans import Targets
from ..state.stations import StationBook, StationState


def assign_slots(
    lanes: Sequence[Lane],
    stations: Iterable[StationBook],
    device_kinds: Mapping[str, DeviceKind],
    jobs: Mapping[str, JobBook],
    places: Mapping[str, Mapping[str, Place]],
    *,
    before: Targets | None,
) -> dict[str, dict[str, int]]:
    """Assign each lane's sessions to stations of its node that serve its device: {station: {job: slots}}.

    Slots of ``before`` stay as they are, as far as they still serve a lane. Then ready stations come first, and those
    where the job already holds slots, so that nothing moves without need. Sessions that fit no station are left out.
    ``places`` say where Ray has each GPU and slice of a node; two nodes of one host may list the same GPU.
    """
    books = {book.station.station: book for book in stations}
    free_slots = {name: _slots(book) for name, book in books.items()}
    claims = _Claims(books.values(), places)
    by_node: dict[str, list[StationBook]] = defaultdict(list)
    for book in books.values():
        if book.state not in _OUT_OF_USE and not book.outgoing:
            by_node[book.station.node].append(book)
    assigned: dict[str, dict[str, int]] = defaultdict(dict)

    def give(lane: Lane, sessions: int, kept: Targets | None = None) -> int:
        """Give a lane slots, none but those that are kept; return how many sessions are left."""
        kind = device_kinds.get(lane.device, DeviceKind.CPU)
        fitting = [book for book in by_node[lane.node] if _fits(book, lane, kind, claims)]
        for book in sorted(fitting, key=partial(_order, lane, jobs.get(lane.job))):
            name = book.station.station
            has = assigned[name].get(lane.job, 0) if name in assigned else 0
            most = free_slots[name] if kept is None else kept.get(name, {}).get(lane.job, 0) - has
            taken = min(sessions, free_slots[name], most)
            if taken > 0 and _fits(book, lane, kind, claims):  # another may have become its device's only now
                assigned[name][lane.job] = has + taken
                claims.take(book, lane.device)
                free_slots[name] -= taken
                sessions -= taken
        return sessions

    left = [lane.sessions if before is None else give(lane, lane.sessions, before) for lane in lanes]
    for lane, sessions in zip(lanes, left, strict=True):
        give(lane, sessions)
    return dict(assigned)


class _Claims:
    """The device that each station has or will get, and the Ray GPU of each bundle, so that none serves two."""

    def __init__(self, books: Iterable[StationBook], places: Mapping[str, Mapping[str, Place]]) -> None:
        self._places = places
        self._devices: dict[str, str] = {}
        self._units: dict[str, str] = {}
        self._taken: set[str] = set()
        self._given: set[str] = set()
        for book in books:
            if book.facts is not None:
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


def _fits(book: StationBook, lane: Lane, kind: DeviceKind, claims: _Claims) -> bool:
    if lane.route is Route.DLA or book.station.dla is not None:
        return book.station.station == lane.device
    if kind is DeviceKind.CPU:
        return not book.station.takes_gpu
    return book.station.takes_gpu and claims.can_get(book, lane.device)


_OUT_OF_USE = frozenset({StationState.LEAVING, StationState.RESTING, StationState.QUARANTINED})


def _order(lane: Lane, job: JobBook | None, book: StationBook) -> tuple[bool, bool, int, str]:
    is_ready = book.state is StationState.READY
    has_device = book.facts is not None and book.device == lane.device
    held = 0 if job is None else job.held.get(book.worker, 0)
    return (not is_ready, not has_device, -held, book.station.station)


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
