"""The seam between a supervisor's decisions and Ray.

``ray_backend.py`` and ``private_backend.py`` implement it; ``codecfleet.testing.FakeClusterBackend`` does in memory.
"""

from abc import ABC, abstractmethod
from typing import Any, Final

from ...placement.model.inventory import Node
from ...probes.gpus.live_health import DeviceHealth
from ...probes.report.absence import Maybe
from ...worker.heartbeat import Heartbeat, WorkerFacts
from ...worker.worker import Worker
from ..state.events import Reserve, Resize, Start
from ..state.messages import FoundWorker, RayNode

HERE: Final = "here"
"""The id of the one node of a machine that is ours alone."""


class ClusterBackend(ABC):
    """Carries out effects. Methods may be called concurrently, and raise errors as they are."""

    @property
    def polls(self) -> bool:
        """Whether GPUs can be polled by now."""
        return True

    async def know_gpus(self) -> None:  # noqa: B027 - most know them at once
        """Wait until ``look`` tells of every GPU, where it can without a probe."""

    async def when_to_probe(self, *, again: bool) -> None:  # noqa: B027 - most probe at once
        """Wait until a node's probe is worth what it has to start, however long that takes."""

    def want_gpus(self) -> None:  # noqa: B027 - as above
        """Have probes of GPUs wait no more: there is a job for them."""

    @abstractmethod
    async def look(self) -> tuple[RayNode, ...]:
        """Return the live nodes."""

    @abstractmethod
    async def find(self) -> tuple[FoundWorker, ...]:
        """Return the workers of an earlier supervisor, and remove reservations without a worker."""

    @abstractmethod
    async def probe(self, node: str, *, again: bool) -> Node:
        """Probe a node. ``again`` bypasses caches."""

    @abstractmethod
    async def reserve(self, order: Reserve) -> int:
        """Reserve a bundle; return the CPUs in it. Waits as long as Ray does: the caller limits it."""

    @abstractmethod
    async def start(self, order: Start) -> WorkerFacts:
        """Start a worker process in its bundle and wait until it answers."""

    @abstractmethod
    async def death_of(self, worker: str) -> str:
        """Wait until a worker is dead; return why."""

    @abstractmethod
    async def heartbeat(self, worker: str) -> Heartbeat:
        """Return a worker's heartbeat; the call also renews it, so that it does not fence itself.

        Raises:
            OldTerm: the worker has heard of a newer supervisor.
        """

    @abstractmethod
    async def stop(self, worker: str) -> None:
        """End a worker process, if there is one, and release its reservation. Idempotent."""

    @abstractmethod
    async def abandon(self, worker: str, client: str) -> None:
        """Make a worker cancel everything it runs for ``client``."""

    @abstractmethod
    async def abandon_others(self, worker: str, clients: frozenset[str]) -> None:
        """Make a worker cancel everything it runs for any client but ``clients``."""

    @abstractmethod
    async def sweep(self, in_use: frozenset[str]) -> None:
        """Release every reservation of ours that belongs to no worker in use."""

    @abstractmethod
    async def poll(self, node: str, pids: tuple[int, ...]) -> Maybe[tuple[DeviceHealth, ...]]:
        """Return how a node's GPUs are, or why that is unknown. ``pids`` are our workers' processes there.

        A cancelled call leaves nothing behind.
        """

    @abstractmethod
    async def stop_polling(self, node: str) -> None:
        """Release a node's GPUs, so that they may be reset. Idempotent."""

    @abstractmethod
    def handle(self, worker: str) -> Worker:
        """Return a worker, to be called by clients."""

    @abstractmethod
    def send(self, content: bytes) -> Any:
        """Store bytes where every worker can fetch them; return a reference for calls of workers."""

    async def resize(self, order: Resize) -> None:  # noqa: B027 - one machine stays one
        """Have these numbers of nodes come, and end these nodes. Idempotent: an order may be repeated.

        Raises:
            FleetUnavailable: what gives nodes does not, or cannot.
        """

    @abstractmethod
    async def keep(self, key: str, value: bytes) -> None:
        """Store a value beyond this supervisor's life."""

    @abstractmethod
    async def kept(self, key: str) -> bytes | None:
        """Return the value that was stored last; None if nothing."""

    @abstractmethod
    async def newest_term(self) -> int:
        """Return the newest term that a supervisor has claimed; 0 where there is but one supervisor."""

    @abstractmethod
    def world_is_gone(self) -> str:
        """Return why nothing can run any more; "" while it can."""


class UnsharedBackend(ClusterBackend):
    """One machine that no other program uses: nothing outlives this process, and there is no other supervisor."""

    async def find(self) -> tuple[FoundWorker, ...]:
        """Return nothing: there was no earlier supervisor."""
        return ()

    async def sweep(self, in_use: frozenset[str]) -> None:
        """Do nothing: nothing is reserved."""
        del in_use

    async def keep(self, key: str, value: bytes) -> None:
        """Do nothing: there is no later supervisor."""
        del key, value

    async def kept(self, key: str) -> bytes | None:
        """Return nothing: there was no earlier supervisor."""
        del key
        return None

    async def newest_term(self) -> int:
        """Return 0: there is no other supervisor."""
        return 0
