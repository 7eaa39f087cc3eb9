"""What a supervisor needs of the world: the one seam between its decisions and Ray.

``ray_backend.py`` and ``private_backend.py`` are the real things; ``codecfleet.testing.FakeClusterBackend`` is one in
memory.
"""

from abc import ABC, abstractmethod
from typing import Any

from ...placement.model.inventory import Node
from ...probes.gpus.live_health import DeviceHealth
from ...probes.report.absence import Maybe
from ...worker.facts import WorkerFacts
from ...worker.heartbeat import Heartbeat
from ..state.events import Order, Reserve, Start
from ..state.messages import FoundWorker, RayNode

__all__ = ["ClusterBackend"]


class ClusterBackend(ABC):
    """Carries out effects. Every method may be called concurrently; whatever goes wrong is raised as it is."""

    @abstractmethod
    async def look(self) -> tuple[RayNode, ...]:
        """Return the live nodes."""

    @abstractmethod
    async def find(self) -> tuple[FoundWorker, ...]:
        """Return the workers that an earlier supervisor left, and remove reservations without a worker."""

    @abstractmethod
    async def probe(self, node: str, *, again: bool) -> Node:
        """Probe a node. ``again`` wants no cached answers."""

    @abstractmethod
    async def reserve(self, order: Reserve) -> int:
        """Reserve a bundle; return the CPUs in it. Waits for as long as Ray lets it: the caller limits it."""

    @abstractmethod
    async def start(self, order: Start) -> WorkerFacts:
        """Start a worker process in its bundle and wait until it answers."""

    @abstractmethod
    async def death_of(self, station: str, epoch: int) -> str:
        """Wait until a worker is dead; return why."""

    @abstractmethod
    async def heartbeat(self, station: str, epoch: int) -> Heartbeat:
        """Ask a worker how it is; that also renews it, so that it does not fence itself."""

    @abstractmethod
    async def stop(self, station: str, epoch: int) -> None:
        """End a worker process, if there is one, and give its reservation back. Idempotent."""

    @abstractmethod
    async def abandon(self, station: str, epoch: int, client: str) -> None:
        """Have a worker stop whatever it runs for ``client``."""

    @abstractmethod
    async def sweep(self, in_use: frozenset[str]) -> None:
        """Give back every reservation of ours that belongs to no worker in use."""

    @abstractmethod
    async def poll(self, node: str, pids: tuple[int, ...]) -> Maybe[tuple[DeviceHealth, ...]]:
        """Ask how a node's GPUs are, or why that cannot be told. ``pids`` are our workers' processes there.

        A call that is cancelled, because it took too long, leaves nothing behind.
        """

    @abstractmethod
    async def stop_polling(self, node: str) -> None:
        """Let go of a node's GPUs, so that they may be reset. Idempotent."""

    @abstractmethod
    def handle(self, worker: str) -> Any:  # noqa: ANN401 - Ray's handles carry no types
        """Return what a client calls a worker by."""

    @abstractmethod
    def send(self, content: bytes) -> Any:  # noqa: ANN401 - Ray's references carry no types
        """Put bytes where every worker can fetch them; return what stands for them in a call of one."""

    @abstractmethod
    async def remember(self, orders: dict[str, Order]) -> None:
        """Keep what users asked about nodes, so that it outlives this supervisor: {node: order}."""

    @abstractmethod
    async def recall(self) -> dict[str, Order]:
        """Return what was kept last."""

    @abstractmethod
    def world_is_gone(self) -> str:
        """Say why nothing can run any more; "" while it can."""
