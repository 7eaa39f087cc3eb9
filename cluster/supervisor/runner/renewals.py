"""Clients' reports, and the grants that answer them: each call is held until there is news, or a newer report."""

import asyncio
import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from ...grouping import counted
from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ...logs.writing import log
from ...worker.newest_term import OldTerm
from ..core.answering import UNHEARD, Answers
from ..core.granting import grants_for
from ..state.events import Departed, Renewed, SupervisorEvent
from ..state.messages import ClientReport, Grants, JobGrants
from ..state.state import SupervisorState
from .leading import Leading

SETTLE_WAIT_S = 5.0
"""How long a call waits for the placement of what it asks for; less than clients wait for an answer."""
FRESH_S = 3.0
"""Slots are granted if this is known to have been the newest supervisor so long ago."""
ANSWERS_PER_EPOCH = 1_000_000


class Renewals:
    """Answers the clients of the supervisor whose ``state`` this is; ``feed`` passes an event to its core."""

    def __init__(
        self,
        state: SupervisorState,
        leading: Leading,
        *,
        feed: Callable[[SupervisorEvent], None],
        clock: Callable[[], float],
    ) -> None:
        self._state = state
        self._leading = leading
        self._feed = feed
        self._clock = clock
        self._concluded = asyncio.Event()
        self._settled = asyncio.Event()
        self._news = asyncio.Event()
        self._overtaken: dict[str, asyncio.Event] = {}
        self._sent: dict[str, Grants] = {}
        self._answers = Answers()
        # Larger than any earlier supervisor's, whose epochs began earlier.
        self._numbers = itertools.count(state.epoch * ANSWERS_PER_EPOCH)

    def concluded(self, *, is_news: bool, is_settled: bool) -> None:
        """Let calls go on that wait for a conclusion; with ``is_news``, those that wait for other grants as well.

        Where everything is not ``is_settled`` yet, calls that ask for something else wait for the next one.
        """
        self._concluded.set()
        self._concluded = asyncio.Event()
        if is_settled:
            self._settled.set()
            self._settled = asyncio.Event()
        if is_news:
            self._news.set()
            self._news = asyncio.Event()

    async def renew(self, report: ClientReport, wait_s: float) -> Grants:
        """Take a report; return the client's grants when they change, a newer report comes, or ``wait_s`` is over.

        Raises:
            OldTerm: another supervisor grants slots now.
        """
        if not self._state.clients.follows(report):
            return UNHEARD
        concluded = self._concluded
        self._feed(Renewed(report))
        self._wake(report.client)
        await concluded.wait()
        await self._placed(report.client)
        until_s = self._clock() + wait_s
        while True:
            news = self._news
            book = self._state.clients.get(report.client)
            grants = grants_for(self._state, report.client, self._clock())
            left_s = until_s - self._clock()
            is_stale = book is None or book.sequence > report.sequence
            if is_stale or left_s <= 0 or grants != self._sent.get(report.client):
                told = {} if book is None or self._state.end else dict(book.told)
                await self._leading.look(older_than_s=FRESH_S)
                if self._leading.over:
                    raise OldTerm(self._leading.over)
                return self._number(report, grants, told)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._first(news, report), left_s)

    async def _placed(self, client: str) -> None:
        """Wait until everything is placed, if what a client asks for was not."""
        book = self._state.clients.get(client)
        if book is not None and not (book.is_placed or self._state.end):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._settled.wait(), SETTLE_WAIT_S)

    def depart(self, client: str) -> None:
        """Remove a client."""
        self._feed(Departed(client))
        self._sent.pop(client, None)
        self._answers.forget(client)
        self._wake(client)

    def forget_expired(self) -> None:
        """Drop what is kept for clients that went without a word."""
        for kept in (self._sent, self._overtaken):
            for client in [name for name in kept if self._state.clients.get(name) is None]:
                del kept[client]
        for client in self._answers.clients():
            if self._state.clients.get(client) is None:
                self._answers.forget(client)

    def _number(self, report: ClientReport, grants: Grants, told: Mapping[str, JobGrants]) -> Grants:
        client = report.client
        book = self._state.clients.get(client)
        numbered = replace(grants, number=next(self._numbers), heard=0 if book is None else book.sequence)
        if book is None:
            return numbered
        book.sent_number = numbered.number
        self._say_leases(client, grants)
        self._sent[client] = grants
        return self._answers.cut(report, numbered, told)

    def _say_leases(self, client: str, grants: Grants) -> None:
        """Log which jobs have their first slots, and which have lost their last or are over."""
        before = {} if (sent := self._sent.get(client)) is None else sent.slots
        had = {job for job, slots in before.items() if slots}
        has = {job: slots for job, slots in grants.slots.items() if slots}
        for job in sorted(has.keys() - had):
            slots = counted(sum(has[job].values()), "slot")
            log(LogAction.LEASE_GRANTED, f"job {job} got {slots}", LogIds(job=job, client=client))
        for job in sorted(had - has.keys()):
            log(LogAction.LEASE_ENDED, f"job {job} has no slot any more", LogIds(job=job, client=client))

    def _wake(self, client: str) -> None:
        """Let a waiting call of this client return."""
        older = self._overtaken.pop(client, None)
        if older is not None:
            older.set()

    async def _first(self, news: asyncio.Event, report: ClientReport) -> None:
        """Wait for news, or for a newer report of the same client."""
        overtaken = self._overtaken.setdefault(report.client, asyncio.Event())
        waits = [asyncio.ensure_future(event.wait()) for event in (news, overtaken)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
