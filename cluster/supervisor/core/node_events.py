"""Handles nodes that join, leave, are probed, or get a user's order."""

from collections.abc import Iterator

from ...logs.actions import LogAction
from ...placement.model.policy import with_policy
from ..state import events
from ..state.events import Effect, Note, Order, Probe, Remember, Stop, TellNode
from ..state.state import SupervisorState
from ..state.stations import IN_USE, StationState
from .autoscaling import scale
from .health import forget_xids, learn_refusals
from .quarantining import end_rests, miss_trials, release_stations, take_trials

HAND_BACK_S = 3.0
"""How long before a node's end its workers are ended. Clients are notified within a second."""


TELL_AGAIN_S = 10.0


def nodes_seen(state: SupervisorState, event: events.NodesSeen, now_s: float) -> list[Effect]:
    """Update the live nodes, and probe new nodes."""
    came, went, is_changed = state.nodes.see(event.nodes)
    if any(node.cores for node in event.nodes):
        state.processor_seen_s = now_s
    state.is_dirty |= is_changed
    state.is_urgent |= bool(went)
    effects = [*_compare_clocks(state, event), *_note_leaving(state, event, now_s)]
    for book in came:
        line = f"node {state.nodes.title(book.ray.node)} joined with {book.ray.cores} cores"
        effects += [Note(LogAction.NODE_JOINED, line, book.ids), Probe(book.ray.node)]
    for book in went:
        effects.append(Note(LogAction.NODE_GONE, f"node {book.ray.name} is gone", book.ids))
        names = [name for name in state.stations if name.node == book.ray.node]
        lost = [state.stations.pop(name) for name in names]
        # Processes of a lost node may survive behind a broken network; the reservations must be released anyway.
        effects += [Stop(each.worker) for each in lost if each.state in IN_USE]
    return effects + scale(state, now_s)


def _note_leaving(state: SupervisorState, event: events.NodesSeen, now_s: float) -> list[Effect]:
    """Update the time at which each draining node ends.

    A draining node states its end by its own clock, so the time left is counted on that clock too.
    """
    effects: list[Effect] = []
    for book in state.nodes:
        ends_s = book.ray.leaves_utc_s
        left_s = None if ends_s is None else ends_s - (event.utc_s - (book.skew_s or 0.0))
        if left_s is not None and book.leaves_s is None:
            line = f"node {state.nodes.title(book.ray.node)} ends in {left_s:.0f} s: Ray drains it"
            effects.append(Note(LogAction.NODE_LEAVING, line, book.ids))
        book.leaves_s = None if left_s is None else now_s + left_s
    return effects


def _compare_clocks(state: SupervisorState, event: events.NodesSeen) -> list[Effect]:
    """Update how far the clocks of nodes are behind, and report each clock that has become wrong."""
    effects: list[Effect] = []
    for book in state.nodes:
        before, book.skew_s = book.clock, event.skews_s.get(book.ray.node, book.skew_s)
        if book.clock and not before:
            line = f"node {state.nodes.title(book.ray.node)}: {book.clock}"
            effects.append(Note(LogAction.NODE_SKEWED, line, book.ids))
    return effects


def hand_back(state: SupervisorState, now_s: float) -> list[Effect]:
    """End the workers of nodes that are about to end; clients are notified at once, and run the work elsewhere."""
    leaving = [(book.ray.node, book.ends_s) for book in state.nodes if book.ends_s is not None]
    ending = {node for node, ends_s in leaving if now_s >= ends_s - HAND_BACK_S}
    effects: list[Effect] = []
    for book in state.stations.values() if ending else ():
        if book.station.node in ending and book.state is StationState.READY:
            note = state.note(LogAction.WORKER_ENDED, book, "is ended, because its node is leaving")
            book.to(StationState.LEAVING, now_s, "its node ends")
            state.is_dirty = True
            effects += [Stop(book.worker), note]
    return effects


def probed(state: SupervisorState, event: events.Probed, now_s: float) -> list[Effect]:
    """Apply the report of a node's probes."""
    book = state.nodes.get(event.node.node)
    if book is None:
        return []
    book.report(with_policy(event.node, state.planner.policy))
    line = f"node {state.nodes.title(book.ray.node)} was probed: {book.summary}"
    effects: list[Effect] = [Note(LogAction.NODE_PROBED, line, book.ids)]
    effects += take_trials(state, book, now_s)
    effects += learn_refusals(state, event.node.node, now_s)
    return effects + release_stations(state, event.node.node, now_s, has_report=True)


def probe_failed(state: SupervisorState, event: events.ProbeFailed, now_s: float) -> list[Effect]:
    """Apply a failed probe. The processor is used anyway, so the node's quarantined CPU stations may try again."""
    book = state.nodes.get(event.node)
    if book is None:
        return []
    book.probing_since_s, book.has_answered = None, True
    line = f"node {state.nodes.title(event.node)} did not report, so its GPUs are not used: {event.reason}"
    effects: list[Effect] = [Note(LogAction.NODE_UNPROBED, line, book.ids)]
    effects += miss_trials(state, book, f"its node gave no report: {event.reason}", now_s)
    return effects + release_stations(state, event.node, now_s, has_report=False)


def tell_nodes(state: SupervisorState, now_s: float) -> Iterator[Effect]:
    """Tell each node's driver what it may do, if this has changed since the driver was last told."""
    for book in state.nodes:
        if book.is_untold(now_s):
            book.told = book.driving
            yield TellNode(book.ray.node, book.driving)


def untold(state: SupervisorState, event: events.Untold, now_s: float) -> list[Effect]:
    """Tell a node again soon, because the last order may not have reached it."""
    book = state.nodes.get(event.node)
    if book is None:
        return []
    book.told, book.tell_at_s = None, now_s + TELL_AGAIN_S
    line = f"node {state.nodes.title(event.node)} could not be told what its driver may do: {event.reason}"
    return [Note(LogAction.NODE_ORDERED, line, book.ids, is_shown=False)]


def asked(state: SupervisorState, event: events.Asked, now_s: float) -> list[Effect]:
    """Apply a user's order to cordon, drain or uncordon a node."""
    book = state.nodes.find(event.node)
    if book is None:
        line = f"asked to {event.order.value} {event.node}, which does not name exactly one node of this cluster"
        return [Note(LogAction.NODE_ORDERED, line)]
    book.order = event.order
    effects: list[Effect] = []
    if event.order is Order.UNCORDON and not event.is_recalled:
        effects += end_rests(state, book, now_s)
        effects += [book.probe_again(now_s)] if forget_xids(book) or effects else []
    if not event.is_recalled:
        effects.append(Remember(state.nodes.orders))
    before = " before" if event.is_recalled else ""
    line = f"node {state.nodes.title(book.ray.node)}: {event.order.value}, as a user asked{before}"
    return [*effects, Note(LogAction.NODE_ORDERED, line, book.ids)]
