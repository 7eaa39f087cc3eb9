"""The backend of a machine without GPUs: its first worker is a process of ours, and further ones are Ray's.

Ray starts with the first of them; until then nothing waits for it, and it is not imported.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ...placement.model.inventory import Node
from ...probes.gpus.live_health import DeviceHealth
from ...probes.report.absence import Absence, Maybe, Unavailable
from ...process.process import StartedProcess
from ...process.worker_process import WorkerProcess
from ...worker.heartbeat import Heartbeat, WorkerFacts
from ...worker_names import station_of
from ..state.events import Reserve, Start
from ..state.messages import RayNode
from .backend import ClusterBackend, UnsharedBackend

HERE: Final = "here"
"""The node's id: there is no other."""
FIRST: Final = f"{HERE}/cpu#0"


class MachineBackend(UnsharedBackend):
    """Acts on this machine.

    Args:
        node: the machine, with as many cores as there are slots; its id is ``HERE``.
        start_process: starts a worker's process.
        start_ray: starts Ray, and returns the backend there; called once. If it fails, so does every worker but the
            first.
    """

    def __init__(
        self,
        node: RayNode,
        start_process: Callable[[], StartedProcess],
        start_ray: Callable[[], Awaitable[ClusterBackend]],
    ) -> None:
        self._node = node
        self._start_process = start_process
        self._start_ray = start_ray
        self._ray: ClusterBackend | None = None
        self._starting_ray: asyncio.Future[ClusterBackend] | None = None
        self._processes: dict[str, WorkerProcess] = {}
        self._reserved: dict[str, Reserve] = {}

    async def look(self) -> tuple[RayNode, ...]:
        """Return this machine; once Ray is up its node is looked at too, whose loss is the machine's."""
        if self._ray is not None:
            await self._ray.look()
        return (self._node,)

    async def probe(self, node: str, *, again: bool) -> Node:
        """Return what is known without a probe: workers have our codecs."""
        del node, again
        return self._node.unprobed()

    async def reserve(self, order: Reserve) -> int:
        """Record the reservation: no other program could take it."""
        self._reserved[order.worker] = order
        return order.cores

    async def start(self, order: Start) -> WorkerFacts:
        reserved = self._reserved[order.worker]
        if station_of(order.worker) == FIRST:
            # In this thread, which does not end before the process: the kernel would end the worker with it.
            process = self._processes[order.worker] = WorkerProcess(self._start_process())
            return await process.begin(order.slots, reserved.cores)
        ray = await self._with_ray()
        await ray.reserve(reserved)
        return await ray.start(order)

    async def _with_ray(self) -> ClusterBackend:
        if self._starting_ray is None:
            self._starting_ray = asyncio.ensure_future(self._start_ray())
        self._ray = await asyncio.shield(self._starting_ray)
        return self._ray

    async def death_of(self, worker: str) -> str:
        process = self._processes.get(worker)
        return await (self._on_ray(worker).death_of(worker) if process is None else process.death())

    async def heartbeat(self, worker: str) -> Heartbeat:
        process = self._processes.get(worker)
        if process is None:
            return await self._on_ray(worker).heartbeat(worker)
        found: Heartbeat = await process.heartbeat.remote()
        return found

    async def stop(self, worker: str) -> None:
        self._reserved.pop(worker, None)
        process = self._processes.pop(worker, None)
        if process is not None:
            await process.end()
        elif self._ray is not None:
            await self._ray.stop(worker)

    async def abandon(self, worker: str, client: str) -> None:
        await self.handle(worker).abandon.remote(client)

    async def abandon_others(self, worker: str, clients: frozenset[str]) -> None:
        await self.handle(worker).abandon_others.remote(clients)

    async def poll(self, node: str, pids: tuple[int, ...]) -> Maybe[tuple[DeviceHealth, ...]]:
        del node, pids
        return Unavailable(Absence.NOT_FOUND, "the machine has no GPU")

    async def stop_polling(self, node: str) -> None:
        """Do nothing: there are no GPUs."""

    def handle(self, worker: str) -> Any:
        """Return a process of ours, or Ray's handle."""
        return self._processes.get(worker) or self._on_ray(worker).handle(worker)

    def send(self, content: bytes) -> bytes:
        """Return the bytes: Ray takes them as they are, too."""
        return content

    def world_is_gone(self) -> str:
        """Return why Ray is lost; "" while it is not, and where it was not needed."""
        return "" if self._ray is None else self._ray.world_is_gone()

    def _on_ray(self, worker: str) -> ClusterBackend:
        if self._ray is None:
            raise ValueError(f"no worker {worker} is alive")
        return self._ray
