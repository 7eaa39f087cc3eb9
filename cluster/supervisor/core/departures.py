"""What ends with clients and nodes that go: their slots, and their work."""

from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ..state.clients import ClientBook
from ..state.events import Abandon, AbandonOthers, Effect, NodesSeen, Note, Stop
from ..state.state import SupervisorState
from ..state.stations import StationState
from .answering import last_answers

ORPHANS_S = 30.0
"""After a restart, a client that has not reported for this long is dead: an answer to it may take 15 s."""

HAND_BACK_S = 3.0
"""How long before its node ends a worker is ended: its clients learn within a second."""


def abandon(state: SupervisorState, client: ClientBook) -> list[Effect]:
    """Cancel the work of a client that is gone: its results have no recipient."""
    workers = {worker for job in client.jobs.values() for worker in (*job.held, *job.promised)}
    return [Abandon(worker, client.client) for worker in sorted(workers) if state.is_live(worker)]


def expire_clients(state: SupervisorState, now_s: float) -> list[Effect]:
    """Remove the clients that have fallen silent."""
    effects: list[Effect] = []
    expiry_s = state.settings.client_expiry_s
    for book in state.clients.expired(now_s, expiry_s):
        state.clients.forget(book.client)
        state.is_dirty = True
        effects += [*abandon(state, book), *last_answers(state, book, now_s)]
        line = f"client {book.where} sent no report for {expiry_s:g} s: its slots are released"
        effects.append(Note(LogAction.CLIENT_LOST, line, LogIds(client=book.client)))
    return effects


def drop_orphans(state: SupervisorState, now_s: float) -> list[Effect]:
    """Cancel, once after a restart, the work of clients that died while no supervisor ran."""
    if state.orphans_due_s is None or now_s < state.orphans_due_s:
        return []
    state.orphans_due_s = None
    clients = frozenset(client.client for client in state.clients)
    live = [book for book in state.stations.values() if book.state is StationState.READY]
    return [AbandonOthers(book.worker, clients) for book in live]


def note_leaving(state: SupervisorState, event: NodesSeen, now_s: float) -> list[Effect]:
    """Take in when draining nodes end: spot notices, evictions, scale-downs."""
    effects: list[Effect] = []
    for book in state.nodes:
        ends_s = book.ray.leaves_utc_s
        if ends_s is not None and book.leaves_s is None:
            left_s = ends_s - event.utc_s
            line = f"node {state.nodes.title(book.ray.node)} ends in {left_s:.0f} s, as Ray was told"
            effects.append(Note(LogAction.NODE_LEAVING, line, book.ids))
        book.leaves_s = None if ends_s is None else now_s + ends_s - event.utc_s
    return effects


def hand_back(state: SupervisorState, now_s: float) -> list[Effect]:
    """End the workers of nodes whose notice is nearly over: their clients learn at once, and run the work elsewhere."""
    effects: list[Effect] = []
    for book in state.nodes:
        if book.leaves_s is None or now_s < book.leaves_s - HAND_BACK_S:
            continue
        for station in state.stations.values():
            if station.station.node == book.ray.node and station.state is StationState.READY:
                line = f"{state.named(station)} is ended: its node ends"
                station.to(StationState.LEAVING, now_s, "its node ends")
                state.is_dirty = True
                effects += [Stop(station.worker), Note(LogAction.WORKER_ENDED, line, station.ids)]
    return effects
