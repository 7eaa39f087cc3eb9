"""Reservations of GPUs that several workers share, one worker per slice: booked with Ray once.

Ray counts a GPU that is cut into slices as one. One bundle books the policy's share of it; each worker in it gets that
GPU and takes its own slice. So Ray's figures show the use of whole GPUs.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group

from .events import Reserve
from .stations import bundle_of, station_of

GPU_PREFIX = "codecfleet-gpu "
NODE_LABEL = "ray.io/node-id"


def reserve_on(node: str, bundle: dict[str, float], name: str) -> PlacementGroup:
    """Request a detached bundle on a node; it exists once its ``ready`` resolves."""
    group: PlacementGroup = placement_group(
        [bundle], strategy="STRICT_PACK", name=name, lifetime="detached", bundle_label_selector=[{NODE_LABEL: node}]
    )
    return group


class GpuBundles:
    """A cluster's shared reservations, by bundle name (``Station.bundle``)."""

    def __init__(self) -> None:
        self._groups: dict[str, PlacementGroup] = {}
        self._lock = asyncio.Lock()

    def get(self, worker: str) -> PlacementGroup | None:
        """Return the reservation that a worker shares, if any."""
        return self._groups.get(bundle_of(station_of(worker)))

    async def reserve(self, order: Reserve) -> None:
        """Wait for the GPU that a station shares; the first caller books it."""
        async with self._lock:
            if order.bundle not in self._groups:
                self._groups[order.bundle] = await asyncio.to_thread(_found_or_made, order)
        await self._groups[order.bundle].ready()

    async def give_back(self, worker: str, others: Iterable[str]) -> None:
        """Release a worker's GPU, unless one of ``others`` shares it."""
        bundle = bundle_of(station_of(worker))
        if bundle in self._groups and all(bundle_of(station_of(other)) != bundle for other in others):
            await self._remove(bundle)

    async def sweep(self, in_use: Iterable[str]) -> None:
        """Adopt the shared reservations of workers in use, and release all others."""
        bundles = {bundle_of(station_of(worker)) for worker in in_use}
        for bundle in await asyncio.to_thread(_reserved_bundles):
            if bundle not in self._groups:
                self._groups[bundle] = await asyncio.to_thread(ray.util.get_placement_group, GPU_PREFIX + bundle)
            if bundle not in bundles:
                await self._remove(bundle)

    async def _remove(self, bundle: str) -> None:
        async with self._lock:
            group = self._groups.pop(bundle, None)
            if group is not None:
                await asyncio.to_thread(remove_placement_group, group)


def _found_or_made(order: Reserve) -> PlacementGroup:
    name = GPU_PREFIX + order.bundle
    with suppress(ValueError):  # there is none of that name
        found: PlacementGroup = ray.util.get_placement_group(name)
        return found
    return reserve_on(order.node, {"GPU": order.gpus}, name)


def _reserved_bundles() -> list[str]:
    names = [entry["name"] for entry in placement_group_table().values() if entry["state"] != "REMOVED"]
    return [name.removeprefix(GPU_PREFIX) for name in names if name.startswith(GPU_PREFIX)]
