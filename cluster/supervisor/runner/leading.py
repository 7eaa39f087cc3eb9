"""Whether a running supervisor is still the newest: it looks before each order, and once a second."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from ...logs.actions import LogAction
from ...logs.writing import log
from ..backends.backend import ClusterBackend
from ..state.terms import Standing, Tenure, after_look

AGAIN_S = 1.0
LOOK_LIMIT_S = 5.0


class Leading:
    """The standing of the supervisor of ``term``.

    Args:
        limit_s: how long it may be unable to look before it counts as cut off.
        clock: seconds in which this process ran.
        sleep: waits that many seconds.
    """

    def __init__(
        self,
        backend: ClusterBackend,
        term: int,
        limit_s: float,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._backend = backend
        self._tenure = Tenure(term, clock())
        self._limit_s = limit_s
        self._clock = clock
        self._sleep = sleep
        self._looked_s = time.monotonic()

    @property
    def over(self) -> str:
        """Why this supervisor may give no order any more; "" while it may."""
        return self._tenure.standing.value if self._tenure.is_over else ""

    async def leads(self) -> bool:
        """Wait until it is known whether this is the newest supervisor; return whether it is."""
        await self.look()
        while self._tenure.standing is Standing.UNSURE:
            await self._sleep(AGAIN_S)
            await self.look()
        return not self.over

    async def look(self, older_than_s: float = 0.0) -> None:
        """Look once, unless the last look was not ``older_than_s`` ago."""
        if time.monotonic() - self._looked_s < older_than_s:
            return
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                newest = await self._backend.newest_term()
        except Exception:  # noqa: BLE001 - the edge: whatever Ray raises, the answer is not known
            self._conclude(None)
        else:
            self._looked_s = time.monotonic()
            self._conclude(newest)

    def superseded(self) -> None:
        """Take notice that a worker has heard of a newer one."""
        self._conclude(self._tenure.term + 1)

    def _conclude(self, newest: int | None) -> None:
        was_over = self._tenure.is_over
        self._tenure = after_look(self._tenure, newest, self._clock(), self._limit_s)
        if self._tenure.is_over and not was_over:
            line = f"this supervisor, of term {self._tenure.term}, is {self.over}: it ends"
            log(LogAction.SUPERVISOR_REPLACED, line)
