"""The backend of a machine: CPU workers are child processes, all other workers are actors of a private Ray.

Ray is imported and started only for a probe or the first of these actors; a Ray that runs already has all workers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ....actors.background import SharedCall
from ....actors.process.process import StartedProcess
from ....actors.worker.heartbeat import Heartbeat, WorkerFacts
from ....actors.worker.orders import GoneClients
from ...placement.model.inventory import Node
from ...probes.gpus.live_health import DeviceHealth
from ...probes.report.absence import Absence, Maybe, Unavailable
from ...ray.ray_words import first_line
from ...worker.child_worker import ChildWorker
from ...worker.worker import Worker
from ...worker_names import NO_WORKER, NodeId, WorkerId
from ..state.events import Reserve, Start
from ..state.messages import RayNode
from .backend import ClusterBackend

if TYPE_CHECKING:
    from ...survey.known_gpus import KnownGpus

LISTING: Final = "NVML has not listed this machine's GPUs yet"


class MachineBackend(ClusterBackend):
    """Acts on this machine.

    Args:
        node: the machine, with one core for each slot; its id is ``HERE``.
        gpus: returns a node's GPUs without a probe, and may block for seconds. None if the machine has no GPUs.
        ray: the backend of a Ray that runs already, or a function that starts Ray and returns the backend. The function
            is called only once: if it fails, every worker in Ray fails.
        start_process: starts a CPU worker's process; None if Ray has the CPU workers too.
    """

    def __init__(
        self,
        node: RayNode,
        gpus: "Callable[[NodeId], KnownGpus] | None",
        ray: ClusterBackend | Callable[[], Awaitable[ClusterBackend]],
        start_process: Callable[[], StartedProcess] | None = None,
    ) -> None:
        self._node = node
        self._start_process = start_process
        self._gpus = gpus
        self._listing: SharedCall | None = None
        self._listed: KnownGpus | None = None  # NVML's answer
        self._starting_ray: SharedCall | None = None
        self._ray = ray if isinstance(ray, ClusterBackend) else None
        self._start_ray = None if isinstance(ray, ClusterBackend) else ray
        self.polls = self._ray is not None  # Ray's agents poll GPUs as soon as Ray is up
        self._gpus_are_wanted = asyncio.Event()
        self._processes: dict[WorkerId, ChildWorker] = {}
        self._reserved: dict[WorkerId, Reserve] = {}

    async def know_gpus(self) -> None:
        if (listing := self._list_gpus()) is not None:
            await listing.wait()

    def _list_gpus(self) -> SharedCall | None:
        """Return the call that lists the GPUs through NVML, which is made only once; None on a machine without GPUs."""
        if self._listing is None and self._gpus is not None:
            self._listing = SharedCall(self._list(self._gpus), "listing of GPUs")
        return self._listing

    async def _list(self, gpus: "Callable[[NodeId], KnownGpus]") -> None:
        from ...survey.known_gpus import listed

        try:
            self._listed = await asyncio.to_thread(gpus, self._node.node)
        except Exception as error:  # noqa: BLE001 - any error means that the GPUs cannot be listed
            self._listed = listed(self._node.node, Unavailable(Absence.FAILED, first_line(error)))

    async def look(self) -> tuple[RayNode, ...]:
        """Return this machine, with its GPUs if they are known.

        Once Ray is up, Ray's view of the node is read too: Ray counts GPUs without NVML, and may have lost the node.
        """
        self._list_gpus()
        seen = () if self._ray is None else await self._ray.look()
        node = replace(self._node, free_cores=self._free_cores)
        if self._gpus is None:
            return (node,)
        if (known := self._listed) is None:
            return (replace(node, unlisted=LISTING),)
        listed = 0 if known.shown is None else known.shown.count
        count = seen[0].gpus if seen else listed
        unlisted = "" if count else known.trouble
        return (replace(node, gpus=count, devices=known.devices, shown=known.shown, unlisted=unlisted),)

    async def when_to_probe(self, *, again: bool) -> None:
        """If probing the GPUs requires Ray, wait until a job may use GPUs."""
        if self._ray is None and not again and await self._without_probe(again=False) is None:
            await self._gpus_are_wanted.wait()

    def want_gpus(self) -> None:
        self._gpus_are_wanted.set()

    async def probe(self, node: NodeId, *, again: bool) -> Node:
        """Return the machine with the documented capabilities of its GPUs.

        If they are not known for every GPU, or if ``again``, probe with Ray.
        """
        if (known := await self._without_probe(again=again)) is not None:
            return known
        probed = await (await self._with_ray()).probe(node, again=again)
        (seen,) = await self.look()
        return replace(seen, devices=probed.gpus, shown=probed.shown).unprobed()

    async def _without_probe(self, *, again: bool) -> Node | None:
        """Return the machine as known without a probe; None if a probe is needed."""
        await self.know_gpus()
        (seen,) = await self.look()
        return seen.unprobed() if self._gpus is None or (not again and seen.knows_its_gpus) else None

    async def reserve(self, order: Reserve) -> int:
        """Record the reservation, which is enough because no other program competes for the cores."""
        cores = min(order.cores, max(0, self._free_cores))
        self._reserved[order.worker] = replace(order, cores=cores)
        return cores

    @property
    def _free_cores(self) -> int:
        return self._node.cores - sum(order.cores for order in self._reserved.values())

    async def start(self, order: Start) -> WorkerFacts:
        reserved = self._reserved[order.worker]
        if self._start_process is not None and not order.worker.station.has_device:
            # This thread starts the child, because a child ends with the thread that started it, and this thread never
            # ends.
            process = self._processes[order.worker] = ChildWorker(self._start_process())
            return await process.begin(order.slots, order.cores)
        ray = await self._with_ray()
        await ray.reserve(reserved)
        return await ray.start(order)

    async def _with_ray(self) -> ClusterBackend:
        if self._ray is None and self._start_ray is not None:
            self._starting_ray = self._starting_ray or SharedCall(self._begin_ray(self._start_ray), "start of Ray")
            self.want_gpus()
            await self._starting_ray.wait()
        return self._on_ray(NO_WORKER)

    async def _begin_ray(self, start: Callable[[], Awaitable[ClusterBackend]]) -> None:
        self._ray, self.polls = await start(), True

    async def death_of(self, worker: WorkerId) -> str:
        process = self._processes.get(worker)
        return await (self._on_ray(worker).death_of(worker) if process is None else process.death())

    async def heartbeat(self, worker: WorkerId) -> Heartbeat:
        process = self._processes.get(worker)
        if process is None:
            return await self._on_ray(worker).heartbeat(worker)
        return await process.heartbeat(0)

    async def stop(self, worker: WorkerId) -> None:
        self._reserved.pop(worker, None)
        process = self._processes.pop(worker, None)
        if process is not None:
            process.end()
            await process.death()
        elif self._ray is not None:
            await self._ray.stop(worker)

    async def abandon(self, worker: WorkerId, clients: GoneClients) -> None:
        self.handle(worker).cancel(clients)

    async def poll(self, node: NodeId, pids: tuple[int, ...]) -> Maybe[tuple[DeviceHealth, ...]]:
        if self._ray is None:
            return Unavailable(Absence.NOT_FOUND, "Ray, which polls GPUs, has not started yet")
        return await self._ray.poll(node, pids)

    async def stop_polling(self, node: NodeId) -> None:
        if self._ray is not None:
            await self._ray.stop_polling(node)

    def handle(self, worker: WorkerId) -> Worker:
        return self._processes.get(worker) or self._on_ray(worker).handle(worker)

    def send(self, content: bytes) -> bytes:
        return content  # Ray's workers accept plain bytes too

    def world_is_gone(self) -> str:
        """Return why Ray is lost; "" while it runs or was never started."""
        return "" if self._ray is None else self._ray.world_is_gone()

    def _on_ray(self, worker: WorkerId) -> ClusterBackend:
        if self._ray is None:
            raise ValueError(f"no worker {worker} is alive")
        return self._ray
