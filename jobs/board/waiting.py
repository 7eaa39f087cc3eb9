"""What a job waits for, and never without end: a worker, and an output that another process holds."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from ...cluster.client.pool import Pool
from ...errors import FleetUnavailable, OutputInUse
from ..join.owner import LEASE_S, RENEWED_EVERY_S
from ..request.running import WaitOptions

WAITING_S = 5.0
"""A job that has had no worker for this long says why."""
IN_USE_S: Final = LEASE_S + RENEWED_EVERY_S
"""How long to wait for the process that holds an output: until the lease of a machine that died has ended.

A killed process of this machine holds it until the kernel has cleaned up, which takes seconds on a busy machine.
"""
_POLL_S: Final = 0.25
ResultT = TypeVar("ResultT")


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
        reason = self._pool.waits_for(self._job)
        if self._on_waiting is not None:
            await self._on_waiting(reason)
        self._waited_s += waited_s
        if 0 < self._limit_s <= self._waited_s:
            because = f": {reason}" if reason else ""
            message = f"the job has had no worker for {self._waited_s:g} s{because}"
            raise FleetUnavailable(message, "Look at codecfleet status; --wait-seconds 0 waits without end.")

    def is_over(self) -> None:
        """Take note that there is a worker."""
        self._waited_s = 0.0


async def when_free(call: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Await ``call``, again and again while another process holds the output, for ``IN_USE_S`` at most.

    Raises:
        OutputInUse: it still does.
    """
    for _ in range(int(IN_USE_S / _POLL_S)):
        with suppress(OutputInUse):
            return await call()
        await asyncio.sleep(_POLL_S)
    return await call()
