"""Calls of workers and health agents, common to all backends."""

import asyncio
from typing import Any, Protocol

from ...placement.model.inventory import Node
from ...probes.cuda.choosing import LIBRARY_PATH
from ...probes.gpus.live_health import DeviceHealth
from ...probes.report.absence import Maybe
from ...ray.public.actors import Actor, kill_actor, make_actor, put
from ...ray.public.nodes import on_node
from ...ray.ray_words import first_line
from ...survey.health_agent import HealthAgent
from ...version import VERSION, refuse_worker
from ...worker.actor_worker import ActorWorker
from ...worker.heartbeat import Heartbeat, WorkerFacts
from ...worker.ray_worker import RayWorker
from ...worker_names import CONTROL
from ..state.events import Start
from .backend import ClusterBackend

_AGENT: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, "enable_task_events": False}
"""A health agent belongs to the supervisor that made it, and ends with it."""
CONTROL_CALLS = 64


class ProbeNode(Protocol):
    """Probes a node of the cluster."""

    async def __call__(self, node: str, *, again: bool, called: str = "") -> Node:
        """Return the node of this Ray id, as it is ``called`` in the inventory; errors are raised as they are."""
        ...


def share_of_gpu(gpus: float, sharers: int) -> float:
    """Return one worker's part of a shared GPU reservation; Ray counts ten-thousandths."""
    return gpus if sharers == 1 else int(gpus / sharers * 10_000) / 10_000


def library_path(search_path: str | None) -> dict[str, Any]:
    """Return the options of an actor whose process finds its libraries there; {} leaves its node's search path.

    The loader reads the variable when a process starts, so Ray starts one for this actor alone.
    """
    return {} if search_path is None else {"runtime_env": {"env_vars": {LIBRARY_PATH: search_path}}}


class RayCalls(ClusterBackend):
    """Calls workers and health agents, for the supervisor of ``term``; subclasses reserve and start them."""

    def __init__(self, term: int = 0) -> None:
        self._term = term
        self._actors: dict[str, ActorWorker] = {}
        self._agents: dict[str, Actor] = {}

    async def death_of(self, worker: str) -> str:
        try:
            await self._actors[worker].watch()
        except Exception as error:  # noqa: BLE001 - the edge: any error of Ray's means that the process is gone
            return first_line(error)
        return "it left on its own"

    async def heartbeat(self, worker: str) -> Heartbeat:
        if worker not in self._actors:
            raise ConnectionError(f"worker {worker} was stopped meanwhile")
        return await self._actors[worker].heartbeat(self._term)

    async def abandon(self, worker: str, client: str) -> None:
        await self._actors[worker].abandon(client, self._term)

    async def abandon_others(self, worker: str, clients: frozenset[str]) -> None:
        await self._actors[worker].abandon_others(clients, self._term)

    async def poll(self, node: str, pids: tuple[int, ...]) -> Maybe[tuple[DeviceHealth, ...]]:
        """Call the node's health agent, which is created for the first poll and after a failed one."""
        try:
            if node not in self._agents:
                options = {**_AGENT, "scheduling_strategy": self.strategy(node)}
                self._agents[node] = await asyncio.to_thread(make_actor, HealthAgent, options)
            found: Maybe[tuple[DeviceHealth, ...]] = await self._agents[node].poll.remote(pids)
        except BaseException:  # an agent that hangs or is gone is replaced
            await asyncio.shield(self.stop_polling(node))
            raise
        return found

    def strategy(self, node: str) -> Any:
        """Return how Ray is to be told to start something on a node alone."""
        return on_node(node)

    async def stop_polling(self, node: str) -> None:
        agent = self._agents.pop(node, None)
        if agent is not None:
            await asyncio.to_thread(kill_actor, agent)

    def handle(self, worker: str) -> ActorWorker:
        return self._actors[worker]

    def send(self, content: bytes) -> Any:
        return put(content)

    async def facts(self, worker: str) -> WorkerFacts:
        """Return a worker's identity.

        Raises:
            VersionRefused: its node has another version of codecfleet.
        """
        refuse_worker(await self._actors[worker].version(), VERSION)
        return await self._actors[worker].facts(self._term)

    async def _create(self, order: Start, options: dict[str, Any], cores: int, fence_s: float | None) -> WorkerFacts:
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
            takes_gpu=order.station.takes_gpu,
            part=order.station.part,
            counts_slices=order.station.counts_slices,
            avoided=tuple(name.removeprefix(f"{order.station.node}/") for name in sorted(order.avoided)),
            dla=order.station.dla,
            cores=cores,
            term=self._term,
            fence_s=fence_s,
        )
        self._actors[order.worker] = ActorWorker(actor)
        return await self.facts(order.worker)
