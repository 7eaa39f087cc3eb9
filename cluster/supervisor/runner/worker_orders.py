"""Carries out what the core orders of workers: reserve, start, stop, abandon. Who leads no more gives no order."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ...ray.ray_words import first_line
from ..backends.backend import ClusterBackend
from ..state import events
from ..state.events import Abandon, AbandonOthers, Reserve, Start, Stop, SupervisorEvent
from ..state.settings import SupervisorSettings
from .leading import Leading


class WorkerOrders:
    """Orders to ``backend``; ``feed`` takes what came of each, ``forget`` a worker that is gone."""

    def __init__(
        self,
        backend: ClusterBackend,
        leading: Leading,
        settings: SupervisorSettings,
        *,
        feed: Callable[[SupervisorEvent], None],
        forget: Callable[[str], None],
    ) -> None:
        self._backend = backend
        self._leading = leading
        self._settings = settings
        self._feed = feed
        self._forget = forget

    async def reserve(self, effect: Reserve) -> None:
        """Reserve what a worker needs."""
        if not await self._leading.leads():
            return
        limit_s = self._settings.reserve_limit_s
        try:
            cores = await asyncio.wait_for(self._backend.reserve(effect), limit_s)
        except Exception as error:  # noqa: BLE001 - any error of Ray's is the answer
            late = f"other Ray work holds what it needs; waited {limit_s:g} s"
            reason = late if isinstance(error, TimeoutError) else first_line(error)
            self._feed(events.NotReserved(effect.worker, reason))
        else:
            self._feed(events.Reserved(effect.worker, cores))

    async def run(self, effect: Start) -> None:
        """Start a worker, then wait for its death."""
        if not await self._leading.leads():
            return
        limit_s = self._settings.start_limit_s
        try:
            facts = await asyncio.wait_for(self._backend.start(effect), limit_s)
        except Exception as error:  # noqa: BLE001 - any error of Ray's means that it did not start
            late = f"it did not answer within {limit_s:g} s"
            self.report_death(effect.worker, late if isinstance(error, TimeoutError) else first_line(error))
            return
        self._feed(events.Started(effect.worker, facts))
        await self.await_death(effect.worker)

    async def await_death(self, worker: str) -> None:
        """Report the death of a worker that runs, whenever it comes."""
        self.report_death(worker, await self._backend.death_of(worker))

    def report_death(self, worker: str, reason: str) -> None:
        """Report that a worker has died, or that all has ended."""
        gone = self._backend.world_is_gone()
        self._feed(events.Ended(gone) if gone else events.Died(worker, reason))

    async def stop(self, effect: Stop) -> None:
        """End a worker, and release what it had reserved."""
        if not await self._leading.leads():
            return
        with suppress(Exception):  # an unreachable worker fences itself; the sweep releases its bundle
            await self._backend.stop(effect.worker)
        self._forget(effect.worker)
        self._feed(events.Stopped(effect.worker))

    async def abandon(self, effect: Abandon | AbandonOthers) -> None:
        """Have a worker end what it runs for clients that are gone."""
        if not await self._leading.leads():
            return
        with suppress(Exception):  # a worker that is gone runs nothing
            if isinstance(effect, Abandon):
                await self._backend.abandon(effect.worker, effect.client)
            else:
                await self._backend.abandon_others(effect.worker, effect.clients)
