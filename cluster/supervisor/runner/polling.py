"""Polls every node's GPUs periodically, and feeds the results to the core."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any

from ....actors.backoff import Backoff
from ...probes.report.absence import Unavailable
from ...ray.ray_words import first_line
from ..backends.backend import ClusterBackend
from ..state.events import HealthSeen, HealthUnseen, SupervisorEvent
from ..state.settings import SupervisorSettings
from ..state.state import SupervisorState

REST_INTERVALS = (2, 60)
"""A node whose GPUs cannot be polled is tried again after 2, 4, 8 ... intervals, at most 60."""


class Polling:
    """Polls the nodes of ``state``; ``feed`` takes the resulting events, ``clock`` returns monotonic seconds."""

    def __init__(
        self,
        backend: ClusterBackend,
        state: SupervisorState,
        settings: SupervisorSettings,
        *,
        feed: Callable[[SupervisorEvent], None],
        spawn: Callable[[str, Coroutine[Any, Any, None]], None],
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._backend = backend
        self._state = state
        self._settings = settings
        self._rests = Backoff(*(intervals * settings.health_s for intervals in REST_INTERVALS))
        self._feed = feed
        self._spawn = spawn
        self._clock = clock
        self._sleep = sleep
        self._fps: dict[str, float] = {}
        self._next_s: dict[str, float] = {}
        self._failures: dict[str, int] = {}

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self._sleep(self._settings.health_s)
            for book in self._state.nodes if self._backend.polls else ():
                node = book.ray.node
                if not book.is_polled:
                    self._spawn(f"end of polls of {node}", self._backend.stop_polling(node))
                elif self._clock() >= self._next_s.get(node, 0.0):
                    self._next_s[node] = inf  # until this poll has ended
                    self._spawn(f"poll of {node}", self._poll(node))

    def note_speed(self, worker: str, fps: float) -> None:
        """Record a worker's speed while its device decoded; the maximum per poll counts."""
        self._fps[worker] = max(fps, self._fps.get(worker, 0.0))

    def forget(self, worker: str) -> None:
        """Drop a worker that is gone."""
        self._fps.pop(worker, None)

    async def _poll(self, node: str) -> None:
        here = [
            (book.worker, book.facts)
            for book in self._state.stations.values()
            if book.station.node == node and book.facts is not None
        ]
        fps = {worker: self._fps.pop(worker, 0.0) for worker, _ in here}
        event = await self._ask(node, tuple(facts.pid for _, facts in here), fps)
        failures = self._failures[node] = self._failures.get(node, 0) + 1 if isinstance(event, HealthUnseen) else 0
        self._next_s[node] = self._clock() + self._rests.wait_s(failures)
        self._feed(event)

    async def _ask(self, node: str, pids: tuple[int, ...], fps: dict[str, float]) -> HealthSeen | HealthUnseen:
        limit_s = self._settings.health_limit_s
        try:
            found = await asyncio.wait_for(self._backend.poll(node, pids), limit_s)
        except Exception as error:  # noqa: BLE001 - any error of the node is the answer
            late = f"no answer within {limit_s:g} s"
            return HealthUnseen(node, late if isinstance(error, TimeoutError) else first_line(error))
        return HealthUnseen(node, found.reason) if isinstance(found, Unavailable) else HealthSeen(node, found, fps)
