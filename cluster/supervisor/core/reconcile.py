"""Reconciles what is wanted with what exists: places, reserves, releases."""

from dataclasses import replace

from ...placement.model.caps import with_caps
from ...placement.model.demand import Demand
from ...placement.model.inventory import DeviceState, Inventory
from ...placement.model.placement import Placement, Refusal
from ...probes.report.engines import Engine
from ..state.events import Effect, Note, Reserve, Stop
from ..state.nodes import places_of
from ..state.state import SupervisorState
from ..state.stations import NOT_STARTED, StationBook, StationState
from .assigning import assign_slots, cores_for
from .effective import effective_nodes, reservable_cores, without_late_gpus
from .granting import find_unservable, note_stranded
from .planner import Planner

EXACT_BITS = 4
"""Up to 15 remaining segments are counted exactly, more in steps of at most an eighth."""


def reconcile(state: SupervisorState, planner: Planner, now_s: float) -> list[Effect]:
    """Reserve what is missing, and release what is unused."""
    if state.end or (state.is_settled and not state.is_due):
        return []
    state.is_due = False
    effects: list[Effect] = []
    if not state.is_settled:
        state.is_settled = True
        _set_out_stations(state)
        effects += _place(state, planner)
    note_stranded(state, now_s)
    if state.is_recovering(now_s):
        return effects
    return [*effects, *_reserve_missing(state, planner.gpu_share, now_s), *_give_back_unused(state, now_s)]


def _set_out_stations(state: SupervisorState) -> None:
    for node in state.nodes:
        for station in node.stations:
            book = state.stations.setdefault(station.station, StationBook(station))
            if book.state is StationState.EMPTY:
                book.station = station
            # Once Ray has free cores, a worker that reserves them replaces one that only shares them.
            is_relieved = book.borrows and node.ray.free_cores >= min(station.slots, node.ray.cores)
            book.outgoing = is_relieved or bool(book.recycle_due)


def _place(state: SupervisorState, planner: Planner) -> list[Effect]:
    inventory = with_caps(Inventory(tuple(effective_nodes(state.nodes, state.stations))), state.caps)
    jobs = state.clients.jobs()
    demands = tuple(job.demand for job in jobs)
    wanted = (tuple(replace(demand, segments=_about(len(demand.segments))) for demand in demands), inventory)
    effects: list[Effect] = []
    if wanted != state.placed_for:
        state.placed_for = wanted
        state.placement, effects = _place_or_refuse(planner, demands, inventory)
        state.unservable = find_unservable(state, lambda demand: _place_or_refuse(planner, (demand,), inventory)[0])
    kinds = {device.device: device.kind for node in inventory.nodes for device in node.devices}
    places = {node.ray.node: places_of(node) for node in state.nodes}
    by_key = {job.key: job for job in jobs}
    state.targets = assign_slots(state.placement.lanes, state.stations.values(), kinds, by_key, places)
    if state.settings.bridges and (late := _late_targets(state)):
        now, _ = _place_or_refuse(planner, demands, without_late_gpus(inventory, state.stations.values()))
        state.targets = late | assign_slots(now.lanes, state.stations.values(), kinds, by_key, places)
    state.capacity_slots = sum(
        device.engines.get(Engine.CPU, 0)
        for node in inventory.nodes
        if node.state is DeviceState.OPEN
        for device in node.devices
    )
    return effects


def _late_targets(state: SupervisorState) -> dict[str, dict[str, int]]:
    """Return the targets among GPUs' stations whose workers have not started."""
    return {
        name: slots
        for name, slots in state.targets.items()
        if (book := state.stations[name]).station.takes_gpu and book.state is not StationState.READY
    }


def _place_or_refuse(
    planner: Planner, demands: tuple[Demand, ...], inventory: Inventory
) -> tuple[Placement, list[Effect]]:
    """Place every demand; refuse one that makes the planner fail, without cost to the others."""
    try:
        return planner.place(demands, inventory), []
    except Exception:  # noqa: BLE001 - a defect must affect only the job that triggers it
        sound, refused = [], []
        for demand in demands:
            try:
                planner.place((demand,), inventory)
                sound.append(demand)
            except Exception as error:  # noqa: BLE001 - as above
                refused.append(Refusal(demand.job, f"it cannot be placed: {type(error).__name__}: {error}"))
        placement = planner.place(sound, inventory)
        notes: list[Effect] = [Note(f"defect: job {refusal.job}: {refusal.reason}") for refusal in refused]
        return Placement(placement.lanes, (*placement.refusals, *refused)), notes


def _about(count: int) -> tuple[int, int]:
    """Round the remaining segments, so that a long job does not trigger a placement with each one that ends."""
    step = 1 << max(0, count.bit_length() - EXACT_BITS)
    return (count // step * step, step)


def _reserve_missing(state: SupervisorState, gpu_share: float, now_s: float) -> list[Effect]:
    effects: list[Effect] = []
    free = {node.ray.node: node.ray.free_cores for node in state.nodes}
    for name in sorted(state.targets):
        book = state.stations[name]
        if book.state is not StationState.EMPTY:
            continue
        wanted = state.targets[name]
        lanes = [lane for job in wanted for lane in state.plan_of(job).lanes]
        cores = reservable_cores(book, cores_for(book, wanted, lanes), free)
        state.epoch += 1
        book.epoch = state.epoch
        book.reserved_cores = 0
        book.to(StationState.RESERVING, now_s)
        gpus = gpu_share if book.station.takes_gpu else 0.0
        effects.append(Reserve(book.worker, book.station, cores, gpus))
    return effects


def _give_back_unused(state: SupervisorState, now_s: float) -> list[Effect]:
    effects: list[Effect] = []
    for name, book in state.stations.items():
        if book.state is not StationState.READY:
            continue
        is_used = name in state.targets or bool(state.clients.at(book.worker))
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
    wanted = (state.stations[name].station for name in state.targets)
    return any(each.takes_gpu and each.node == book.station.node for each in wanted)


def _patience_s(state: SupervisorState, book: StationBook) -> float | None:
    node = state.nodes.get(book.station.node)
    if book.outgoing or (node is not None and node.state is DeviceState.DRAINING) or _holds_wanted_cores(state, book):
        return 0.0
    return state.settings.idle_release_s


def _holds_wanted_cores(state: SupervisorState, book: StationBook) -> bool:
    """Return whether a GPU's worker reserves cores that a CPU worker on its node waits for."""
    if not (book.station.takes_gpu and book.reserved_cores):
        return False
    waiting = (other for name in state.targets if (other := state.stations[name]).state in NOT_STARTED)
    return any(other.station.is_processor and other.station.node == book.station.node for other in waiting)
