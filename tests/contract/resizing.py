"""The promises of requests for nodes, on a cluster without workers that may have two nodes of one group.

Run as a program, it checks Ray's backend on the cluster in RAY_ADDRESS.
"""

import asyncio
import sys
import time
from collections.abc import Callable

from codecfleet.cluster.autoscale.values import WantedNodes
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.supervisor.backends.backend import ClusterBackend
from codecfleet.cluster.supervisor.state.events import Reserve, Resize
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.cluster.supervisor.state.stations import Station
from codecfleet.cluster.worker_names import StationId, WorkerId
from codecfleet.errors import FleetUnavailable

KEPT = "all promises are kept\n"
GROUP, MOST = "small", 2
LABELS = {"group": GROUP}
PATIENCE_S, LOOK_S = 60.0, 0.2
REPEAT_S = 2.0


def want(count: int, *ended: str) -> Resize:
    """Return an order for a number of nodes with one CPU."""
    return Resize((WantedNodes(GROUP, LABELS, {"CPU": 1.0}, count),), ended)


async def check(backend: ClusterBackend, is_coming: Callable[[], bool] = lambda: False) -> None:
    """Check a backend against all promises; at the end, no node is left.

    ``is_coming`` is whether a node is still being started. A node that ends meanwhile has failed to start, and is
    replaced.
    """
    await backend.resize(want(2))
    both = await _until(backend, lambda nodes: len(nodes) == 2 and not is_coming())
    assert all(node.cores == 1 and node.free_cores == 1 for node in both)
    await backend.resize(want(2))
    kept, spare = sorted(node.node for node in both)
    await _what_is_reserved_stays(backend, kept)
    await backend.resize(want(1, spare))
    (last,) = await _until(backend, lambda nodes: spare not in {node.node for node in nodes})
    assert last.node == kept
    await _more_than_there_can_be(backend, kept)
    await backend.stop(WorkerId.of(StationId.of(kept, DeviceKind.CPU, 0), 1))
    await _end(backend, kept)


async def _what_is_reserved_stays(backend: ClusterBackend, node: str) -> None:
    """A node is not ended while a reservation of ours is on it, even if an order names the node."""
    station = StationId.of(node, DeviceKind.CPU, 0)
    await backend.reserve(Reserve(WorkerId.of(station, 1), Station(station, 1), 1, 0.0))
    await _until(backend, lambda nodes: any(each.node == node and not each.free_cores for each in nodes))
    await backend.resize(want(2, node))
    found = {each.node: each for each in await _group(backend)}
    assert not found[node].draining


async def _more_than_there_can_be(backend: ClusterBackend, node: str) -> None:
    """If more nodes are requested than possible, none joins, and the order fails, at the latest when it is repeated."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            await backend.resize(want(MOST + 1))
        except FleetUnavailable:
            break
        assert time.monotonic() < until_s, "it was not refused"
        await asyncio.sleep(REPEAT_S)
    left = await _group(backend)
    assert [each.node for each in left] == [node], left


async def _end(backend: ClusterBackend, node: str) -> None:
    """Name a node in orders until it is gone."""
    until_s = time.monotonic() + PATIENCE_S
    await backend.resize(want(0, node))
    while await _group(backend):
        assert time.monotonic() < until_s, "it did not end"
        await asyncio.sleep(REPEAT_S)
        await backend.resize(want(0, node))


async def _group(backend: ClusterBackend) -> list[RayNode]:
    return [node for node in await backend.look() if LABELS.items() <= node.labels.items()]


async def _until(backend: ClusterBackend, holds: Callable[[list[RayNode]], bool]) -> list[RayNode]:
    until_s = time.monotonic() + PATIENCE_S
    while not holds(nodes := await _group(backend)):
        assert time.monotonic() < until_s, nodes
        await asyncio.sleep(LOOK_S)
    return nodes


def _check_ray() -> None:
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_status

    from codecfleet.cluster.supervisor.backends.ray_backend import RayBackend

    def is_coming() -> bool:
        status = get_cluster_status(ray.get_runtime_context().gcs_address)
        return bool(status.pending_launches or status.pending_nodes)

    ray.init(log_to_driver=False, logging_level="CRITICAL", namespace="codecfleet")
    asyncio.run(check(RayBackend(60.0), is_coming))
    sys.stdout.write(KEPT)


if __name__ == "__main__":
    _check_ray()
