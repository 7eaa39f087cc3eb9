"""Polls every node's GPUs periodically, and passes the results to the core."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from math import inf
from typing import Any

from ....actors.backoff import Backoff
from ...probes.report.absence import Unavailable
from ...worker_names import NodeId, WorkerId
from ..backends.backend import ClusterBackend, NoAnswer, in_time
from ..state.events import HealthSeen, HealthUnseen, SupervisorEvent
from ..state.settings import SupervisorSettings
from ..state.state import SupervisorState
from .heartbeats import Heartbeats

RETRY_INTERVALS = (2, 60)  # after failed polls, a node is polled again after 2, 4, 8 ... intervals, at most 60


@dataclass(slots=True, kw_only=True)
class Polling:
    """Polls the GPUs of the nodes in ``state``."""

    backend: ClusterBackend
    state: SupervisorState
    settings: SupervisorSettings
    heartbeats: Heartbeats
    feed: Callable[[SupervisorEvent], None]
    spawn: Callable[[str, Coroutine[Any, Any, None]], object]
    clock: Callable[[], float]  # monotonic seconds
    sleep: Callable[[float], Awaitable[None]]
    _next_s: dict[NodeId, float] = field(default_factory=dict)  # when each node is polled next
    _failures: dict[NodeId, int] = field(default_factory=dict)  # how many polls of each node failed in a row

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self.sleep(self.settings.health_s)
            for known in self.state.nodes if self.backend.polls else ():
                node = known.ray.node
                if not known.is_polled:
                    self.spawn(f"end of polls of {node}", self.backend.stop_polling(node))
                elif self.clock() >= self._next_s.get(node, 0.0):
                    self._next_s[node] = inf  # no other poll of this node until this one has ended
                    self.spawn(f"poll of {node}", self._poll(node))

    async def _poll(self, node: NodeId) -> None:
        here = [
            (station.worker, station.facts)
            for station in self.state.stations.values()
            if station.station.node == node and station.facts is not None
        ]
        fps = {worker: self.heartbeats.take_decoding_fps(worker) for worker, _ in here}
        event = await self._ask(node, tuple(facts.pid for _, facts in here), fps)
        failures = self._failures[node] = self._failures.get(node, 0) + 1 if isinstance(event, HealthUnseen) else 0
        wait = Backoff(*(intervals * self.settings.health_s for intervals in RETRY_INTERVALS))
        self._next_s[node] = self.clock() + wait.wait_s(failures)
        self.feed(event)

    async def _ask(self, node: NodeId, pids: tuple[int, ...], fps: dict[WorkerId, float]) -> HealthSeen | HealthUnseen:
        try:
            found = await in_time(self.backend.poll(node, pids), self.settings.health_limit_s)
        except NoAnswer as reason:
            return HealthUnseen(node, str(reason))
        return HealthUnseen(node, found.reason) if isinstance(found, Unavailable) else HealthSeen(node, found, fps)
