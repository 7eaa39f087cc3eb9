"""Closes the gap between what is placed and what exists: reserves what is missing, and releases what is unused."""

from collections.abc import Iterable, Sequence

from ...placement.model.inventory import DeviceState
from ..state.events import Effect, Reserve, Stop
from ..state.state import SupervisorState
from ..state.stations import NOT_STARTED, StationBook, StationState
from .assigning import cores_for
from .effective import reservable_cores, stations_by_node

ByNode = dict[str, list[StationBook]]


def reconcile(state: SupervisorState, gpu_share: float, now_s: float) -> list[Effect]:
    """Reserve what jobs have slots at and is empty; end workers that no job has used for a while."""
    if state.end or state.is_recovering(now_s):
        return []
    unused = list(_unused(state))
    here = stations_by_node(state.stations) if unused else {}
    wanted = [book for name in state.targets if (book := state.stations.get(name)) is not None]
    return [*reserve_missing(state, wanted, gpu_share, now_s), *_give_back(state, unused, here, now_s)]


def reserve_missing(
    state: SupervisorState, books: Iterable[StationBook], gpu_share: float, now_s: float
) -> list[Effect]:
    """Reserve those of these stations that are empty and at which jobs have slots."""
    if state.end or state.is_recovering(now_s):
        return []
    effects: list[Effect] = []
    missing = [
        (book, wanted)
        for book in books
        if book.state is StationState.EMPTY and (wanted := state.targets.get(book.station.station))
    ]
    free = {node: _free_cores(state, node) for node in {book.station.node for book, _ in missing}}
    for book, wanted in sorted(missing, key=lambda each: each[0].station.station):
        lanes = [lane for job in wanted for lane in state.plan_of(job).lanes_at.get(book.station.node, ())]
        cores = reservable_cores(book, cores_for(book, wanted, lanes), free)
        state.epoch += 1
        book.epoch = state.epoch
        book.reserved_cores = 0
        book.to(StationState.RESERVING, now_s)
        gpus = gpu_share if book.station.takes_gpu else 0.0
        effects.append(Reserve(book.worker, book.station, cores, gpus))
    return effects


def _free_cores(state: SupervisorState, node: str) -> int:
    book = state.nodes.get(node)
    return 0 if book is None else book.ray.free_cores


def _unused(state: SupervisorState) -> Iterable[StationBook]:
    """Yield ready stations at which no job has or uses a slot."""
    targets = state.targets
    for book in state.stations.values():
        if book.state is not StationState.READY:
            continue
        if book.station.station in targets or state.clients.uses(book.worker):
            book.unused_since_s = None
        else:
            yield book


def _give_back(state: SupervisorState, unused: Sequence[StationBook], here: ByNode, now_s: float) -> list[Effect]:
    effects: list[Effect] = []
    for book in unused:
        beside = here[book.station.node]
        if _keeps_a_sick_gpu(state, book, beside):
            book.unused_since_s = None
            continue
        if book.unused_since_s is None:
            book.unused_since_s = now_s
        patience_s = _patience_s(state, book, beside)
        if patience_s is not None and now_s - book.unused_since_s >= patience_s:
            book.to(StationState.LEAVING, now_s, "unused")
            effects.append(Stop(book.worker))
    return effects


def _keeps_a_sick_gpu(state: SupervisorState, book: StationBook, beside: Sequence[StationBook]) -> bool:
    """Return whether a station holds a quarantined GPU, which Ray would else give to another that is wanted there."""
    node = state.nodes.get(book.station.node)
    if node is None or not book.is_holding or book.outgoing or node.quarantine_of(book.device) is None:
        return False
    return any(each.station.takes_gpu for each in beside if each.station.station in state.targets)


def _patience_s(state: SupervisorState, book: StationBook, beside: Sequence[StationBook]) -> float | None:
    node = state.nodes.get(book.station.node)
    is_draining = node is not None and node.state is DeviceState.DRAINING
    if book.outgoing or is_draining or _holds_wanted_cores(state, book, beside):
        return 0.0
    return state.settings.idle_release_s


def _holds_wanted_cores(state: SupervisorState, book: StationBook, beside: Sequence[StationBook]) -> bool:
    """Return whether a GPU's worker reserves cores that a CPU worker on its node waits for."""
    if not (book.station.takes_gpu and book.reserved_cores):
        return False
    wanted = (each for each in beside if each.station.station in state.targets)
    return any(each.station.is_processor and each.state in NOT_STARTED for each in wanted)
