"""Handles workers that were reserved, started, stopped, found, or lost."""

from dataclasses import replace

from ....actors.backoff import Backoff
from ...logs.actions import LogAction
from ...placement.model.inventory import DeviceState
from ..state import events
from ..state.events import Effect, Start, Stop
from ..state.messages import FoundWorker
from ..state.nodes import NodeBook
from ..state.quarantine import Cause, Quarantine
from ..state.state import SupervisorState
from ..state.stations import DEATHS_IN_A_ROW_MAX, Reserving, StationBook, StationState, unseen_station
from .answering import answers, clients_at
from .effective import in_use_by
from .placing import update_stations
from .quarantining import quarantine, quarantine_dying, resolved, wake
from .reconcile import reserve_missing

STEADY_S = 10.0
"""A process that ran for this long has started properly, so its death begins a new count of deaths."""
RESTS = Backoff(first_s=0.1, most_s=0.4)
"""How long a station waits after the second death in a row and each later one; after the first it does not wait."""
UNRESERVED_REST_S = 0.1
ORPHANS_S = 30.0
"""After a restart, a client without a report for this long is dead; a live client reports again within 15 s."""


def reserved(state: SupervisorState, event: events.Reserved, now_s: float) -> list[Effect]:
    """Start the process of a worker that was reserved."""
    book = state.station(event.worker, StationState.RESERVING)
    if book is None:
        return [Stop(event.worker)]
    book.to(StationState.STARTING, now_s)
    book.reserved_cores = event.cores
    book.reserving, book.unreserved = Reserving.BUNDLE, ""
    station, node = book.station, state.node_of(book)
    slots = event.cores if event.cores and station.kind.is_processor else station.slots
    # GPUs that failed a probe, or are in quarantine
    avoided = frozenset(
        gpu.device
        for gpu in (node.gpus if station.kind.takes_gpu else ())
        if gpu.state is DeviceState.QUARANTINED or node.quarantine_of(gpu.device)
    )
    search_path = None if station.kind.is_processor else node.node.search_path
    return [Start(event.worker, station, slots, event.cores, avoided, search_path, book.chosen)]


def not_reserved(state: SupervisorState, event: events.NotReserved, now_s: float) -> list[Effect]:
    """Retry the reservation soon, as ``_next_reserving`` says."""
    book = state.station(event.worker, StationState.RESERVING)
    if book is None:
        return [Stop(event.worker)]
    book.to(StationState.RESTING, now_s, event.reason)
    book.rest_until_s = now_s + UNRESERVED_REST_S
    book.unreserved = event.reason
    book.reserving = _next_reserving(state, book)
    is_itself = book.reserving is Reserving.ITSELF
    if not is_itself and book.chosen and _has_astray(state, book):
        # Workers hold GPUs that were not chosen, and Ray has no other: so other Ray work holds the chosen GPU.
        state.node_of(book).withhold(book.chosen, now_s)
    then = "; its cores and GPU are free, so it starts without a placement group" if is_itself else ""
    note = state.note(LogAction.WORKER_UNRESERVED, book, f"was not reserved: {event.reason}{then}")
    return [Stop(event.worker), note]


def _next_reserving(state: SupervisorState, book: StationBook) -> Reserving:
    """Return how the station's process reserves after Ray has made no bundle for it.

    If what the process needs is free, Ray may have stopped making bundles, so the process reserves for itself.
    Otherwise a CPU process, if no worker runs, shares the cores of other Ray work.
    """
    if _has_what_it_needs(state, book):
        return Reserving.ITSELF
    has_any = any(each.could_transcode for each in state.stations.values())
    return Reserving.NOTHING if book.station.kind.is_processor and not has_any else Reserving.BUNDLE


def _has_astray(state: SupervisorState, book: StationBook) -> bool:
    return any(each.is_astray for each in state.stations.values() if each.station.node == book.station.node)


def _has_what_it_needs(state: SupervisorState, book: StationBook) -> bool:
    """Return whether a process can reserve for itself: its CPU or GPU is free, and no other station shares it.

    If a node stops answering while Ray makes a placement group on it, Ray (2.60) makes no other placement group, on any
    node, until its GCS restarts; actors still start.
    """
    ray, station = state.node_of(book).ray, book.station
    if station.kind.takes_gpu:
        return station.sharers == 1 and ray.free_gpus >= state.planner.policy.gpu_share
    return ray.free_cores > 0


def started(state: SupervisorState, event: events.Started, now_s: float) -> list[Effect]:
    """Record that a process has started; it gets no work if it cannot use its device."""
    book = state.station(event.worker, StationState.STARTING)
    if book is None:
        return [Stop(event.worker)]
    book.to(StationState.READY, now_s)
    book.occupy(event.facts)
    effects = _check_device(state, book, now_s) if book.station.kind.takes_gpu else []
    if book.is_holding and book.facts is not None:
        # The worker keeps its GPU for a while, so that Ray gives the next worker another GPU.
        book.reason = book.facts.trouble or "the GPU that Ray gave this worker lacks the worker's slice"
        return [*effects, state.note(LogAction.WORKER_UP, book, f"gets no work: {book.reason}")]
    took = f" on {event.facts.device}" if event.facts.device else ""
    if book.is_astray:
        took += f", but placement chose {book.chosen}"
    what = f"is up{took}: process {event.facts.pid}, {event.facts.slots} slots"
    effects.append(state.note(LogAction.WORKER_UP, book, what))
    # No placement is needed: jobs that lost the earlier process get slots again, others get their first slots.
    clients = clients_at(state, [book.station.station], without_slots=not book.deaths_in_a_row)
    return effects + answers(state, clients, now_s, at_once=True)


def _check_device(state: SupervisorState, book: StationBook, now_s: float) -> list[Effect]:
    """Compare a worker's device with the current quarantines, which may be newer than the worker's start."""
    if book.facts is None:
        return []
    node, trouble = state.node_of(book), book.facts.trouble
    book.device = resolved(node, book.device)
    node.withheld.pop(book.device, None)
    _forget_gpu(state, node, book)
    if node.quarantine_of(book.device) is not None:
        book.facts = replace(book.facts, trouble=trouble or "it is in quarantine")
    elif not trouble:
        _check_alone(state, book)
    elif (device := node.gpu(book.device)) is not None:
        return quarantine(state, node, device, Quarantine(cause=Cause.POLL, reason=trouble, since_s=now_s))
    return []


def _check_alone(state: SupervisorState, book: StationBook) -> None:
    """Give a worker no work if another worker is on its GPU: two Ray nodes of one host may count the same GPU."""
    others = (each for each in state.stations.values() if each is not book and each.device == book.device)
    other = next((each for each in others if each.device and each.facts and not each.is_holding), None)
    if other is not None and book.facts is not None:
        book.facts = replace(book.facts, trouble=in_use_by(other))


def _forget_gpu(state: SupervisorState, node: NodeBook, book: StationBook) -> None:
    """Clear the last GPU of other idle stations if it is the GPU of ``book``: these stations may get any GPU."""
    units = {device: place.unit for device, place in node.places.items()}
    for each in state.stations.values():
        is_free = each.facts is None and each.state is not StationState.LEAVING
        is_other = each.station.station.bundle != book.station.station.bundle
        if is_free and is_other and each.device in units and units[each.device] == units.get(book.device):
            each.device = ""


def died(state: SupervisorState, event: events.Died, now_s: float) -> list[Effect]:
    """Replace a dead process: the first time at once; after too many deaths, quarantine the device or station."""
    book = state.station(event.worker, StationState.STARTING, StationState.READY)
    if book is None:
        return []
    was_steady = book.state is StationState.READY and now_s - book.since_s >= STEADY_S
    book.deaths_in_a_row = 1 if was_steady else book.deaths_in_a_row + 1
    if book.deaths_in_a_row >= DEATHS_IN_A_ROW_MAX:
        return [Stop(event.worker), *quarantine_dying(state, book, event.reason, now_s)]
    book.to(StationState.RESTING, now_s, event.reason)
    book.rest_until_s = now_s + RESTS.wait_s(book.deaths_in_a_row - 1)
    note = state.note(LogAction.WORKER_LOST, book, f"died and is replaced: {event.reason}")
    wake(state, book, now_s)
    # The replacement does not wait for the next placement.
    return [Stop(event.worker), note, *reserve_missing(state, (book,), now_s)]


def stopped(state: SupervisorState, event: events.Stopped, now_s: float) -> list[Effect]:
    """Free the station of a worker that has stopped."""
    book = state.station(event.worker, StationState.LEAVING)
    if book is None:
        return []
    book.to(StationState.EMPTY, now_s)
    return [state.note(LogAction.WORKER_ENDED, book, "was released")]


def recycle_due(state: SupervisorState, event: events.RecycleDue, _now_s: float) -> list[Effect]:
    """Mark a process for replacement when it becomes idle."""
    book = state.station(event.worker, StationState.READY)
    if book is None or book.recycle_due:
        return []
    book.recycle_due = event.reason
    state.is_dirty = True
    return [state.note(LogAction.WORKER_DUE, book, f"will be replaced once it is idle: {event.reason}")]


def found(state: SupervisorState, event: events.Found, now_s: float) -> list[Effect]:
    """Adopt the workers of an earlier supervisor; clients get time to report which slots they hold."""
    for node in state.nodes:
        update_stations(state, node)
    effects = [effect for worker in event.workers for effect in _adopt(state, worker, now_s)]
    if event.workers:
        state.recovering_until_s = now_s + state.settings.recovery_s
        state.orphans_due_s = now_s + ORPHANS_S
    return effects


def _adopt(state: SupervisorState, worker: FoundWorker, now_s: float) -> list[Effect]:
    name, epoch = worker.worker.station, worker.worker.epoch
    state.epoch = max(state.epoch, epoch + 1)
    unseen = unseen_station(name)
    if unseen is not None and state.nodes.get(unseen.node) is not None:
        state.stations.setdefault(name, StationBook(unseen))
    book = state.stations.get(name)
    if book is None or book.state is not StationState.EMPTY:
        return [Stop(worker.worker)]
    book.begin(epoch)
    book.to(StationState.READY, now_s, "adopted")
    book.occupy(worker.facts)
    book.chosen = book.device
    _check_alone(state, book)
    book.reserved_cores = worker.facts.cores
    return [state.note(LogAction.WORKER_ADOPTED, book, f"was adopted: process {worker.facts.pid}")]
