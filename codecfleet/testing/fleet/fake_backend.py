"""A cluster in memory, which replaces Ray in tests of a supervisor."""

import asyncio
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from ...actors.worker.heartbeat import Heartbeat, WorkerFacts
from ...actors.worker.host import never
from ...actors.worker.orders import GoneClients
from ...cluster.autoscale.values import WantedNodes
from ...cluster.placement.model import Node
from ...cluster.probes.gpus import DeviceHealth
from ...cluster.probes.report import Maybe
from ...cluster.supervisor.backends import ClusterBackend
from ...cluster.supervisor.state import FoundWorker, RayNode, Reserve, Resize, Start, TellNode
from ...cluster.worker_names import NodeId, WorkerId
from ...errors import FleetUnavailable
from .fake_worker import FakeWorker

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...cluster.ray.keeper import Driving


_OFFER = "Set `offers` to the number of nodes in each group."


class FakeClusterBackend(ClusterBackend):
    """Nodes, reservations and workers in memory. One supervisor may follow another on the same backend.

    Reserving and releasing bundles updates the nodes' ``free_cores``.
    """

    def __init__(self, nodes: tuple[RayNode, ...]) -> None:
        self._nodes = {node.node: node for node in nodes}
        self._bundles: dict[WorkerId, tuple[NodeId, int]] = {}
        self._workers: dict[WorkerId, WorkerFacts] = {}
        self._deaths: dict[WorkerId, asyncio.Event] = {}
        self._why: dict[WorkerId, str] = {}
        self._handles: dict[WorkerId, FakeWorker] = {}
        self._pids = itertools.count(1000)
        self._numbers = itertools.count(1)
        self._kept: dict[str, bytes] = {}
        self.keep_error: Exception | None = None
        self.heartbeats: dict[WorkerId, Heartbeat] = {}
        self.frozen: set[WorkerId] = set()  # workers that do not answer
        self.renewed: list[WorkerId] = []
        self.starts = 0
        self.start_errors: list[Exception] = []
        self.gpus: dict[str, str] = {}  # the device of each GPU station
        self.healths: dict[str, Callable[[frozenset[int]], Maybe[tuple[DeviceHealth, ...]]]] = {}
        self.polled: list[str] = []
        self.polling_stopped: set[str] = set()
        self.ended = ""
        self.term: int | Exception = 0
        # for each group, the nodes that can be requested; None if there is no autoscaler
        self.offers: dict[str, int] | None = None
        self.resized: list[Resize] = []
        self.drivers: set[NodeId] = set()  # the nodes that keep a driver of a queue
        self.told: list[tuple[NodeId, Driving]] = []  # what these drivers were told
        self.tell_error: Exception | None = None
        self.may_probe = asyncio.Event()  # cleared to block probes
        self.may_probe.set()

    @property
    def workers(self) -> dict[WorkerId, WorkerFacts]:
        """The live workers by their names."""
        return dict(self._workers)

    @property
    def reserved_cores(self) -> int:
        """The number of reserved cores."""
        return sum(cores for _, cores in self._bundles.values())

    def join(self, node: RayNode) -> None:
        """Add a node, which the next ``look`` returns."""
        self._nodes[node.node] = node

    def lose(self, node: NodeId) -> None:
        """Remove a node and everything on the node."""
        del self._nodes[node]
        for worker in [name for name in self._workers if name.startswith(f"{node}/")]:
            self.kill(worker, "its node died")
        self._bundles = {worker: bundle for worker, bundle in self._bundles.items() if bundle[0] != node}

    def occupy(self, node: NodeId, cores: int) -> None:
        """Reserve some of a node's free cores for other programs; a negative number releases cores."""
        self._nodes[node] = replace(self._nodes[node], free_cores=self._nodes[node].free_cores - cores)

    def kill(self, worker: WorkerId, reason: str = "killed") -> None:
        """Kill a worker; ``death_of`` then returns ``reason``."""
        if self._workers.pop(worker, None) is not None:
            self._why[worker] = reason
            self._deaths[worker].set()
            if worker in self._handles:
                self._handles[worker].end()

    async def look(self) -> tuple[RayNode, ...]:
        return tuple(self._nodes.values())

    async def find(self) -> tuple[FoundWorker, ...]:
        for worker in [name for name in self._bundles if name not in self._workers]:
            self._give_back(worker)
        return tuple(FoundWorker(worker, facts) for worker, facts in self._workers.items())

    async def probe(self, node: NodeId, *, again: bool) -> Node:
        del again
        await self.may_probe.wait()
        return replace(self._nodes[node].unprobed(), keeper=f"keeper of {node}" if node in self.drivers else "")

    async def reserve(self, order: Reserve) -> int:
        """Reserve the cores; if they are not free, wait for ever."""
        node = self._nodes[order.station.node]
        if node.free_cores < order.cores:
            await asyncio.Event().wait()
        self.occupy(order.station.node, order.cores)
        self._bundles[order.worker] = (order.station.node, order.cores)
        return order.cores

    async def start(self, order: Start) -> WorkerFacts:
        """Start a worker, or raise the next error of ``start_errors``."""
        self.starts += 1
        if self.start_errors:
            raise self.start_errors.pop(0)
        worker = order.worker
        self._deaths[worker] = asyncio.Event()
        given = self.gpus.get(order.station.station, "")
        self._workers[worker] = WorkerFacts(next(self._pids), order.slots, given, cores=self._bundles[worker][1])
        return self._workers[worker]

    async def death_of(self, worker: WorkerId) -> str:
        await self._deaths[worker].wait()
        return self._why[worker]

    async def heartbeat(self, worker: WorkerId) -> Heartbeat:
        """Return the worker's entry in ``heartbeats`` or, without an entry, the heartbeat of a worker without work."""
        self.renewed.append(worker)
        if worker in self.frozen:
            await never()
        return self.heartbeats.get(worker, Heartbeat(0, ()))

    async def stop(self, worker: WorkerId) -> None:
        self.kill(worker, "stopped")
        self._give_back(worker)

    async def abandon(self, worker: WorkerId, clients: GoneClients) -> None:
        handle = self._handles.get(worker)
        if handle is not None:
            handle.cancel(clients)

    async def sweep(self, in_use: frozenset[WorkerId]) -> None:
        for worker in [name for name in self._bundles if name not in in_use]:
            self._give_back(worker)

    async def poll(self, node: NodeId, pids: tuple[int, ...]) -> Maybe[tuple[DeviceHealth, ...]]:
        """Call the node's function in ``healths``, such as the poll of a ``HealthPoll``."""
        self.polled.append(node)
        return self.healths[node](frozenset(pids))

    async def stop_polling(self, node: NodeId) -> None:
        self.polling_stopped.add(node)

    def handle(self, worker: WorkerId) -> FakeWorker:
        """Return a worker that runs work in threads of this process.

        Raises ``ValueError``, as Ray does, if no worker of this name is alive.
        """
        if worker not in self._workers:
            raise ValueError(f"no worker {worker} is alive")
        if worker not in self._handles:
            self._handles[worker] = FakeWorker(self._workers[worker].slots)
        return self._handles[worker]

    def send(self, content: bytes) -> bytes:
        """Return the bytes themselves, because workers are in this process."""
        return content

    async def resize(self, order: Resize) -> None:
        """Add and end nodes at once; nodes with a reservation stay.

        Raises FleetUnavailable: there is no autoscaler, or ``offers`` has too few nodes, so that no node joins.
        """
        self.resized.append(order)
        if self.offers is None:
            raise FleetUnavailable("this cluster has no autoscaler", _OFFER)
        for node in set(order.ended) & (self._nodes.keys() - {node for node, _ in self._bundles.values()}):
            self.lose(node)
        if any(group.count > self.offers.get(group.group, 0) for group in order.wanted):
            raise FleetUnavailable("there are too few nodes for the request, so none is added", _OFFER)
        for group in order.wanted:
            running = sum(group.labels.items() <= node.labels.items() for node in self._nodes.values())
            for _ in range(group.count - running):
                self.join(self._new_node(group))

    def _new_node(self, group: WantedNodes) -> RayNode:
        name = NodeId(f"{group.group}-{next(self._numbers)}")
        cores, gpus = (int(group.resources.get(kind, 0)) for kind in ("CPU", "GPU"))
        return RayNode(node=name, name=name, cores=cores, free_cores=cores, gpus=gpus, labels=dict(group.labels))

    async def tell_node(self, order: TellNode) -> None:
        """Record the order, or raise ``tell_error`` once."""
        error, self.tell_error = self.tell_error, None
        if error is not None:
            raise error
        self.told.append((order.node, order.driving))

    async def keep(self, key: str, value: bytes) -> None:
        if self.keep_error is not None:
            raise self.keep_error
        self._kept[key] = value

    async def kept(self, key: str) -> bytes | None:
        return self._kept.get(key)

    async def newest_term(self) -> int:
        """Return ``term``, or raise it if it is an exception."""
        if isinstance(self.term, Exception):
            raise self.term
        return self.term

    def world_is_gone(self) -> str:
        return self.ended

    def _give_back(self, worker: WorkerId) -> None:
        bundle = self._bundles.pop(worker, None)
        if bundle is not None and bundle[0] in self._nodes:
            self.occupy(bundle[0], -bundle[1])
