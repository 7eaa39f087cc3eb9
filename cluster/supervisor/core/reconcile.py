"""Reserves workers for the stations that the placement needs, and releases unused workers."""

from collections.abc import Iterable, Sequence

from ...placement.model.inventory import DeviceState
from ..state.events import Effect, Reserve, Stop
from ..state.state import SupervisorState
from ..state.stations import NOT_STARTED, Reserving, StationBook, StationState
from .assigning import cores_for
from .effective import reservable_cores, stations_by_node

_ON_THE_WAY = frozenset({StationState.RESERVING, StationState.STARTING, StationState.RESTING})


def reconcile(state: SupervisorState, now_s: float) -> list[Effect]:
    """Reserve workers for empty stations where jobs have slots; end workers that have been unused for too long."""
    if state.end or state.is_recovering(now_s):
        return []
    unused = list(_unused(state))
    effects = reserve_missing(state, state.stations.values(), now_s)
    here = stations_by_node(state.stations) if unused else {}
    for book in unused:
        if _keeps_its_gpu(book, here[book.station.node]):
            book.unused_since_s = None
            continue
        if book.unused_since_s is None:
            book.unused_since_s = now_s
        beside = [each for each in here[book.station.node] if each.station.station in state.plans.targets]
        patience_s = _patience_s(state, book, beside)
        if patience_s is not None and now_s - book.unused_since_s >= patience_s:
            if book.is_astray and _is_missed(state, book.chosen):
                state.node_of(book).withhold(book.chosen, now_s)
                state.is_dirty = True
            book.to(StationState.LEAVING, now_s, "unused")
            effects.append(Stop(book.worker))
    return effects


def reserve_missing(state: SupervisorState, books: Iterable[StationBook], now_s: float) -> list[Effect]:
    """Reserve a worker for each of these stations that is empty and has slots for jobs."""
    if state.end or state.is_recovering(now_s):
        return []
    effects: list[Effect] = []
    targets = state.plans.targets
    missing = [book for book in books if book.state is StationState.EMPTY and book.station.station in targets]
    free = {book.station.node: state.node_of(book).ray.free_cores for book in missing}
    for book in sorted(missing, key=lambda each: each.station.station):
        wanted = targets[book.station.station]
        lanes = [lane for job in wanted for lane in state.plans.of(job).lanes_at.get(book.station.node, ())]
        cores = reservable_cores(book, cores_for(book, wanted, lanes), free)
        state.epoch += 1
        book.begin(state.epoch)
        book.reserved_cores = 0
        book.to(StationState.RESERVING, now_s)
        gpus = state.planner.policy.gpu_share if book.station.kind.takes_gpu else 0.0
        is_bundled = book.reserving is not Reserving.ITSELF
        effects.append(Reserve(book.worker, book.station, cores, gpus, is_bundled=is_bundled))
    return effects


def _unused(state: SupervisorState) -> Iterable[StationBook]:
    for book in state.stations.values():
        if book.state is not StationState.READY:
            continue
        if book.station.station in state.plans.targets or state.clients.uses(book.worker):
            book.unused_since_s = None
        else:
            yield book


def _keeps_its_gpu(book: StationBook, here: Iterable[StationBook]) -> bool:
    """Return whether a worker on an unwanted GPU stays, so that Ray gives other GPUs to the node's next workers."""
    if not book.is_astray or book.outgoing:
        return False
    return any(each.station.kind.takes_gpu and each.state in _ON_THE_WAY for each in here)


def _is_missed(state: SupervisorState, device: str) -> bool:
    """Return whether placement wants this GPU, and no ready worker has it."""
    has_worker = any(book.device == device for book in state.stations.values() if book.state is StationState.READY)
    return not has_worker and any(lane.device == device for lane in state.plans.placement.lanes)


def _patience_s(state: SupervisorState, book: StationBook, beside: Sequence[StationBook]) -> float | None:
    """Return how many seconds an unused worker stays; None if it stays for ever.

    This is 0 if the worker will be replaced, its node drains, its GPU is unwanted, or a CPU worker needs its cores.
    """
    is_draining = state.node_of(book).state is DeviceState.DRAINING
    has_cores = book.station.kind.takes_gpu and book.reserved_cores
    is_wanted = has_cores and any(each.station.kind.is_processor and each.state in NOT_STARTED for each in beside)
    is_due = book.outgoing or book.is_astray or is_draining or is_wanted
    return 0.0 if is_due else state.settings.idle_release_s
