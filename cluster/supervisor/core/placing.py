"""Places every job on every node, from scratch."""

from dataclasses import replace

from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ...placement.model.caps import with_caps
from ...placement.model.demand import Demand
from ...placement.model.inventory import DeviceState, Inventory
from ...placement.model.placement import Placement, Refusal
from ...worker_names import StationId
from ..state.clients import job_of
from ..state.events import Effect, Note
from ..state.nodes import NodeBook
from ..state.state import Planner, Plans, SupervisorState
from ..state.stations import StationBook, StationState
from .assigning import assign_slots
from .effective import effective_nodes, without_late_gpus
from .granting import needs_gpus

PLACING_SHARE = 0.2
"""The share of time that a supervisor may spend on placement: if one takes 1 s, the next begins 5 s after it began."""


def next_pass_s(state: SupervisorState, pass_s: float) -> float:
    """Return when the next placement may run, after a placement that took ``pass_s``.

    An urgent placement need not wait for this time; the placement after it waits longer by the time saved.
    """
    if state.placed_s is None:
        return 0.0
    return state.placed_s + state.early_s + (0.0 if state.is_urgent else pass_s / PLACING_SHARE)


def place_if_due(state: SupervisorState, pass_s: float, now_s: float) -> list[Effect] | None:
    """Place everything if something has changed and the next placement may run; otherwise return None."""
    if not state.is_dirty or state.end or now_s < next_pass_s(state, pass_s):
        return None
    state.is_urgent = False
    state.early_s = max(0.0, next_pass_s(state, pass_s) - now_s)
    return place_everything(state, now_s)


def usable_inventory(state: SupervisorState) -> Inventory:
    """Return the devices on which jobs are placed: those that workers can get, with learnt caps on encoder sessions."""
    return with_caps(Inventory(tuple(effective_nodes(state.nodes, state.stations))), state.caps)


def place_everything(state: SupervisorState, now_s: float) -> list[Effect]:
    """Place every job, and assign its sessions to stations."""
    state.is_dirty, state.placed_s = False, now_s
    for node in state.nodes:
        update_stations(state, node)
    inventory = usable_inventory(state)
    demands = tuple(job.demand for job in state.clients.jobs())
    placement, effects = place_or_refuse(state.planner, demands, inventory)
    targets, devices = _assigned(state, placement)
    books = (state.stations[name] for name in targets if state.settings.bridges and name.kind.takes_gpu)
    late = [book.station.station for book in books if book.state is not StationState.READY]
    if late:
        now, _ = place_or_refuse(state.planner, demands, without_late_gpus(inventory, state.stations.values()))
        targets_now, devices_now = _assigned(state, now)
        targets, devices = {name: targets[name] for name in late} | targets_now, devices | devices_now
    for name in targets:
        state.stations[name].chosen = devices.get(name, "")
    state.plans = Plans(placement, targets)
    state.unservable = _find_unservable(state, inventory)
    state.capacity_slots = sum(node.cores for node in inventory.nodes if node.state is DeviceState.OPEN)
    return effects


def update_stations(state: SupervisorState, node: NodeBook) -> None:
    """Add a node's new stations, and mark workers of the node that should be replaced."""
    for station in node.stations:
        book = state.stations.get(station.station)
        if book is None:
            book = state.stations[station.station] = StationBook(station)
        elif book.state is StationState.EMPTY:
            book.station = station
        # When Ray has free cores, a worker that reserves cores replaces a worker that shares the cores of others.
        shares = book.state is StationState.READY and book.reserved_cores == 0 and station.kind.is_processor
        has_free = node.ray.free_cores >= min(station.slots, node.ray.cores)
        book.outgoing = (shares and has_free) or bool(book.recycle_due)


def place_or_refuse(
    planner: Planner, demands: tuple[Demand, ...], inventory: Inventory
) -> tuple[Placement, list[Effect]]:
    """Place every demand. If the planner fails on a demand, refuse only that demand."""
    try:
        return planner.place(demands, inventory, in_full=False), []
    except Exception as defect:  # noqa: BLE001 - a defect must affect only the job that triggers it
        sound, refused = [], []
        for demand in demands:
            try:
                planner.place((demand,), inventory)
                sound.append(demand)
            except Exception as error:  # noqa: BLE001 - as above
                refused.append(Refusal(demand.job, f"it cannot be placed: {type(error).__name__}: {error}"))
        placement = planner.place(sound, inventory)
        notes: list[Effect] = [
            Note(LogAction.DEFECT, f"defect: job {refusal.job}: {refusal.reason}", LogIds(job=job_of(refusal.job)))
            for refusal in refused
        ]
        if not refused:  # every demand can be placed alone, so only the combination fails
            line = f"defect: the jobs cannot be placed together: {type(defect).__name__}: {defect}"
            notes = [Note(LogAction.DEFECT, line)]
        return Placement(placement.lanes, (*placement.refusals, *refused)), notes


def _assigned(
    state: SupervisorState, placement: Placement
) -> tuple[dict[StationId, dict[str, int]], dict[StationId, str]]:
    places = {book.ray.node: book.places for book in state.nodes}
    return assign_slots(placement.lanes, state.stations.values(), state.clients.jobs_by_key, places)


def _find_unservable(state: SupervisorState, inventory: Inventory) -> dict[str, str]:
    """Return {job: reason} for jobs that need GPUs and could not be placed even alone; equal jobs share a reason."""
    reasons: dict[str, str] = {}
    found: dict[Demand, str] = {}
    for job in filter(needs_gpus, state.clients.jobs()):
        if not job.demand.segments or state.plans.of(job.key).lanes:
            continue
        alike = replace(job.demand, job="", title="")
        if alike not in found:
            alone, _ = place_or_refuse(state.planner, (job.demand,), inventory)
            found[alike] = "" if alone.lanes else alone.refusals[0].reason
        if found[alike]:
            reasons[job.key] = found[alike]
    return reasons
