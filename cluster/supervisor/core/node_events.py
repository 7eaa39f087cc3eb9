"""What follows when nodes come, go, are probed, cordoned or drained. Stations in quarantine wait for a probe."""

from ...logs.actions import LogAction
from ...probes.report.device_report import DeviceKind
from ...worker_names import node_of
from ..state import events
from ..state.events import Effect, Note, Order, Probe, Remember, Stop
from ..state.quarantine import rests_of
from ..state.state import SupervisorState
from ..state.stations import IN_USE, StationBook, StationState
from .departures import note_leaving
from .health import forget_xids, see_devices
from .planner import Planner
from .quarantining import end_rests, miss_trials, take_trials


def see_nodes(state: SupervisorState, event: events.NodesSeen, now_s: float) -> list[Effect]:
    """Take in which nodes there are; those that came are probed."""
    came, went, changed = state.nodes.see(event.nodes)
    if any(node.cores for node in event.nodes):
        state.processor_seen_s = now_s
    state.is_dirty = state.is_dirty or bool(changed)
    if came:
        state.is_dirty = True
    effects = note_leaving(state, event, now_s)
    for book in came:
        line = f"node {state.nodes.title(book.ray.node)} joined with {book.ray.cores} cores"
        effects += [
            Note(LogAction.NODE_JOINED, line, book.ids),
            Probe(book.ray.node),
        ]
    for book in went:
        effects.append(Note(LogAction.NODE_GONE, f"node {book.ray.name} is gone", book.ids))
        names = [name for name in state.stations if node_of(name) == book.ray.node]
        lost = [state.stations.pop(name) for name in names]
        # Processes may still live behind a broken network; their reservations must be released in any case.
        effects += [Stop(each.worker) for each in lost if each.state in IN_USE]
    return effects


def take_report(state: SupervisorState, planner: Planner, event: events.Probed, now_s: float) -> list[Effect]:
    """Take in what a node's probes found."""
    book = state.nodes.get(event.node.node)
    if book is None:
        return []
    book.report(planner.seen(event.node))
    state.is_dirty = True
    line = f"node {state.nodes.title(book.ray.node)} was probed: {book.summary}"
    effects: list[Effect] = [Note(LogAction.NODE_PROBED, line, book.ids)]
    effects += take_trials(state, book, now_s)
    effects += see_devices(state, event.node.node, now_s)
    return effects + _release_quarantined(state, event.node.node, now_s)


def miss_report(state: SupervisorState, event: events.ProbeFailed, now_s: float) -> list[Effect]:
    """Take in that a node's probes failed: its processor is used all the same."""
    book = state.nodes.get(event.node)
    if book is None:
        return []
    book.probing_since_s, book.has_answered = None, True
    state.is_dirty = True
    name = state.nodes.title(event.node)
    line = f"node {name} gave no report, so its GPUs are left alone: {event.reason}"
    effects: list[Effect] = [Note(LogAction.NODE_UNPROBED, line, book.ids)]
    effects += miss_trials(state, book, f"its node gave no report: {event.reason}", now_s)
    # Its CPU is used unprobed, so a station on it may try again too.
    effects += _release_quarantined(state, event.node, now_s, kinds=frozenset({DeviceKind.CPU}))
    for station in _held_at(state, event.node, now_s):
        rest_longer(state, station, now_s)
    return effects


def take_order(state: SupervisorState, event: events.Asked, now_s: float) -> list[Effect]:
    """Cordon, drain or uncordon a node, as a user asks now or asked before."""
    book = state.nodes.find(event.node)
    if book is None:
        line = f"asked to {event.order.value} {event.node}, which is not a node of this cluster"
        return [Note(LogAction.NODE_ORDERED, line)]
    book.order = event.order
    state.is_dirty = True
    effects: list[Effect] = []
    if event.order is Order.UNCORDON and not event.is_recalled:
        effects += end_rests(state, book, now_s)
        effects += [book.probe_again(now_s)] if forget_xids(book) or effects else []
    if not event.is_recalled:
        effects.append(Remember({each.ray.node: each.order for each in state.nodes if each.has_order}))
    before = " before" if event.is_recalled else ""
    line = f"node {state.nodes.title(book.ray.node)}: {event.order.value}, as a user asked{before}"
    return [*effects, Note(LogAction.NODE_ORDERED, line, book.ids)]


def rest_longer(state: SupervisorState, book: StationBook, now_s: float) -> None:
    """Have a quarantined station rest, for twice as long each time."""
    book.rest_until_s = now_s + rests_of(state.settings.quarantine_s).wait_s(book.quarantines + 1)
    book.quarantines += 1


def _held_at(state: SupervisorState, node: str, now_s: float) -> list[StationBook]:
    """Return the quarantined stations of a node that have rested."""
    held = (book for book in state.stations.values() if book.state is StationState.QUARANTINED)
    return [book for book in held if book.station.node == node and now_s >= book.rest_until_s]


def _release_quarantined(
    state: SupervisorState, node: str, now_s: float, kinds: frozenset[DeviceKind] = frozenset(DeviceKind)
) -> list[Effect]:
    """Let the quarantined stations of a node that was probed again start another process."""
    effects: list[Effect] = []
    for book in _held_at(state, node, now_s):
        if book.station.kind in kinds:
            book.to(StationState.EMPTY, now_s, "its node passed a probe")
            book.deaths_in_a_row = 0
            effects.append(Note(LogAction.WORKER_TRUSTED, f"{state.named(book)} is back from quarantine", book.ids))
    return effects
