"""Handles clients that join, report and leave."""

from ....actors.worker.orders import GoneClients
from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ..state import events
from ..state.clients import Call, ClientBook
from ..state.events import Abandon, AnswerReport, Effect, Note
from ..state.state import SupervisorState
from ..state.stations import StationState
from .answering import PASS_WAIT_S, answer, answers, clients_at
from .granting import grants_for
from .quarantining import take_faults
from .worker_events import died


def renewed(state: SupervisorState, event: events.Renewed, now_s: float) -> list[Effect]:
    """Apply a client's report, and answer the clients whose grants it changes."""
    report = event.report
    is_new = state.clients.get(report.client) is None
    renewal = state.clients.renew(report, now_s)
    # A segment that starts or ends changes no placement, but a worker that is no longer used may be released.
    is_let_go = any(worker.station not in state.plans.targets for worker in renewal.left)
    if renewal.is_wanted or is_let_go or (renewal.is_held and state.is_recovering(now_s)):
        state.is_dirty = True
    state.is_urgent |= renewal.is_new
    for worker in filter(state.is_live, report.proven):
        state.stations[worker.station].deaths_in_a_row = 0
    client = state.clients.get(report.client)
    if client is None:  # the client has left
        return [answer(state, state.event, report.client, grants_for(state, report.client, now_s))]
    until_s = now_s + event.wait_s
    client.calls += (Call(state.event, report.sequence, until_s, max(until_s, now_s + PASS_WAIT_S)),)
    effects: list[Effect] = []
    if is_new:
        effects.append(Note(LogAction.CLIENT_CAME, f"client {report.where} joined", LogIds(client=client.client)))
    for worker, reason in report.written_off.items():
        effects += died(state, events.Died(worker, reason), now_s)
    new = [fault for fault in report.faults if fault.number > client.faults_seen]
    client.faults_seen = max((fault.number for fault in new), default=client.faults_seen)
    effects += take_faults(state, new, now_s)
    is_urgent = state.is_dirty  # if a placement is due, send only news that cannot wait for it
    found = clients_at(state, [worker.station for worker in renewal.moved], without_slots=is_urgent)
    own = [client] if client not in found and (client.is_owed or not is_urgent) else []
    return effects + answers(state, [*own, *found], now_s, at_once=is_urgent)


def departed(state: SupervisorState, event: events.Departed, now_s: float) -> list[Effect]:
    """Remove a client that left."""
    book = state.clients.depart(event.client)
    if book is None:
        return []
    abandoned, answered = _end(state, book, now_s)
    left = Note(LogAction.CLIENT_LEFT, f"client {book.where} left", LogIds(client=book.client))
    return [*abandoned, left, *answered]


def expire_clients(state: SupervisorState, now_s: float) -> list[Effect]:
    """Remove clients that stopped reporting."""
    effects: list[Effect] = []
    expiry_s = state.settings.client_expiry_s
    for book in [each for each in state.clients if now_s - each.seen_s > expiry_s]:
        state.clients.forget(book.client)
        state.is_dirty = True
        abandoned, answered = _end(state, book, now_s)
        line = f"client {book.where} sent no report for {expiry_s:g} s: its slots are released"
        effects += [*abandoned, *answered, Note(LogAction.CLIENT_LOST, line, LogIds(client=book.client))]
    return effects


def _end(state: SupervisorState, book: ClientBook, now_s: float) -> tuple[list[Abandon], list[AnswerReport]]:
    """Cancel the work of a client that is gone, because nobody waits for the results; answer all its calls."""
    workers = sorted({worker for job in book.jobs.values() for worker in (*job.held, *job.promised)})
    grants = grants_for(state, book.client, now_s)
    return (
        [Abandon(worker, GoneClients(frozenset([book.client]))) for worker in workers if state.is_live(worker)],
        [answer(state, call.event, book.client, grants) for call in book.calls],
    )


def drop_orphans(state: SupervisorState, now_s: float) -> list[Effect]:
    """Once after a restart, cancel the work of clients that died while no supervisor ran."""
    if state.orphans_due_s is None or now_s < state.orphans_due_s:
        return []
    state.orphans_due_s = None
    gone = GoneClients(frozenset(client.client for client in state.clients), are_left=True)
    return [Abandon(book.worker, gone) for book in state.stations.values() if book.state is StationState.READY]
