"""The lease protocol's client side: reports what jobs want and hold, and receives what they may use."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from ....actors.task_owner import TaskOwner
from ....errors import VersionRefused
from ...awake_clock import AwakeClock
from ...ray.ray_failures import LossScope, classify
from ...ray.ray_words import first_line
from ...supervisor.runner.client import SupervisorClient
from ...supervisor.state.messages import ClientReport, Grants

ANSWER_S = 15.0
"""How long an answer may take: a restarting supervisor needs seconds, a frozen one never answers."""
RENEW_S = 1.0
"""How long the supervisor may hold a report while nothing changes."""
COALESCE_S = 0.005
"""Changes share a report if they come within this time for each job that it tells of: a long one costs more to read."""
CALLS_AT_ONCE = 2
DEFECTS_MAX = 3
AGAIN_S = 0.2
GAP_MAX_S = ANSWER_S + RENEW_S
"""A longer time between two answers or failures was a suspended process's, and no silence of the supervisor's."""
LOST_PATIENCE_S = 60.0
"""How long a supervisor may be unreachable before jobs without slots give up."""


class LeaseRenewal:
    """Reports to an open ``supervisor`` repeatedly, and keeps the newest ``grants``; ``on_grants`` follows each change.

    They are unrecoverable once the supervisor stays away, and ``lost`` says why: another connection may reach it.
    """

    def __init__(
        self, supervisor: SupervisorClient, report: Callable[[], ClientReport], on_grants: Callable[[], None]
    ) -> None:
        self.grants = Grants({})
        self.lost = ""
        self._supervisor = supervisor
        self._report = report
        self._on_grants = on_grants
        self._changed = asyncio.Event()
        self._clock: Callable[[], float] = lambda: 0.0
        self._answered_s = 0.0
        self._defects = 0
        self._jobs = 0

    def report_soon(self) -> None:
        """Report a change without waiting for the answer under way."""
        self._changed.set()

    async def run(self) -> None:
        """Renew until cancelled.

        Raises:
            Exception: a defect, in a report or where grants are taken. A supervisor out of reach is tried again.
        """
        self._clock = AwakeClock(GAP_MAX_S, asyncio.get_running_loop().time)
        self._answered_s = self._clock()
        calls: set[asyncio.Task[None]] = set()
        async with TaskOwner() as owner:
            while True:
                self._changed.clear()
                call = owner.start(self._renew(), "a report to the supervisor")
                calls.add(call)
                call.add_done_callback(calls.discard)
                changed = owner.start(self._changed.wait(), "a change")
                await asyncio.wait({call, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                # A newer call makes the supervisor answer the older one, so two are never under way for long.
                await asyncio.sleep(COALESCE_S * max(1, self._jobs))
                if len(calls) >= CALLS_AT_ONCE:
                    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)

    async def _renew(self) -> None:
        report = self._report()
        self._jobs = len(report.jobs)
        try:
            grants = await asyncio.wait_for(self._supervisor.renew(report, RENEW_S), ANSWER_S)
        except Exception as error:  # noqa: BLE001 - the edge: every failure to reach it may be temporary
            await self._miss(error, self._clock() - self._answered_s)
            return
        self._answered_s, self._defects = self._clock(), 0
        if grants.number > self.grants.number:  # else newer ones are known
            self._accept(grants)

    async def _miss(self, error: Exception, silence_s: float) -> None:
        """Continue without an answer: granted slots stay usable, and the next try may reach the supervisor."""
        is_late = isinstance(error, TimeoutError)
        reason = f"no answer within {ANSWER_S:g} s" if is_late else first_line(error)
        # A late supervisor may be restarting; an error raised by our own code will be raised again.
        self._defects = self._defects + 1 if not is_late and classify(error) is LossScope.CODE else 0
        if self._defects >= DEFECTS_MAX:
            self._accept(self._unrecoverable(f"the supervisor fails: {reason}"))
        elif silence_s > LOST_PATIENCE_S:
            self.lost = f"the supervisor has been out of reach: {reason}"
            self._accept(self._unrecoverable(self.lost))
        await asyncio.sleep(AGAIN_S)
        with suppress(Exception):  # the next report fails too
            await self._open_again()

    async def _open_again(self) -> None:
        try:
            await self._supervisor.open()
        except VersionRefused as error:
            self._accept(replace(self._unrecoverable(error.message), what_next=error.next_step))

    def _accept(self, grants: Grants) -> None:
        self.grants = grants
        self._on_grants()

    def _unrecoverable(self, reason: str) -> Grants:
        return Grants({}, self.grants.number, unrecoverable=reason, what_next=self._supervisor.what_next)
