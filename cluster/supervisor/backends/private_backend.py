"""The backend of a private Ray.

No other program uses this Ray, and the workers are ordinary actors, which end with this process.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from ....actors.worker.heartbeat import WorkerFacts
from ... import machine
from ...placement.model.inventory import Node
from ...ray.public.actors import kill_actor
from ...ray.public.nodes import all_nodes
from ...survey.known_gpus import NO_GPUS, KnownGpus
from ...survey.ray_probe import probe_ray_node
from ...worker_names import NodeId, WorkerId
from ..state.events import Reserve, Start
from ..state.messages import RayNode
from .backend import HERE
from .ray_calls import RayCalls


class PrivateBackend(RayCalls):
    """Acts on a Ray that no other program uses.

    Args:
        slots: how many segments run at a time; None for one on each core.
        why_ended: returns why Ray is lost; "" while Ray runs.
        gpus: returns the machine's GPUs with their names and capabilities.
        dlas: how many of the machine's DLAs to use.
    """

    def __init__(
        self,
        slots: int | None,
        why_ended: Callable[[], str],
        gpus: Callable[[], Awaitable[KnownGpus]],
        dlas: int = 0,
    ) -> None:
        super().__init__()
        self._dlas = dlas
        self._gpus = gpus
        self._known: KnownGpus | None = None
        self._ray_id = NodeId("")
        self._slots = slots
        self._why_ended = why_ended
        self._node_lost = False
        self._reserved: dict[WorkerId, Reserve] = {}

    async def look(self) -> tuple[RayNode, ...]:
        """Return the one node, with one core for each slot."""
        nodes = await asyncio.to_thread(all_nodes)  # a control service that hangs must not block this loop
        alive = [node for node in nodes if node["Alive"]]
        self._node_lost = bool(nodes) and not alive
        return (await self._described(alive[0]),) if alive else ()

    async def _described(self, node: dict[str, Any]) -> RayNode:
        self._ray_id = NodeId(node["NodeID"])
        cores = self._slots or int(node["Resources"].get("CPU", 0))
        if self._known is None:  # listed once, before the first job, so that even short jobs can use GPUs
            has_any = node["Resources"].get("GPU", 0) > 0
            self._known = await self._gpus() if has_any else NO_GPUS
        return RayNode(
            node=HERE,
            name=node["NodeManagerHostname"],
            cores=cores,
            free_cores=cores - sum(order.cores for order in self._reserved.values()),
            gpus=int(node["Resources"].get("GPU", 0)),
            devices=self._known.devices,
            shown=self._known.shown,
            dlas=self._dlas,
            memory_bytes=machine.memory_bytes() - int(node["Resources"].get("object_store_memory", 0)),
        )

    async def probe(self, node: NodeId, *, again: bool) -> Node:
        """Return the node with the GPUs from the tables; if the tables do not list all GPUs, probe them."""
        seen = next(seen for seen in await self.look() if seen.node == node)
        if not again and seen.knows_its_gpus:
            return seen.unprobed()
        probed = await probe_ray_node(self._ray_id, again=again, called=node)
        return replace(seen, devices=probed.gpus, shown=probed.shown).unprobed()

    async def reserve(self, order: Reserve) -> int:
        """Record the reservation, which is enough because no other program uses this Ray."""
        self._reserved[order.worker] = order
        return order.cores

    async def start(self, order: Start) -> WorkerFacts:
        cores = self._reserved[order.worker].cores
        # Ray would choose the GPU itself, and nobody else needs Ray's count of free GPUs.
        return await self._create(order, {"num_cpus": 0, "num_gpus": 0}, cores, None, order.device)

    async def stop(self, worker: WorkerId) -> None:
        self._reserved.pop(worker, None)
        actor = self._actors.pop(worker, None)
        if actor is not None:
            kill_actor(actor.actor)

    def strategy(self, node: NodeId) -> Any:
        del node
        return "DEFAULT"  # there is only one node

    def world_is_gone(self) -> str:
        reason = "its node does not answer" if self._node_lost else self._why_ended()
        return f"Ray itself ended: {reason}" if reason else ""
