"""Answers a client's report as soon as the client's grants differ from the last ones, or when the wait ends."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ...grouping import counted
from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ...worker_names import StationId, WorkerId
from ..state.clients import ClientBook, client_of
from ..state.events import AnswerReport, Effect, Note
from ..state.messages import Grants
from ..state.state import SupervisorState
from .granting import grants_for

PASS_WAIT_S = 5.0
"""How long an answer may wait for a pending placement. Clients wait longer before they give up."""


def due(state: SupervisorState, now_s: float) -> list[ClientBook]:
    """Return the clients that have waited long enough for an answer."""
    return [book for book in state.clients if any(now_s >= call.until_s for call in book.calls)]


def clients_at(state: SupervisorState, stations: Iterable[StationId], *, without_slots: bool) -> list[ClientBook]:
    """Return the clients of jobs assigned to these stations; if ``without_slots``, only of jobs without a slot."""
    keys = {key for station in stations for key in state.plans.targets.get(station, ())}
    jobs = [job for key in keys if (job := state.clients.jobs_by_key.get(key)) is not None]
    names = {client_of(job.key) for job in jobs if not (without_slots and job.promised)}
    return [book for name in sorted(names) if (book := state.clients.get(name)) is not None]


def answers(
    state: SupervisorState, books: Iterable[ClientBook], now_s: float, *, at_once: bool = False
) -> list[Effect]:
    """Answer clients with news or a due call; while a placement is due, only at ``latest_s``, unless ``at_once``."""
    effects: list[Effect] = []
    waits = state.is_dirty and not state.end and not at_once
    for book in books:
        book.is_owed |= at_once and not book.calls
        if book.calls and not (waits and all(now_s < call.latest_s for call in book.calls)):
            effects += _answers(state, book, now_s)
    return effects


def _answers(state: SupervisorState, book: ClientBook, now_s: float) -> Iterator[Effect]:
    grants, before = grants_for(state, book.client, now_s), book.sent
    is_news = before is None or replace(grants, number=before.number) != before
    is_news = is_news or (before is not None and grants.leaving.keys() != before.leaving.keys())
    ended = [call for call in book.calls if call.sequence < book.sequence or now_s >= call.until_s]
    if is_news and not ended:  # news is sent at once, although no call is due
        ended = [*book.calls]
    book.calls, book.is_owed = tuple(call for call in book.calls if call not in ended), False
    if is_news:
        yield from _leases(book.client, {} if before is None else before.slots, grants.slots)
    for call in ended:
        given = answer(state, call.event, book.client, grants)
        book.sent = given.grants
        yield given


def answer(state: SupervisorState, call: int, client: str, grants: Grants) -> AnswerReport:
    """Return the answer to a client's call; ``call`` is the number of the call's event."""
    state.granted += 1
    return AnswerReport(call, client, replace(grants, number=state.granted))


_Slots = Mapping[str, Mapping[WorkerId, int]]


def _leases(client: str, before: _Slots, now: _Slots) -> Iterator[Note]:
    """Yield a note for each job that got its first slots, lost its last slots, or ended."""
    had = {job for job, slots in before.items() if slots}
    has = {job: slots for job, slots in now.items() if slots}
    for job in sorted(has.keys() - had):
        line = f"job {job} got {counted(sum(has[job].values()), 'slot')}"
        yield Note(LogAction.LEASE_GRANTED, line, LogIds(job=job, client=client), is_shown=False)
    for job in sorted(had - has.keys()):
        line = f"job {job} has no slots left"
        yield Note(LogAction.LEASE_ENDED, line, LogIds(job=job, client=client), is_shown=False)
