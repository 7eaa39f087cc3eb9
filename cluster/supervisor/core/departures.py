"""What ends with clients that are gone: their slots, and their work."""

from ..state.clients import ClientBook
from ..state.events import Abandon, AbandonOthers, Effect, Note
from ..state.state import SupervisorState
from ..state.stations import StationState

ORPHANS_S = 30.0
"""After a restart, a client that has not reported for this long is dead: an answer to it may take 15 s."""


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
        state.is_settled = False
        effects += abandon(state, book)
        effects.append(Note(f"client {book.where} sent no report for {expiry_s:g} s: its slots are released"))
    return effects


def drop_orphans(state: SupervisorState, now_s: float) -> list[Effect]:
    """Cancel, once after a restart, the work of clients that died while no supervisor ran."""
    if state.orphans_due_s is None or now_s < state.orphans_due_s:
        return []
    state.orphans_due_s = None
    clients = frozenset(client.client for client in state.clients)
    live = [book for book in state.stations.values() if book.state is StationState.READY]
    return [AbandonOthers(book.worker, clients) for book in live]
