"""Answers clients' reports: at once where something has changed for them, else when it does, or their time is over."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ...grouping import counted
from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ...worker_names import station_of
from ..state.clients import Call, ClientBook, Renewal, client_of
from ..state.events import AnswerReport, Effect, Note, Renewed
from ..state.messages import Grants
from ..state.state import SupervisorState
from .granting import grants_for

PASS_WAIT_S = 5.0
"""How long an answer may wait until everything is placed again; less than clients wait for one."""


def take_call(state: SupervisorState, event: Renewed, now_s: float) -> list[Effect]:
    """Keep a report's call until ``answers`` ends it; that of a client that has left is answered at once."""
    book = state.clients.get(event.report.client)
    if book is None:
        return [_answer(state, state.event, event.report.client, grants_for(state, event.report.client, now_s))]
    until_s = now_s + event.wait_s
    call = Call(state.event, event.report.sequence, until_s, max(until_s, now_s + PASS_WAIT_S))
    book.calls = (*book.calls, call)
    return []


def concerned(state: SupervisorState, client: str, renewal: Renewal) -> list[ClientBook]:
    """Return the clients that may get something else after a report: its own, and those that share workers with it."""
    keys = (key for worker in renewal.moved for key in state.targets.get(station_of(worker), ()))
    found = map(state.clients.get, sorted({client, *map(client_of, keys)}))
    return [book for book in found if book is not None]


def answers(state: SupervisorState, books: Iterable[ClientBook], now_s: float) -> list[Effect]:
    """Answer the calls of clients; while everything is still to be placed, only those that cannot wait for it."""
    return [effect for book in books if book.calls for effect in _answers(state, book, now_s)]


def due(state: SupervisorState, now_s: float) -> list[ClientBook]:
    """Return the clients with a call whose time is over."""
    return [book for book in state.clients if any(now_s >= call.until_s for call in book.calls)]


def last_answers(state: SupervisorState, book: ClientBook, now_s: float) -> list[Effect]:
    """Answer all calls of a client that is gone."""
    grants = grants_for(state, book.client, now_s)
    return [_answer(state, call.event, book.client, grants) for call in book.calls]


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


def _answer(state: SupervisorState, asked: int, client: str, grants: Grants) -> AnswerReport:
    state.granted += 1
    return AnswerReport(asked, client, replace(grants, number=state.granted))


_Slots = Mapping[str, Mapping[str, int]]


def _leases(client: str, before: _Slots, now: _Slots) -> Iterator[Note]:
    """Yield which jobs have their first slots, and which have lost their last or are over."""
    had = {job for job, slots in before.items() if slots}
    has = {job: slots for job, slots in now.items() if slots}
    for job in sorted(has.keys() - had):
        line = f"job {job} got {counted(sum(has[job].values()), 'slot')}"
        yield Note(LogAction.LEASE_GRANTED, line, LogIds(job=job, client=client), is_shown=False)
    for job in sorted(had - has.keys()):
        line = f"job {job} has no slot any more"
        yield Note(LogAction.LEASE_ENDED, line, LogIds(job=job, client=client), is_shown=False)
