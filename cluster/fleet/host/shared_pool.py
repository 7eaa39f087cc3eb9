"""One program's part in a pool that others use too."""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from ....actors.device.work import Work
from ....errors import Cancelled, UsageError
from ...placement.model.demand import Demand
from ...placement.model.preview import PlacementPreview
from ...supervisor.status.history import History
from ...supervisor.status.status import Status
from ..pool import Pool

ResultT = TypeVar("ResultT")


class SharedPool(Pool):
    """Passes everything on to ``pool``, which outlives it; closing it takes back what came through it.

    The pool shares its slots among jobs, so that each program's jobs get what they would get in one program.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._running: set[asyncio.Task[Any]] = set()
        self._jobs: set[str] = set()
        self._is_closed = False

    @property
    def slots(self) -> int:
        return self._pool.slots

    @property
    def notes(self) -> tuple[str, ...]:
        return self._pool.notes

    def slots_for(self, job: str) -> int:
        return self._pool.slots_for(job)

    def cores_for(self, job: str) -> int:
        return self._pool.cores_for(job)

    async def more_slots(self, job: str, beyond: int) -> None:
        await self._pool.more_slots(job, beyond)

    def waits_for(self, job: str) -> str:
        return self._pool.waits_for(job)

    async def preview(self, demand: Demand) -> PlacementPreview:
        return await self._pool.preview(demand)

    async def status(self) -> Status | None:
        return await self._pool.status()

    async def history(self, stations: tuple[str, ...]) -> History:
        return await self._pool.history(stations)

    def set_demand(self, demand: Demand) -> None:
        if not self._is_closed:
            self._jobs.add(demand.job)
            self._pool.set_demand(demand)

    def clear_demand(self, job: str) -> None:
        self._jobs.discard(job)
        self._pool.clear_demand(job)

    async def start(self) -> None:
        await self._pool.start()

    async def submit(self, work: Work[ResultT]) -> ResultT:
        if self._is_closed:
            raise UsageError("the pool is closed")
        running = asyncio.create_task(self._pool.submit(work))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            return await running
        except asyncio.CancelledError:
            if self._is_closed:
                raise Cancelled("the pool was closed") from None
            raise

    async def progress(self, job: str) -> Mapping[str, int]:
        return await self._pool.progress(job)

    async def stations(self, job: str) -> Mapping[str, str]:
        return await self._pool.stations(job)

    async def write_off(self, job: str, label: str, reason: str) -> None:
        await self._pool.write_off(job, label, reason)

    def found_wrong(self, job: str, label: str, reason: str) -> None:
        self._pool.found_wrong(job, label, reason)

    def found_doubtful(self, job: str, label: str, reason: str) -> None:
        self._pool.found_doubtful(job, label, reason)

    async def aclose(self) -> None:
        """Cancel what came through it, and clear its jobs' demands; the pool goes on. Idempotent."""
        self._is_closed = True
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for job in self._jobs:
            self._pool.clear_demand(job)
        self._jobs.clear()
