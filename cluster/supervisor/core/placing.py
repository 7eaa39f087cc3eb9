"""Places what is wanted: everything at once; or after a small change what that concerns, and soon after everything."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ...placement.assign.standing import StandingPlacement
from ...placement.model.caps import with_caps
from ...placement.model.demand import Demand
from ...placement.model.inventory import DeviceState, Inventory, Node
from ...placement.model.placement import Lane, Placement, Refusal
from ..state.clients import about, job_of
from ..state.events import Effect, Note
from ..state.nodes import NodeBook, places_of
from ..state.plans import Plans, Targets
from ..state.state import Basis, SupervisorState
from ..state.stations import StationBook, StationState
from .assigning import assign_slots
from .effective import effective_node, effective_nodes, has_transcoder, stations_by_node, without_late_gpus
from .granting import find_unservable
from .planner import Planner

SETTLE_S = 2.0
"""How soon a full placement follows a change of single nodes."""
SMALL_PART = 16
"""What stands is kept where at most one node in this many has changed: placing everything on a few is quick."""


def place_everything(state: SupervisorState, planner: Planner) -> list[Effect]:
    """Place every job on every node, where anything has changed that may lead elsewhere."""
    state.is_settled, state.settle_at_s = True, None
    for node in state.nodes:
        _set_out_stations(state, node)
    inventory = with_caps(Inventory(tuple(effective_nodes(state.nodes, state.stations))), state.caps)
    demands = tuple(job.demand for job in state.clients.jobs())
    wanted = (tuple(map(about, demands)), inventory)
    effects: list[Effect] = []
    if state.basis is None or not state.basis.is_as_placed(wanted):
        standing, placement, effects = _place_or_refuse(planner, demands, inventory)
        state.plans = Plans(placement)
        state.basis = Basis(wanted, standing, {node.node: node for node in inventory.nodes}, _shared(inventory))
        state.unservable = find_unservable(state, lambda demand: _place_or_refuse(planner, (demand,), inventory)[1])
    state.basis.stations = stations_by_node(state.stations)
    state.basis.has_transcoder = has_transcoder(state.stations)
    targets = _assigned(state, inventory.nodes, state.stations.values(), state.placement.lanes)
    if state.settings.bridges and (late := _late(state, targets)):
        _, now, _ = _place_or_refuse(planner, demands, without_late_gpus(inventory, state.stations.values()))
        targets = late | _assigned(state, inventory.nodes, state.stations.values(), now.lanes)
    state.plans.assign(list(state.targets), targets)
    state.capacity_slots = sum(map(_capacity, inventory.nodes))
    for client in state.clients:
        client.is_placed = True
    return effects


def place_touched(
    state: SupervisorState, touched: Collection[str], now_s: float, *, may_settle: bool
) -> tuple[frozenset[str] | None, list[Effect]]:
    """Place again what stood on the nodes that were touched, and keep all else.

    Return the nodes whose stations may have other work now; None where everything has to be placed instead. Without
    ``may_settle`` that comes later, and until then none has work where it could not be.
    """
    try:
        return _place_touched(state, touched, now_s, may_settle=may_settle), []
    except Exception as error:  # noqa: BLE001 - a defect must cost a full placement alone
        state.basis = None
        return None, [Note(LogAction.DEFECT, f"defect: what stands cannot be kept: {type(error).__name__}: {error}")]


def _place_touched(
    state: SupervisorState, touched: Collection[str], now_s: float, *, may_settle: bool
) -> frozenset[str] | None:
    if not touched:
        return frozenset()
    basis = state.basis
    if basis is None or basis.standing is None or state.is_recovering(now_s):
        return None
    nodes = sorted(basis.nodes.keys() & touched)
    is_small = _is_small(state, basis, nodes)
    if may_settle and not is_small:
        return None
    if not basis.shared.isdisjoint(nodes):
        nodes = sorted(basis.shared.union(nodes))  # so that none of their devices is assigned twice
    stale = [book.station.station for node in nodes for book in basis.stations.get(node, ())]
    for node in nodes:
        basis.stations[node] = _stations_now(state, basis, node)
    changed = [now for node in nodes if (now := _node_now(state, basis, node)) != basis.nodes[node]]
    if not (is_small and all(_follows(basis, node) for node in changed)):
        if may_settle:
            return None
        state.is_settled = False
        changed = [until for node in changed if (until := _until_settled(basis, node)) != basis.nodes[node.node]]
    concerned = frozenset(nodes)
    if changed:
        concerned |= _take_in(state, basis, changed)
        state.settle_at_s = now_s + SETTLE_S if state.settle_at_s is None else state.settle_at_s
    _assign_again(state, basis, concerned, stale)
    return concerned


def _late(state: SupervisorState, targets: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Return the targets among GPUs' stations whose workers have not started."""
    return {
        name: slots
        for name, slots in targets.items()
        if (book := state.stations[name]).station.takes_gpu and book.state is not StationState.READY
    }


def _set_out_stations(state: SupervisorState, node: NodeBook) -> None:
    for station in node.stations:
        book = state.stations.setdefault(station.station, StationBook(station))
        if book.state is StationState.EMPTY:
            book.station = station
        # Once Ray has free cores, a worker that reserves them replaces one that only shares them.
        is_relieved = book.borrows and node.ray.free_cores >= min(station.slots, node.ray.cores)
        book.outgoing = is_relieved or bool(book.recycle_due)


def _place_or_refuse(
    planner: Planner, demands: tuple[Demand, ...], inventory: Inventory
) -> tuple[StandingPlacement | None, Placement, list[Effect]]:
    """Place every demand; refuse one that makes the planner fail, without cost to the others."""
    try:
        return *planner.stand(demands, inventory), []
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
        if not refused:  # each can be placed by itself: then the fault is of all of them together
            line = f"defect: the jobs cannot be placed at once: {type(defect).__name__}: {defect}"
            notes = [Note(LogAction.DEFECT, line)]
        return None, Placement(placement.lanes, (*placement.refusals, *refused)), notes


def _capacity(node: Node) -> int:
    return node.cores if node.state is DeviceState.OPEN else 0


def _shared(inventory: Inventory) -> frozenset[str]:
    """Return the nodes that list a device which another lists too: both are on one host."""
    first: dict[str, str] = {}
    listed = ((device.device, node.node) for node in inventory.nodes for device in node.devices)
    pairs = ((first.setdefault(device, name), name) for device, name in listed)
    return frozenset(name for pair in pairs if pair[0] != pair[1] for name in pair)


def _is_small(state: SupervisorState, basis: Basis, nodes: Collection[str]) -> bool:
    """Return whether a change concerns single nodes alone, so that what stands elsewhere can be kept."""
    return (
        len(nodes) * SMALL_PART <= len(basis.nodes)
        and basis.shared.isdisjoint(nodes)
        and basis.has_transcoder == has_transcoder(state.stations)
    )


def _follows(basis: Basis, node: Node) -> bool:
    is_alone = not node.dlas and node.node not in basis.shared
    return is_alone and basis.standing is not None and basis.standing.follows(node)


def _until_settled(basis: Basis, now: Node) -> Node:
    """Return what a node counts as until everything is placed: what cannot be followed stays, or closes.

    It closes where something that could be used there cannot be any more.
    """
    before = basis.nodes[now.node]
    if _follows(basis, now):
        return now
    usable = {device.device for device in now.devices if device.state is DeviceState.OPEN}
    used = {device.device for device in before.devices if device.state is DeviceState.OPEN}
    if now.state is DeviceState.OPEN and used <= usable:
        return before
    return replace(before, state=DeviceState.DRAINING, state_reason="it has changed")


def _stations_now(state: SupervisorState, basis: Basis, name: str) -> list[StationBook]:
    node = state.nodes.get(name)
    if node is None:
        return []
    _set_out_stations(state, node)
    before = [book.station.station for book in basis.stations.get(name, ())]
    names = dict.fromkeys((*before, *(station.station for station in node.stations)))
    return [state.stations[station] for station in names if station in state.stations]


def _node_now(state: SupervisorState, basis: Basis, name: str) -> Node:
    book = state.nodes.get(name)
    if book is None:
        return replace(basis.nodes[name], state=DeviceState.DRAINING, state_reason="it is gone")
    node = effective_node(book, basis.stations[name], has_any=basis.has_transcoder)
    return with_caps(Inventory((node,)), state.caps).nodes[0]


def _take_in(state: SupervisorState, basis: Basis, changed: Sequence[Node]) -> frozenset[str]:
    """Have what stands follow what has become of nodes; return the nodes whose lanes may be others."""
    if basis.standing is None:
        return frozenset()
    replaced = basis.standing.take_in(changed)
    basis.is_moved = basis.is_moved or replaced.is_moved
    for node in changed:
        state.capacity_slots += _capacity(node) - _capacity(basis.nodes[node.node])
        basis.nodes[node.node] = node
        basis.changed.add(node.node)
    for job, lanes in replaced.lanes.items():
        state.plans.place_again(job, lanes)
    return frozenset(node for lanes in replaced.lanes.values() for node in lanes)


def _assign_again(state: SupervisorState, basis: Basis, nodes: Collection[str], stale: Iterable[str]) -> None:
    """Assign the slots of nodes again, so that no more changes than has to; ``stale`` are stations that may be gone."""
    keys = state.plans.at(nodes)
    lanes = [
        lane
        for key in keys
        for node in sorted(state.plans.of(key).lanes_at.keys() & nodes)
        for lane in state.plans.of(key).lanes_at[node]
    ]
    books = [book for node in sorted(nodes) for book in basis.stations.get(node, ())]
    names = dict.fromkeys((*stale, *(book.station.station for book in books)))
    before = {name: dict(state.targets[name]) for name in names if name in state.targets}
    here = [basis.nodes[node] for node in sorted(nodes)]
    state.plans.assign(names, _assigned(state, here, books, lanes, before))


def _assigned(
    state: SupervisorState,
    nodes: Iterable[Node],
    books: Iterable[StationBook],
    lanes: Sequence[Lane],
    before: Targets | None = None,
) -> dict[str, dict[str, int]]:
    kinds = {device.device: device.kind for node in nodes for device in node.devices}
    places = {node.node: places_of(book) for node in nodes if (book := state.nodes.get(node.node)) is not None}
    return assign_slots(lanes, books, kinds, state.clients.jobs_by_key, places, before=before)
