"""Calls to workers and health agents, common to both Ray backends."""

import asyncio
from dataclasses import replace
from typing import Any

from ....actors.worker.heartbeat import Heartbeat, WorkerFacts
from ....actors.worker.orders import GoneClients
from ...probes.cuda.choosing import LIBRARY_PATH
from ...probes.gpus.live_health import DeviceHealth
from ...probes.report.absence import Maybe
from ...ray.public.actors import Actor, kill_actor, make_actor, put
from ...ray.public.nodes import on_node
from ...survey.health_agent import HealthAgent
from ...version import VERSION, refuse_worker
from ...worker.actor_worker import ActorWorker
from ...worker.ray_worker import RayWorker
from ...worker_names import CONTROL, NodeId, WorkerId
from ..state.events import Start
from .backend import ClusterBackend

_AGENT: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, "enable_task_events": False}
"""A health agent belongs to the supervisor that created it, and ends when that supervisor ends."""
CONTROL_CALLS = 64


def library_path(search_path: str | None) -> dict[str, Any]:
    """Return options that start an actor with this LD_LIBRARY_PATH, for which Ray uses a separate process."""
    return {} if search_path is None else {"runtime_env": {"env_vars": {LIBRARY_PATH: search_path}}}


def _here(order: Start, device: str) -> str:
    """Return a device's name without the prefix that names its node."""
    return device.removeprefix(f"{order.station.node}/")


class RayCalls(ClusterBackend):
    """Calls workers and health agents for the supervisor of ``term``; subclasses reserve and start workers."""

    def __init__(self, term: int = 0) -> None:
        self._term = term
        self._actors: dict[WorkerId, ActorWorker] = {}
        self._agents: dict[NodeId, Actor] = {}

    async def death_of(self, worker: WorkerId) -> str:
        return await self._actors[worker].death()

    async def heartbeat(self, worker: WorkerId) -> Heartbeat:
        if worker not in self._actors:
            raise ConnectionError(f"worker {worker} was stopped during the call")
        return await self._actors[worker].heartbeat(self._term)

    async def abandon(self, worker: WorkerId, clients: GoneClients) -> None:
        self._actors[worker].cancel(replace(clients, term=self._term))

    async def poll(self, node: NodeId, pids: tuple[int, ...]) -> Maybe[tuple[DeviceHealth, ...]]:
        """Call the node's health agent, creating it for the first poll and after a failed poll."""
        try:
            if node not in self._agents:
                options = {**_AGENT, "scheduling_strategy": self.strategy(node)}
                self._agents[node] = await asyncio.to_thread(make_actor, HealthAgent, options)
            found: Maybe[tuple[DeviceHealth, ...]] = await self._agents[node].poll.remote(pids)
        except BaseException:  # an agent that hangs or is gone gets replaced
            await asyncio.shield(self.stop_polling(node))
            raise
        return found

    def strategy(self, node: NodeId) -> Any:
        """Return Ray's scheduling strategy for an actor or bundle that must be on this node."""
        return on_node(node)

    async def stop_polling(self, node: NodeId) -> None:
        agent = self._agents.pop(node, None)
        if agent is not None:
            await asyncio.to_thread(kill_actor, agent)

    def handle(self, worker: WorkerId) -> ActorWorker:
        return self._actors[worker]

    def send(self, content: bytes) -> Any:
        return put(content)

    async def facts(self, worker: WorkerId) -> WorkerFacts:
        """Return a worker's facts. Raises VersionRefused: the worker's node has another version of codecfleet."""
        refuse_worker(await self._actors[worker].version(), VERSION)
        return (await self._actors[worker].heartbeat(self._term)).facts

    async def _create(
        self, order: Start, options: dict[str, Any], fence_s: float | None, device: str = ""
    ) -> WorkerFacts:
        """Start a worker; ``device`` is the GPU that the worker uses, if Ray assigns no GPU."""
        settings = {
            "max_restarts": 0,
            "max_task_retries": 0,
            "concurrency_groups": {CONTROL: CONTROL_CALLS},
            "enable_task_events": False,
            **library_path(order.search_path),
            **options,
        }
        actor = await asyncio.to_thread(
            make_actor,
            RayWorker,
            settings,
            order.slots,
            takes_gpu=order.station.kind.takes_gpu,
            device=_here(order, device),
            part=order.station.station.part,
            counts_slices=order.station.counts_slices,
            avoided=tuple(_here(order, name) for name in sorted(order.avoided)),
            dla=order.station.dla,
            cores=order.cores,
            term=self._term,
            fence_s=fence_s,
        )
        self._actors[order.worker] = ActorWorker(actor)
        return await self.facts(order.worker)
