"""A job without any worker: it says why, and does not wait without end."""

import asyncio
from collections.abc import Awaitable, Callable

from ...cluster.fleet.pool import Pool
from ...errors import FleetUnavailable
from ..request.running import WaitOptions

WAITING_S = 5.0
"""A job that has had no worker for this long says why."""


class WorkerWait:
    """How long a job has had no worker, in which this process was awake.

    ``options`` limit it; ``on_waiting`` is called with the reason.
    """

    def __init__(
        self, pool: Pool, job: str, options: WaitOptions, on_waiting: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self._pool = pool
        self._job = job
        self._limit_s = float(options.wait_s)
        self._on_waiting = on_waiting
        self._waited_s = 0.0

    async def goes_on(self, waited_s: float) -> None:
        """Count more seconds, and say what the job waits for.

        Raises:
            FleetUnavailable: it has waited too long.
        """
        reason = self._pool.state.of(self._job).waits_for
        if self._on_waiting is not None:
            await self._on_waiting(reason)
        self._waited_s += waited_s
        if 0 < self._limit_s <= self._waited_s:
            because = f": {reason}" if reason else ""
            message = f"the job has had no worker for {self._waited_s:g} s{because}"
            raise FleetUnavailable(message, "Look at codecfleet status; --wait-seconds 0 waits without end.")

    async def run(self) -> None:
        """Count on until cancelled, while the job waits for what only a worker can tell.

        Raises:
            FleetUnavailable: it has waited too long.
        """
        while True:
            await asyncio.sleep(WAITING_S)
            await self.goes_on(WAITING_S)

    def is_over(self) -> None:
        """Take note that there is a worker."""
        self._waited_s = 0.0
