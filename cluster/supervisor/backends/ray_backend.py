"""The backend of a Ray cluster, which uses placement groups, named actors and the node table.

Workers and reservations are detached and named by station and epoch, so that the next supervisor can find them.
"""

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ....actors.worker.heartbeat import WorkerFacts
from ...logs.actions import LogAction
from ...logs.entry import LogIds
from ...logs.writing import log
from ...placement.model.inventory import Node
from ...ray.keeper import Word, tell_keeper
from ...ray.private.key_values import claim_in_cluster, keep_in_cluster, kept_in_cluster, keys_in_cluster
from ...ray.private.nodes import draining_nodes, free_resources_by_node
from ...ray.private_ray import NAMESPACE
from ...ray.public.actors import NoSuchActor, actor_names, kill_actor, named_actor
from ...ray.public.nodes import all_nodes, on_node, run_on_node
from ...ray.public.reservations import Reservation, give_back, inside, reservation, reservation_names, reserve
from ...ray.ray_words import first_line
from ...survey.ray_probe import probe_ray_node
from ...worker.actor_worker import ActorWorker
from ...worker_names import WORKER_PREFIX, NodeId, StationId, WorkerId
from ..state.events import Order, Reserve, Resize, Start, TellNode
from ..state.kept import ORDERS_KEY, unpack_orders
from ..state.messages import FoundWorker, RayNode
from ..state.silence import are_late_together
from ..state.terms import TERMS_KEY, next_term
from .ray_autoscaler import RayAutoscaler
from .ray_calls import RayCalls

BUNDLE_PREFIX = "codecfleet-bundle "
GPU_PREFIX = "codecfleet-gpu "
MARKET_LABEL, SPOT = "ray.io/market-type", "spot"
"""Ray's label, and its value for a node that the cloud may take away at any moment."""
ADOPT_LIMIT_S = 5.0
ADOPTED_AT_ONCE = 64
"""How many workers are queried at a time after a restart; a worker's ``ADOPT_LIMIT_S`` begins with its query."""
NEVER_MS = 1 << 52


def _share_of_gpu(gpus: float, sharers: int) -> float:
    """Return one worker's share of a GPU that several workers reserve together; Ray counts ten-thousandths."""
    return gpus if sharers == 1 else int(gpus / sharers * 10_000) / 10_000


class RayBackend(RayCalls):
    """Acts on a shared cluster for the supervisor of ``term``. A worker ends itself if not renewed for ``fence_s``."""

    def __init__(self, fence_s: float, term: int = 0) -> None:
        super().__init__(term)
        self._fence_s = fence_s
        self._bundles: dict[WorkerId, Reservation] = {}
        self._shared = _GpuBundles()
        self._autoscaler = RayAutoscaler()
        self._shares: dict[WorkerId, float] = {}  # the share of a GPU of each worker that has a reservation
        self._adopting = asyncio.Semaphore(ADOPTED_AT_ONCE)

    async def look(self) -> tuple[RayNode, ...]:
        return await asyncio.to_thread(live_nodes)

    async def find(self) -> tuple[FoundWorker, ...]:
        workers = await asyncio.to_thread(_live_workers)
        answers = await self._facts_of(workers)
        late = [worker for worker, answer in answers.items() if isinstance(answer, TimeoutError)]
        if are_late_together(late, len(workers)):
            answers |= await self._facts_of(late)
        found = {worker: answer for worker, answer in answers.items() if isinstance(answer, WorkerFacts)}
        refused = ((worker, answer) for worker, answer in answers.items() if isinstance(answer, Exception))
        await asyncio.gather(*itertools.starmap(self._refuse, refused))
        await self.sweep(frozenset(found))
        return tuple(FoundWorker(worker, facts) for worker, facts in found.items())

    async def sweep(self, in_use: frozenset[WorkerId]) -> None:
        for worker in map(WorkerId, await asyncio.to_thread(reservation_names, BUNDLE_PREFIX)):
            if worker not in in_use:
                await self._give_back(worker)
        await self._shared.sweep({*in_use, *self._shares})

    async def _facts_of(self, workers: Sequence[WorkerId]) -> dict[WorkerId, WorkerFacts | Exception]:
        """Return what each worker of an earlier supervisor answers, or why it has not answered."""
        return dict(zip(workers, await asyncio.gather(*map(self._facts_or_error, workers)), strict=True))

    async def _facts_or_error(self, worker: WorkerId) -> WorkerFacts | Exception:
        try:
            async with self._adopting:
                self._actors[worker] = ActorWorker(await asyncio.to_thread(named_actor, WORKER_PREFIX + worker))
                return await asyncio.wait_for(self.facts(worker), ADOPT_LIMIT_S)
        except Exception as error:  # noqa: BLE001 - a dead, unresponsive or incompatible worker is not adopted
            return error

    async def _refuse(self, worker: WorkerId, error: Exception) -> None:
        """End a worker that cannot be adopted, unless a newer supervisor may have adopted it."""
        if await self.newest_term() <= self._term:
            line = f"worker {worker} of an earlier supervisor could not be adopted: {first_line(error)}"
            log(LogAction.WORKER_LOST, line, LogIds(worker=worker))
            await self._kill(worker)

    async def probe(self, node: NodeId, *, again: bool) -> Node:
        return await probe_ray_node(node, again=again)

    async def reserve(self, order: Reserve) -> int:
        """Reserve a detached bundle on the order's node; a GPU that stations share gets a separate bundle."""
        worker = order.worker
        self._shares[worker] = _share_of_gpu(order.gpus, order.station.sharers)
        own_gpus = order.gpus if order.station.sharers == 1 else 0.0
        bundle = {name: amount for name, amount in (("CPU", order.cores), ("GPU", own_gpus)) if amount}
        if order.station.sharers > 1:
            await self._shared.reserve(order)
        if bundle and order.is_bundled:
            group = await asyncio.to_thread(reserve, order.station.node, bundle, BUNDLE_PREFIX + worker)
            self._bundles[worker] = group
            await group.ready()
        return order.cores

    async def start(self, order: Start) -> WorkerFacts:
        worker = order.worker
        shared = self._shared.get(worker)
        group = shared or self._bundles.get(worker)
        strategy = on_node(order.station.node) if group is None else inside(group)
        options = {
            "num_cpus": 0 if shared else order.cores,
            "num_gpus": self._shares[worker],
            "name": WORKER_PREFIX + worker,
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "scheduling_strategy": strategy,
        }
        return await self._create(order, options, self._fence_s)

    async def stop(self, worker: WorkerId) -> None:
        try:
            await self._kill(worker)
        finally:
            await self._give_back(worker)

    async def _kill(self, worker: WorkerId) -> None:
        known = self._actors.pop(worker, None)
        with suppress(NoSuchActor):
            actor = known.actor if known else await asyncio.to_thread(named_actor, WORKER_PREFIX + worker)
            await asyncio.to_thread(kill_actor, actor)

    async def _give_back(self, worker: WorkerId) -> None:
        self._shares.pop(worker, None)
        group = self._bundles.pop(worker, None)
        with suppress(ValueError):  # no reservation has this name
            if group is None:
                group = await asyncio.to_thread(reservation, BUNDLE_PREFIX + worker)
            await asyncio.to_thread(give_back, group)
        await self._shared.give_back(worker, {*self._shares, *self._actors})

    async def resize(self, order: Resize) -> None:
        await asyncio.to_thread(self._autoscaler.resize, order)

    async def tell_node(self, order: TellNode) -> None:
        await run_on_node(order.node, tell_keeper, Word(self._term, order.event, order.driving))

    async def keep(self, key: str, value: bytes) -> None:
        await asyncio.to_thread(keep_in_cluster, key, value)

    async def kept(self, key: str) -> bytes | None:
        return await asyncio.to_thread(kept_in_cluster, key)

    async def newest_term(self) -> int:
        return max(await asyncio.to_thread(_claimed_terms), default=0)

    def world_is_gone(self) -> str:
        return ""  # the supervisor's process ends with the cluster


def claim_term() -> int:
    """Claim a term that is newer than the terms of all other supervisors, and return it."""
    term = next_term(_claimed_terms(), (worker.epoch for worker in _live_workers()))
    while not claim_in_cluster(f"{TERMS_KEY}{term}"):
        term += 1
    return term


def _claimed_terms() -> list[int]:
    return [int(key.removeprefix(TERMS_KEY)) for key in keys_in_cluster(TERMS_KEY)]


def _live_workers() -> list[WorkerId]:
    return [WorkerId(name.removeprefix(WORKER_PREFIX)) for name in actor_names() if name.startswith(WORKER_PREFIX)]


def live_nodes() -> tuple[RayNode, ...]:
    """Return the live nodes of the cluster, with their unreserved CPUs and GPUs."""
    free = free_resources_by_node()  # a node missing from Ray's answer counts as unused
    draining = draining_nodes()
    return tuple(
        RayNode(
            node=node["NodeID"],
            name=node["NodeManagerHostname"],
            cores=int(node["Resources"].get("CPU", 0)),
            free_cores=int(free.get(node["NodeID"], node["Resources"]).get("CPU", 0)),
            gpus=int(node["Resources"].get("GPU", 0)),
            free_gpus=float(free.get(node["NodeID"], node["Resources"]).get("GPU", 0)),
            preemptible=(node.get("Labels") or {}).get(MARKET_LABEL) == SPOT,
            draining=node["NodeID"] in draining,
            leaves_utc_s=_end_of_notice(draining.get(node["NodeID"], 0)),
            memory_bytes=int(node["Resources"].get("memory", 0)) or None,
            labels=dict(node.get("Labels") or {}),
        )
        for node in all_nodes()
        if node["Alive"]
    )


def _end_of_notice(deadline_ms: int) -> float | None:
    """Return when a node leaves; None if Ray gives no time (reported as 0 or as a huge number)."""
    return deadline_ms / 1000 if 0 < deadline_ms < NEVER_MS else None


async def recall_orders() -> dict[NodeId, Order]:
    """Return users' orders for nodes, as the supervisor stored them."""
    return unpack_orders(await asyncio.to_thread(kept_in_cluster, ORDERS_KEY))


class _GpuBundles:
    """The reservations of GPUs with several stations, by bundle name; the workers of one GPU share its reservation."""

    def __init__(self) -> None:
        self._groups: dict[StationId, Reservation] = {}
        self._lock = asyncio.Lock()

    def get(self, worker: WorkerId) -> "Reservation | None":
        """Return the reservation that a worker shares, if any."""
        return self._groups.get(worker.station.bundle)

    async def reserve(self, order: Reserve) -> None:
        """Wait for the GPU that a station shares; the first caller reserves it."""
        async with self._lock:
            if order.station.station.bundle not in self._groups:
                self._groups[order.station.station.bundle] = await asyncio.to_thread(_found_or_made, order)
        await self._groups[order.station.station.bundle].ready()

    async def give_back(self, worker: WorkerId, others: Iterable[WorkerId]) -> None:
        """Release a worker's GPU, unless one of the workers in ``others`` shares it."""
        bundle = worker.station.bundle
        if bundle in self._groups and all(other.station.bundle != bundle for other in others):
            await self._remove(bundle)

    async def sweep(self, in_use: Iterable[WorkerId]) -> None:
        """Adopt the shared reservations of workers in use, and release all other shared reservations."""
        bundles = {worker.station.bundle for worker in in_use}
        for bundle in map(StationId, await asyncio.to_thread(reservation_names, GPU_PREFIX)):
            if bundle not in self._groups:
                self._groups[bundle] = await asyncio.to_thread(reservation, GPU_PREFIX + bundle)
            if bundle not in bundles:
                await self._remove(bundle)

    async def _remove(self, bundle: StationId) -> None:
        async with self._lock:
            group = self._groups.pop(bundle, None)
            if group is not None:
                await asyncio.to_thread(give_back, group)


def _found_or_made(order: Reserve) -> Reservation:
    name = GPU_PREFIX + order.station.station.bundle
    with suppress(ValueError):  # no reservation has this name
        return reservation(name)
    return reserve(order.station.node, {"GPU": order.gpus}, name)
