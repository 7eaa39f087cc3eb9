"""The interface between a supervisor's decisions and the machines that it acts on.

``codecfleet.testing.FakeClusterBackend`` implements it in memory.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from ....actors.worker.heartbeat import Heartbeat, WorkerFacts
from ....actors.worker.orders import GoneClients
from ...placement.model.inventory import Node
from ...probes.gpus.live_health import DeviceHealth
from ...probes.report.absence import Maybe
from ...ray.ray_words import first_line
from ...worker.worker import Worker
from ...worker_names import NodeId, WorkerId
from ..state.events import Reserve, Resize, Start, TellNode
from ..state.messages import FoundWorker, RayNode

HERE: Final = NodeId("here")  # the id of the only node, if no other program uses the machine


T = TypeVar("T")


class NoAnswer(Exception):
    """A call of a backend failed or took too long; the message is the reason in one line."""


async def in_time(call: Awaitable[T], limit_s: float, late: str = "") -> T:
    """Return a backend's answer.

    Raises NoAnswer: the call failed, or took longer than ``limit_s``. ``late`` is the message after a timeout.
    """
    try:
        async with asyncio.timeout(limit_s):
            answer = await call
    except Exception as error:
        late = late or f"no answer within {limit_s:g} s"
        raise NoAnswer(late if isinstance(error, TimeoutError) else first_line(error)) from error
    return answer


class ClusterBackend(ABC):
    """Carries out the core's effects. Methods may be called concurrently, and do not wrap errors.

    The defaults suit a single machine that no other program uses, where nothing outlives this process.
    """

    polls: bool = True  # whether GPUs can be polled yet

    async def know_gpus(self) -> None:
        """Wait until ``look`` returns every GPU that can be found without a probe."""

    async def when_to_probe(self, *, again: bool) -> None:
        """Wait, perhaps for ever, until the node should be probed even if Ray must start for the probe."""

    def want_gpus(self) -> None:
        """Allow probes of GPUs to start; called when a job may use GPUs."""

    @abstractmethod
    async def look(self) -> tuple[RayNode, ...]:
        """Return the live nodes."""

    async def find(self) -> tuple[FoundWorker, ...]:
        """Return the workers of an earlier supervisor, and remove reservations without a worker."""
        return ()

    @abstractmethod
    async def probe(self, node: NodeId, *, again: bool) -> Node:
        """Return a node as its probes report it; if ``again``, use no cached results."""

    @abstractmethod
    async def reserve(self, order: Reserve) -> int:
        """Reserve a bundle; return how many CPUs the bundle has. Ray may wait long, so the caller sets a limit."""

    @abstractmethod
    async def start(self, order: Start) -> WorkerFacts:
        """Start a worker process in the station's bundle, and wait until the process answers."""

    @abstractmethod
    async def death_of(self, worker: WorkerId) -> str:
        """Wait until a worker is dead; return the cause."""

    @abstractmethod
    async def heartbeat(self, worker: WorkerId) -> Heartbeat:
        """Return a worker's heartbeat. The call also renews the worker, which otherwise ends itself.

        Raises OldTerm: the worker obeys a newer supervisor.
        """

    @abstractmethod
    async def stop(self, worker: WorkerId) -> None:
        """End a worker's process, if any, and release the worker's reservation. Idempotent."""

    @abstractmethod
    async def abandon(self, worker: WorkerId, clients: GoneClients) -> None:
        """Make a worker cancel everything it runs for these clients."""

    async def sweep(self, in_use: frozenset[WorkerId]) -> None:
        """Release codecfleet's reservations that belong to no worker in use."""

    @abstractmethod
    async def poll(self, node: NodeId, pids: tuple[int, ...]) -> Maybe[tuple[DeviceHealth, ...]]:
        """Return the state of a node's GPUs, or why the state is unknown.

        ``pids`` are the workers' processes on the node.

        A cancelled call leaves nothing behind.
        """

    @abstractmethod
    async def stop_polling(self, node: NodeId) -> None:
        """Release a node's GPUs, so that they may be reset. Idempotent."""

    @abstractmethod
    def handle(self, worker: WorkerId) -> Worker:
        """Return a worker for clients to call."""

    @abstractmethod
    def send(self, content: bytes) -> Any:
        """Store bytes where every worker can fetch them; return a reference for calls of workers."""

    async def resize(self, order: Resize) -> None:
        """Request the nodes, and end the nodes, that ``order`` names. Idempotent.

        Raises FleetUnavailable: the autoscaler cannot provide the nodes, or does not try.
        """

    async def tell_node(self, order: TellNode) -> None:
        """Tell a node's program what its driver of a queue may do; orders may overtake each other."""

    async def keep(self, key: str, value: bytes) -> None:
        """Store a value under a key, for the next supervisor."""

    async def kept(self, key: str) -> bytes | None:
        """Return the value that was last stored under a key; None if there is none."""
        del key
        return None

    async def newest_term(self) -> int:
        """Return the newest term that any supervisor has claimed; 0 if no second supervisor is possible."""
        return 0

    @abstractmethod
    def world_is_gone(self) -> str:
        """Return why nothing can run any more; "" while work can run. Thread-safe."""
