"""Clients' reports and their answers, at once if something has changed for the client, else when it does."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ....actors.worker.orders import GoneClients
from ...grouping import counted
from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ...worker_names import WorkerId
from ..state import events
from ..state.clients import Call, ClientBook, Renewal, client_of
from ..state.events import Abandon, AnswerReport, Effect, Note
from ..state.messages import Grants
from ..state.state import SupervisorState
from ..state.stations import StationState
from .granting import grants_for
from .quarantining import take_faults
from .worker_events import died

PASS_WAIT_S = 5.0
"""How long an answer may wait until everything is placed again; less than clients wait for one."""


def renewed(state: SupervisorState, event: events.Renewed, now_s: float) -> list[Effect]:
    """Apply a report, and answer those clients that get something else now."""
    report = event.report
    is_new = state.clients.get(report.client) is None
    renewal = state.clients.renew(report, now_s)
    # Work that has begun moves nothing; an unwanted worker may go.
    is_let_go = any(worker.station not in state.targets for worker in renewal.left)
    if renewal.is_wanted or is_let_go or (renewal.is_held and state.is_recovering(now_s)):
        state.is_dirty = True
    for worker in filter(state.is_live, report.proven):
        state.stations[worker.station].deaths_in_a_row = 0
    client = state.clients.get(report.client)
    if client is None:  # it has left
        return [_answer(state, state.event, report.client, grants_for(state, report.client, now_s))]
    until_s = now_s + event.wait_s
    client.calls += (Call(state.event, report.sequence, until_s, max(until_s, now_s + PASS_WAIT_S)),)
    effects: list[Effect] = []
    if is_new:
        effects.append(Note(LogAction.CLIENT_CAME, f"client {report.where} came", LogIds(client=client.client)))
    for worker, reason in report.written_off.items():
        state.is_dirty = True
        effects += died(state, events.Died(worker, reason), now_s)
    new = [fault for fault in report.faults if fault.number > client.faults_seen]
    client.faults_seen = max((fault.number for fault in new), default=client.faults_seen)
    effects += take_faults(state, new, now_s)
    return effects + answers(state, _concerned(state, client.client, renewal), now_s)


def _concerned(state: SupervisorState, client: str, renewal: Renewal) -> list[ClientBook]:
    """Return the clients whose grants a report may change: its own, and clients that share its workers."""
    keys = (key for worker in renewal.moved for key in state.targets.get(worker.station, ()))
    found = map(state.clients.get, sorted({client, *map(client_of, keys)}))
    return [book for book in found if book is not None]


def departed(state: SupervisorState, event: events.Departed, now_s: float) -> list[Effect]:
    """Remove a client that left."""
    book = state.clients.depart(event.client)
    if book is None:
        return []
    abandoned, answered = _end(state, book, now_s)
    left = Note(LogAction.CLIENT_LEFT, f"client {book.where} left", LogIds(client=book.client))
    return [*abandoned, left, *answered]


def expire_clients(state: SupervisorState, now_s: float) -> list[Effect]:
    """Remove the clients that have fallen silent."""
    effects: list[Effect] = []
    expiry_s = state.settings.client_expiry_s
    for book in state.clients.expired(now_s, expiry_s):
        state.clients.forget(book.client)
        state.is_dirty = True
        abandoned, answered = _end(state, book, now_s)
        line = f"client {book.where} sent no report for {expiry_s:g} s: its slots are released"
        effects += [*abandoned, *answered, Note(LogAction.CLIENT_LOST, line, LogIds(client=book.client))]
    return effects


def _end(state: SupervisorState, book: ClientBook, now_s: float) -> tuple[list[Abandon], list[AnswerReport]]:
    """Cancel the work of a client that is gone, since its results have no recipient, and answer all its calls."""
    workers = sorted({worker for job in book.jobs.values() for worker in (*job.held, *job.promised)})
    grants = grants_for(state, book.client, now_s)
    return (
        [Abandon(worker, GoneClients(frozenset([book.client]))) for worker in workers if state.is_live(worker)],
        [_answer(state, call.event, book.client, grants) for call in book.calls],
    )


def drop_orphans(state: SupervisorState, now_s: float) -> list[Effect]:
    """Cancel, once after a restart, the work of clients that died while no supervisor ran."""
    if state.orphans_due_s is None or now_s < state.orphans_due_s:
        return []
    state.orphans_due_s = None
    gone = GoneClients(frozenset(client.client for client in state.clients), are_left=True)
    return [Abandon(book.worker, gone) for book in state.stations.values() if book.state is StationState.READY]


def due(state: SupervisorState, now_s: float) -> list[ClientBook]:
    """Return the clients with an overdue call."""
    return [book for book in state.clients if any(now_s >= call.until_s for call in book.calls)]


def answers(state: SupervisorState, books: Iterable[ClientBook], now_s: float) -> list[Effect]:
    """Answer clients' calls; before the next placement, only those that cannot wait for it."""
    return [effect for book in books if book.calls for effect in _answers(state, book, now_s)]


def _answers(state: SupervisorState, book: ClientBook, now_s: float) -> Iterator[Effect]:
    if state.is_dirty and not state.end and all(now_s < call.latest_s for call in book.calls):
        return
    grants, before = grants_for(state, book.client, now_s), book.sent
    is_news = before is None or replace(grants, number=before.number) != before
    ended = [call for call in book.calls if is_news or call.sequence < book.sequence or now_s >= call.until_s]
    book.calls = tuple(call for call in book.calls if call not in ended)
    if is_news:
        yield from _leases(book.client, {} if before is None else before.slots, grants.slots)
    for call in ended:
        answer = _answer(state, call.event, book.client, grants)
        book.sent = answer.grants
        yield answer


def _answer(state: SupervisorState, call: int, client: str, grants: Grants) -> AnswerReport:
    state.granted += 1
    return AnswerReport(call, client, replace(grants, number=state.granted))


_Slots = Mapping[str, Mapping[WorkerId, int]]


def _leases(client: str, before: _Slots, now: _Slots) -> Iterator[Note]:
    """Yield which jobs have their first slots, and which have lost their last or are over."""
    had = {job for job, slots in before.items() if slots}
    has = {job: slots for job, slots in now.items() if slots}
    for job in sorted(has.keys() - had):
        line = f"job {job} got {counted(sum(has[job].values()), 'slot')}"
        yield Note(LogAction.LEASE_GRANTED, line, LogIds(job=job, client=client), is_shown=False)
    for job in sorted(had - has.keys()):
        line = f"job {job} has no slots left"
        yield Note(LogAction.LEASE_ENDED, line, LogIds(job=job, client=client), is_shown=False)
