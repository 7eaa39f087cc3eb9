"""The workers that run in a private Ray, for ``MachineBackend``.

No other program uses this Ray, and the workers are ordinary actors, which end with this process.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from ....actors.worker.heartbeat import WorkerFacts
from ...placement.model.inventory import Node
from ...ray.public.actors import kill_actor
from ...ray.public.nodes import all_nodes
from ...survey.ray_probe import probe_ray_node
from ...worker_names import NodeId, WorkerId
from ..state.events import Reserve, Start
from ..state.messages import RayNode
from .backend import HERE
from .ray_calls import RayCalls


class PrivateBackend(RayCalls):
    """Acts on a Ray that no other program uses; ``why_ended`` returns why this Ray is lost, "" while it runs."""

    def __init__(self, why_ended: Callable[[], str]) -> None:
        super().__init__()
        self._why_ended = why_ended
        self._ray_id = NodeId("")
        self._node_lost = False

    async def look(self) -> tuple[RayNode, ...]:
        """Return the one node, with all cores and GPUs that Ray counts."""
        nodes = await asyncio.to_thread(all_nodes)  # a control service that hangs must not block this loop
        alive = [node for node in nodes if node["Alive"]]
        self._node_lost = bool(nodes) and not alive
        return tuple(map(self._described, alive))

    def _described(self, node: dict[str, Any]) -> RayNode:
        self._ray_id = NodeId(node["NodeID"])
        cores, gpus = (int(node["Resources"].get(kind, 0)) for kind in ("CPU", "GPU"))
        return RayNode(node=HERE, name=node["NodeManagerHostname"], cores=cores, free_cores=cores, gpus=gpus)

    async def probe(self, node: NodeId, *, again: bool) -> Node:
        return await probe_ray_node(self._ray_id, again=again, called=node)

    async def reserve(self, order: Reserve) -> int:
        return order.cores  # ``MachineBackend`` counts the cores

    async def start(self, order: Start) -> WorkerFacts:
        # No GPU is reserved: Ray would choose which one, and nobody else needs Ray's count of free GPUs.
        return await self._create(order, {"num_cpus": 0, "num_gpus": 0}, None, order.device)

    async def stop(self, worker: WorkerId) -> None:
        actor = self._actors.pop(worker, None)
        if actor is not None:
            kill_actor(actor.actor)

    def strategy(self, node: NodeId) -> Any:
        del node
        return "DEFAULT"  # there is only one node

    def world_is_gone(self) -> str:
        reason = "its node does not answer" if self._node_lost else self._why_ended()
        return f"Ray itself ended: {reason}" if reason else ""
