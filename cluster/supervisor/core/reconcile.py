"""Reconciles what is wanted with what exists: places, reserves, releases."""

from collections.abc import Iterable

from ...placement.model.inventory import DeviceState
from ..state.events import Effect, Reserve, Stop
from ..state.state import SupervisorState
from ..state.stations import NOT_STARTED, StationBook, StationState
from .assigning import cores_for
from .effective import reservable_cores
from .granting import note_stranded
from .placing import place_everything, place_touched
from .planner import Planner


def reconcile(state: SupervisorState, planner: Planner, now_s: float, *, may_settle: bool) -> list[Effect]:
    """Reserve what is missing, and release what is unused: everywhere, or only on nodes that were touched.

    Without ``may_settle`` nothing is done that takes a look at everything.
    """
    must_settle, is_due = may_settle and state.must_settle(now_s), state.is_due
    state.has_news, state.has_settled = bool(state.touched) or state.has_other_holdings or must_settle, False
    state.has_other_holdings = False
    if state.end or not (must_settle or is_due or state.touched):
        return []
    touched, state.touched, state.is_due = state.touched, set(), False
    was_stranded = bool(state.stranded)
    effects: list[Effect] = []
    concerned: frozenset[str] | None = None
    if not must_settle:
        concerned, effects = place_touched(state, touched, now_s, may_settle=may_settle)
    if concerned is None and not may_settle:
        concerned, state.is_settled, state.touched = frozenset(), False, touched
    if concerned is None:
        effects += place_everything(state, planner)
        state.has_settled = True
    if is_due or concerned is None:
        note_stranded(state, state.clients.jobs(), now_s)
        books = list(state.stations.values())
    else:
        note_stranded(state, state.jobs_at(concerned), now_s)
        books = state.stations_at(concerned)
    if not state.is_recovering(now_s):
        effects += _reserve_missing(state, books, planner.gpu_share, now_s)
        effects += _give_back_unused(state, books, now_s)
    if must_settle or touched or effects or was_stranded or state.stranded:
        state.turn += 1
    return effects


def _reserve_missing(
    state: SupervisorState, books: Iterable[StationBook], gpu_share: float, now_s: float
) -> list[Effect]:
    effects: list[Effect] = []
    missing = [book for book in books if book.state is StationState.EMPTY and book.station.station in state.targets]
    free = {node: _free_cores(state, node) for node in {book.station.node for book in missing}}
    for book in sorted(missing, key=lambda book: book.station.station):
        wanted = state.targets[book.station.station]
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


def _give_back_unused(state: SupervisorState, books: Iterable[StationBook], now_s: float) -> list[Effect]:
    effects: list[Effect] = []
    for book in books:
        if book.state is not StationState.READY:
            continue
        is_used = book.station.station in state.targets or bool(state.clients.at(book.worker))
        if is_used or _keeps_a_sick_gpu(state, book):
            book.unused_since_s = None
            continue
        if book.unused_since_s is None:
            book.unused_since_s = now_s
        patience_s = _patience_s(state, book)
        if patience_s is not None and now_s - book.unused_since_s >= patience_s:
            book.to(StationState.LEAVING, now_s, "unused")
            effects.append(Stop(book.worker))
    return effects


def _keeps_a_sick_gpu(state: SupervisorState, book: StationBook) -> bool:
    """Return whether a station holds a quarantined GPU, which Ray would else give to another that is wanted there."""
    node = state.nodes.get(book.station.node)
    if node is None or not book.is_holding or book.outgoing or node.quarantine_of(book.device) is None:
        return False
    wanted = (each for each in state.stations_at((book.station.node,)) if each.station.station in state.targets)
    return any(each.station.takes_gpu for each in wanted)


def _patience_s(state: SupervisorState, book: StationBook) -> float | None:
    node = state.nodes.get(book.station.node)
    if book.outgoing or (node is not None and node.state is DeviceState.DRAINING) or _holds_wanted_cores(state, book):
        return 0.0
    return state.settings.idle_release_s


def _holds_wanted_cores(state: SupervisorState, book: StationBook) -> bool:
    """Return whether a GPU's worker reserves cores that a CPU worker on its node waits for."""
    if not (book.station.takes_gpu and book.reserved_cores):
        return False
    wanted = (each for each in state.stations_at((book.station.node,)) if each.station.station in state.targets)
    return any(each.station.is_processor and each.state in NOT_STARTED for each in wanted)
