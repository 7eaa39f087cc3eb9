"""What a client and its supervisor keep telling each other: what jobs want and hold, and what they may use.

This module imports ray: see ``leased_pool``.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ..ray.ray_failures import LossScope, classify
from ..ray.ray_words import first_line
from ..supervisor.runner.client import SupervisorClient
from ..supervisor.state.messages import ClientReport, Grants

__all__ = ["ANSWER_S", "LeaseRenewal"]

ANSWER_S = 15.0
"""How long an answer may take: a supervisor that is restarted takes seconds, one that is frozen for ever."""
RENEW_S = 1.0
"""How long the supervisor may keep a report waiting for news."""
COALESCE_S = 0.005
CALLS_AT_ONCE = 2
DEFECTS_MAX = 3
AGAIN_S = 0.2
LOST_PATIENCE_S = 60.0
"""How long a supervisor may be out of reach before jobs that have nothing give up."""


class LeaseRenewal:
    """Reports to the supervisor behind ``link`` again and again, and hands on each grant that is newer than the last.

    ``grants`` are the last ones; where the supervisor stays away, they are hopeless.

    Args:
        link: open by the time that the conversation goes on.
        report: returns what to say now.
        hear: called once ``grants`` have changed.
    """

    def __init__(self, link: SupervisorClient, report: Callable[[], ClientReport], hear: Callable[[], None]) -> None:
        self.grants = Grants({})
        self._supervisor = link
        self._report = report
        self._hear = hear
        self._changed = asyncio.Event()
        self._heard_s = 0.0
        self._defects = 0

    def report_soon(self) -> None:
        """Report what has changed, without waiting for an answer that is under way."""
        self._changed.set()

    async def go_on(self) -> None:
        """Go on for ever."""
        self._heard_s = asyncio.get_running_loop().time()
        calls: set[asyncio.Task[None]] = set()
        try:
            while True:
                self._changed.clear()
                call = asyncio.create_task(self._renew())
                calls.add(call)
                call.add_done_callback(calls.discard)
                changed = asyncio.create_task(self._changed.wait())
                try:
                    await asyncio.wait({call, changed}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    changed.cancel()
                # Whatever changes in the same breath goes into one report; and the supervisor lets go of a call that
                # a newer one overtakes, so that two are never under way for long.
                await asyncio.sleep(COALESCE_S)
                if len(calls) >= CALLS_AT_ONCE:
                    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for call in calls:
                call.cancel()

    async def _renew(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            grants = await asyncio.wait_for(self._supervisor.renew(self._report(), RENEW_S), ANSWER_S)
        except Exception as error:  # noqa: BLE001 - the edge: whatever keeps us from the supervisor may pass
            await self._miss(error, loop.time() - self._heard_s)
            return
        self._heard_s, self._defects = loop.time(), 0
        if grants.number > self.grants.number:
            self._take_in(grants)

    async def _miss(self, error: Exception, silence_s: float) -> None:
        """Go on without an answer: leases that are there may be used, and the next try may reach the supervisor."""
        is_late = isinstance(error, TimeoutError)
        reason = f"no answer within {ANSWER_S:g} s" if is_late else first_line(error)
        # Who is late may be restarting; who answers with an error of our own code will do so again.
        self._defects = self._defects + 1 if not is_late and classify(error) is LossScope.CODE else 0
        if self._defects >= DEFECTS_MAX:
            self._take_in(_no_way(f"the supervisor fails: {reason}", self.grants.number))
        elif silence_s > LOST_PATIENCE_S:
            self._take_in(_no_way(f"the supervisor has been out of reach: {reason}", self.grants.number))
        await asyncio.sleep(AGAIN_S)
        with suppress(Exception):  # the next report tells
            await self._supervisor.open()

    def _take_in(self, grants: Grants) -> None:
        self.grants = grants
        self._hear()


def _no_way(reason: str, number: int) -> Grants:
    return Grants(
        {}, number, unrecoverable=reason, what_next="Look at `ray status`, and at the log of the node it runs on."
    )
