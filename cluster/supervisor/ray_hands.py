"""A supervisor's hands on Ray: placement groups, named actors, the node table.

On a cluster, workers and reservations are detached and carry their seat and epoch as names, so that they outlive the
supervisor and the next one finds them. On a private Ray there is nobody to outlive or to reserve against: workers are
ordinary actors, and end with this process.

This module imports ray: import it only where the environment that Ray reads then is settled.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import msgpack
import ray
from ray.experimental import internal_kv
from ray.util import list_named_actors
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from ..health_agent import HealthAgent
from ..known_gpus import NO_GPUS, KnownGpus
from ..placement.inventory import Node
from ..private_ray import NAMESPACE
from ..probes.absence import Maybe
from ..probes.device_report import DeviceKind
from ..probes.live_health import DeviceHealth
from ..ray_words import first_line
from ..ray_worker import CONTROL, RayWorker
from .events import Order, Reserve, Start
from .gpu_bundles import GpuBundles, reserve_on
from .hands import Hands
from .messages import FoundWorker, RayNode, WorkerFacts
from .pulse import Pulse

__all__ = ["ClusterHands", "PrivateHands", "live_nodes", "recall_orders", "worker_handle"]

Actor: TypeAlias = Any
"""Ray's handle of a ``RayWorker``: its methods are made at run time and carry no types."""


_AGENT: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, "enable_task_events": False}
"""A health agent belongs to the supervisor that made it, and ends with it."""


def _on(node: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node, soft=False)


class ProbeNode(Protocol):
    """Probes a node of the cluster."""

    async def __call__(self, node: str, *, again: bool) -> Node:
        """Return the node for the inventory; raises whatever went wrong."""
        ...


WORKER_PREFIX = "codecfleet-worker "
BUNDLE_PREFIX = "codecfleet-bundle "
MARKET_LABEL, SPOT = "ray.io/market-type", "spot"
"""Ray's label of a node that its cloud may take away at any moment."""
ORDERS_KEY = b"codecfleet/orders"
CONTROL_CALLS = 64
ADOPT_LIMIT_S = 5.0


def worker_handle(worker: str) -> Actor:
    """Return Ray's handle of a worker of a cluster, from anywhere in it.

    Raises:
        ValueError: there is no such worker alive.
    """
    return ray.get_actor(WORKER_PREFIX + worker, NAMESPACE)


class _RayHands(Hands):
    """What both have in common: calls to workers."""

    def __init__(self) -> None:
        self._actors: dict[str, Actor] = {}
        self._agents: dict[str, Actor] = {}

    async def death_of(self, seat: str, epoch: int) -> str:
        """Wait until a worker is dead; return why."""
        try:
            await self._call(f"{seat}:{epoch}", "watch")
        except Exception as error:  # noqa: BLE001 - the edge: whatever Ray raises here means that the process is gone
            return first_line(error)
        return "it left on its own"

    async def pulse(self, seat: str, epoch: int) -> Pulse:
        """Ask a worker how it is, and renew it."""
        found: Pulse = await self._call(f"{seat}:{epoch}", "pulse")
        return found

    async def abandon(self, seat: str, epoch: int, client: str) -> None:
        """Have a worker stop whatever it runs for ``client``."""
        actor = self._actors[f"{seat}:{epoch}"]
        await actor.abandon.options(concurrency_group=CONTROL).remote(client)

    async def poll(self, node: str, pids: tuple[int, ...]) -> Maybe[tuple[DeviceHealth, ...]]:
        """Ask the node's health agent; it is made for the first poll, and again after one that failed."""
        try:
            if node not in self._agents:
                make = ray.remote(**_AGENT)(HealthAgent).options(scheduling_strategy=_on(node)).remote
                self._agents[node] = await asyncio.to_thread(make)
            found: Maybe[tuple[DeviceHealth, ...]] = await self._agents[node].poll.remote(pids)
        except BaseException:  # an agent that hangs or is gone is of no use any more
            await asyncio.shield(self.stop_polling(node))
            raise
        return found

    async def stop_polling(self, node: str) -> None:
        """End the node's health agent."""
        agent = self._agents.pop(node, None)
        if agent is not None:
            await asyncio.to_thread(ray.kill, agent)

    def handle(self, worker: str) -> Actor:
        """Return Ray's handle of a worker."""
        return self._actors[worker]

    def send(self, content: bytes) -> Any:  # noqa: ANN401 - Ray's references carry no types
        """Put bytes into Ray's object store."""
        return ray.put(content)

    async def _call(self, worker: str, method: str) -> Any:  # noqa: ANN401 - whatever the method returns
        return await getattr(self._actors[worker], method).options(concurrency_group=CONTROL).remote()

    async def _create(self, order: Start, options: dict[str, Any], cores: int, fence_s: float | None) -> WorkerFacts:
        settings = {
            "max_restarts": 0,
            "max_task_retries": 0,
            "concurrency_groups": {CONTROL: CONTROL_CALLS},
            "enable_task_events": False,
            **options,
        }
        worker = f"{order.seat}:{order.epoch}"
        make = ray.remote(**settings)(RayWorker).remote
        actor = await asyncio.to_thread(
            make,
            order.slots,
            takes_gpu=order.takes_gpu,
            part=order.part,
            counts_slices=order.counts_slices,
            dla=order.dla,
            cores=cores,
            fence_s=fence_s,
        )
        self._actors[worker] = actor
        facts: WorkerFacts = await self._call(worker, "facts")
        return facts


class PrivateHands(_RayHands):
    """Hands on a Ray that is ours alone.

    Args:
        slots: pieces of work at a time, whatever cores the machine has.
        is_alive: whether Ray's own processes still run.
        probe: probes the machine, where Ray sees a GPU in it that nobody knows.
        gpus: the machine's GPUs: what they are called and known to do, given the node's id.
        dlas: how many of the machine's DLAs there are to use.
    """

    def __init__(
        self,
        slots: int | None,
        is_alive: Callable[[], bool],
        probe: ProbeNode,
        gpus: Callable[[str], KnownGpus],
        dlas: int = 0,
    ) -> None:
        super().__init__()
        self._dlas = dlas
        self._gpus = gpus
        self._known: KnownGpus | None = None
        self._probe = probe
        self._slots = slots
        self._is_alive = is_alive
        self._reserved: dict[str, Reserve] = {}

    async def look(self) -> tuple[RayNode, ...]:
        """Return the one node, with as many cores as slots were asked for."""
        alive = [node for node in ray.nodes() if node["Alive"]]
        return (await self._described(alive[0]),) if alive else ()

    async def _described(self, node: dict[str, Any]) -> RayNode:
        cores = self._slots or int(node["Resources"].get("CPU", 0))
        known = await self._known_gpus(node)
        return RayNode(
            node=node["NodeID"],
            name=node["NodeManagerHostname"],
            cores=cores,
            free_cores=cores - sum(order.cores for order in self._reserved.values()),
            gpus=int(node["Resources"].get("GPU", 0)),
            devices=known.devices,
            shown=known.shown,
            dlas=self._dlas,
        )

    async def _known_gpus(self, node: dict[str, Any]) -> KnownGpus:
        """Return the machine's GPUs; asked once, before the first work, so that even a short job has them."""
        if self._known is None:
            has_any = node["Resources"].get("GPU", 0) > 0
            self._known = await asyncio.to_thread(self._gpus, node["NodeID"]) if has_any else NO_GPUS
        return self._known

    async def find(self) -> tuple[FoundWorker, ...]:
        """Find nothing: nobody was here before."""
        return ()

    async def probe(self, node: str, *, again: bool) -> Node:
        """Say what is known without asking: this process's codecs are the workers', and the tables have most GPUs."""
        seen = next(seen for seen in await self.look() if seen.node == node)
        if not again and all(device.trials for device in seen.devices) and len(seen.devices) >= seen.gpus:
            return seen.unprobed()
        probed = await self._probe(node, again=again)
        gpus = tuple(device for device in probed.devices if device.kind is not DeviceKind.CPU)
        return replace(seen, devices=gpus, shown=probed.shown).unprobed()

    async def reserve(self, order: Reserve) -> int:
        """Reserve nothing with Ray, since nobody else could take it; count it all the same."""
        self._reserved[f"{order.seat}:{order.epoch}"] = order
        return order.cores

    async def start(self, order: Start) -> WorkerFacts:
        """Start a worker process."""
        reserved = self._reserved[f"{order.seat}:{order.epoch}"]
        gpus = _share(reserved.gpus, reserved.sharers)
        return await self._create(order, {"num_cpus": 0, "num_gpus": gpus}, reserved.cores, None)

    async def stop(self, seat: str, epoch: int) -> None:
        """Kill a worker process."""
        self._reserved.pop(f"{seat}:{epoch}", None)
        actor = self._actors.pop(f"{seat}:{epoch}", None)
        if actor is not None:
            ray.kill(actor)

    async def sweep(self, in_use: frozenset[str]) -> None:
        """Give back nothing: nothing is reserved."""
        del in_use

    async def remember(self, orders: dict[str, Order]) -> None:
        """Keep nothing: nobody will come after."""
        del orders

    async def recall(self) -> dict[str, Order]:
        """Return nothing: nobody was here before."""
        return {}

    def world_is_gone(self) -> str:
        """Say whether Ray itself has ended."""
        return "" if self._is_alive() else "Ray itself ended: one of its own processes died"


class ClusterHands(_RayHands):
    """Hands on a cluster that others use too.

    Args:
        fence_s: how long a worker lives that nobody renews.
        probe: probes a node by its id.
    """

    def __init__(self, fence_s: float, probe: ProbeNode) -> None:
        super().__init__()
        self._fence_s = fence_s
        self._probe = probe
        self._bundles: dict[str, PlacementGroup] = {}
        self._shared = GpuBundles()
        self._sizes: dict[str, tuple[int, float]] = {}

    async def look(self) -> tuple[RayNode, ...]:
        """Return the live nodes, with what nobody has reserved."""
        return await asyncio.to_thread(live_nodes)

    async def find(self) -> tuple[FoundWorker, ...]:
        """Return the workers that an earlier supervisor left, and give back reservations that hold none."""
        named = await asyncio.to_thread(list_named_actors, all_namespaces=True)
        names = [entry["name"] for entry in named if entry["namespace"] == NAMESPACE]
        workers = [name.removeprefix(WORKER_PREFIX) for name in names if name.startswith(WORKER_PREFIX)]
        reserved = frozenset(await asyncio.to_thread(_reserved_workers))
        adopted = await asyncio.gather(*(self._adopt(worker, reserved) for worker in workers))
        found = [worker for worker in adopted if worker is not None]
        await self.sweep(frozenset(f"{worker.seat}:{worker.epoch}" for worker in found))
        return tuple(found)

    async def sweep(self, in_use: frozenset[str]) -> None:
        """Give back every reservation that belongs to no worker in use: made too late, or not given back in time."""
        for worker in await asyncio.to_thread(_reserved_workers):
            if worker not in in_use:
                await self._give_back(worker)
        await self._shared.sweep({*in_use, *self._sizes})

    async def _adopt(self, worker: str, reserved: frozenset[str]) -> FoundWorker | None:
        try:
            self._actors[worker] = await asyncio.to_thread(worker_handle, worker)
            facts = await asyncio.wait_for(self._call(worker, "facts"), ADOPT_LIMIT_S)
        except Exception:  # noqa: BLE001 - it is dead or as good as dead; its clients will hear so
            await self._kill(worker)
            return None
        seat, _, epoch = worker.rpartition(":")
        return FoundWorker(seat, int(epoch), facts, worker in reserved)

    async def probe(self, node: str, *, again: bool) -> Node:
        """Probe a node in a Ray task on it."""
        return await self._probe(node, again=again)

    async def reserve(self, order: Reserve) -> int:
        """Reserve a bundle on the order's node, detached; return the CPUs in it.

        Where seats share a GPU, it is in a bundle of its own, and the CPUs in another, which holds no worker.
        """
        worker = f"{order.seat}:{order.epoch}"
        self._sizes[worker] = (order.cores, _share(order.gpus, order.sharers))
        own_gpus = order.gpus if order.sharers == 1 else 0.0
        bundle = {name: amount for name, amount in (("CPU", order.cores), ("GPU", own_gpus)) if amount}
        if order.sharers > 1:
            await self._shared.reserve(order)
        if bundle:
            group = await asyncio.to_thread(reserve_on, order.node, bundle, BUNDLE_PREFIX + worker)
            self._bundles[worker] = group
            await group.ready()
        return order.cores

    async def start(self, order: Start) -> WorkerFacts:
        """Start a worker process in its bundle, detached and named."""
        worker = f"{order.seat}:{order.epoch}"
        cores, gpus = self._sizes[worker]
        shared = self._shared.get(worker)
        group = shared or self._bundles.get(worker)
        strategy: Any = (
            _on(order.node)
            if group is None
            else PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
        )
        options = {
            "num_cpus": 0 if shared else cores,
            "num_gpus": gpus,
            "name": WORKER_PREFIX + worker,
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "scheduling_strategy": strategy,
        }
        return await self._create(order, options, cores, self._fence_s)

    async def stop(self, seat: str, epoch: int) -> None:
        """Kill a worker process and give its reservation back, whoever made them."""
        worker = f"{seat}:{epoch}"
        try:
            await self._kill(worker)
        finally:
            await self._give_back(worker)

    async def _kill(self, worker: str) -> None:
        actor = self._actors.pop(worker, None)
        with suppress(ValueError):  # nobody of that name is alive
            actor = actor or await asyncio.to_thread(worker_handle, worker)
            await asyncio.to_thread(ray.kill, actor)

    async def _give_back(self, worker: str) -> None:
        self._sizes.pop(worker, None)
        group = self._bundles.pop(worker, None)
        with suppress(ValueError):  # there is none of that name
            group = group or await asyncio.to_thread(ray.util.get_placement_group, BUNDLE_PREFIX + worker)
            await asyncio.to_thread(remove_placement_group, group)
        await self._shared.give_back(worker, {*self._sizes, *self._actors})

    async def remember(self, orders: dict[str, Order]) -> None:
        """Keep them in Ray's own key-value store, which lives as long as the cluster."""
        packed = msgpack.packb({node: order.value for node, order in orders.items()})
        await asyncio.to_thread(internal_kv._internal_kv_put, ORDERS_KEY, packed, overwrite=True)  # noqa: SLF001

    async def recall(self) -> dict[str, Order]:
        """Read them back."""
        return await recall_orders()

    def world_is_gone(self) -> str:
        """Say nothing: a cluster that is gone takes the supervisor with it."""
        return ""


def _share(gpus: float, sharers: int) -> float:
    """Return what one of several workers takes of a share of a GPU; Ray counts ten-thousandths."""
    return gpus if sharers == 1 else int(gpus / sharers * 10_000) / 10_000


def live_nodes() -> tuple[RayNode, ...]:
    """Return the live nodes of the cluster, with what nobody has reserved."""
    free = _free_by_node()
    draining = _draining_nodes()
    return tuple(
        RayNode(
            node=node["NodeID"],
            name=node["NodeManagerHostname"],
            cores=int(node["Resources"].get("CPU", 0)),
            free_cores=int(free.get(node["NodeID"], node["Resources"]).get("CPU", 0)),
            gpus=int(node["Resources"].get("GPU", 0)),
            preemptible=(node.get("Labels") or {}).get(MARKET_LABEL) == SPOT,
            draining=node["NodeID"] in draining,
        )
        for node in ray.nodes()
        if node["Alive"]
    )


async def recall_orders() -> dict[str, Order]:
    """Return what users asked about nodes, as the supervisor keeps it."""
    packed = await asyncio.to_thread(internal_kv._internal_kv_get, ORDERS_KEY)  # noqa: SLF001
    return {} if packed is None else {node: Order(order) for node, order in msgpack.unpackb(packed).items()}


def _reserved_workers() -> list[str]:
    table: dict[str, Any] = placement_group_table()
    names = [entry["name"] for entry in table.values() if entry["state"] != "REMOVED"]
    return [name.removeprefix(BUNDLE_PREFIX) for name in names if name.startswith(BUNDLE_PREFIX)]


def _free_by_node() -> dict[str, dict[str, float]]:
    with suppress(Exception):  # a private call of Ray's: without it, a node's whole size stands in
        return dict(ray._private.state.available_resources_per_node())  # noqa: SLF001 - Ray has no public one
    return {}


def _draining_nodes() -> dict[str, int]:
    with suppress(Exception):  # a private call of Ray's, which Serve and Train use too
        return dict(ray._private.state.state.get_draining_nodes())  # noqa: SLF001 - Ray has no public one
    return {}
