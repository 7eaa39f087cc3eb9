"""The default pool of a fleet, and the inventory of a machine without GPUs."""

import os
import sys
from dataclasses import astuple
from functools import partial

from ...actors.process.process import StartedProcess, start_program
from .. import machine
from ..fleet_variables import may_use_warm_fleet
from ..placement.model.inventory import Inventory, processor_of
from ..probes.nvml import can_load_nvml
from ..ray.object_store import store_bytes
from ..ray.ray_environment import named_cluster
from ..worker_names import NodeId
from .pool import ClientName, Pool
from .remote_pool import RemotePool
from .warm import HOST, warm_or_own


def start_host(address: str | None, slots: int | None, dlas: int, name: ClientName) -> StartedProcess:
    """Start a host for one fleet. The arguments are those of ``connecting_pool``. Raises OSError."""
    return start_program(HOST, address, slots, dlas, astuple(name), None)


def default_pool(address: str | None, slots: int | None, *, dlas: int = 0) -> Pool:
    """Return the pool for a fleet in this process. The arguments are those of ``connecting_pool``.

    A Ray driver, task, actor or job uses its own connection to Ray. Any other process uses a host, which loads Ray in
    its place: the user's warm fleet if one runs and suits, otherwise a new process.
    """
    if holds_ray():
        from .leases.connecting import connecting_pool  # noqa: PLC0415 - only Ray's own processes need this import

        return connecting_pool(address, slots, dlas=dlas)
    spawn = partial(start_host, address, slots, dlas)
    if named_cluster(address):
        return RemotePool(spawn)
    if not dlas and may_use_warm_fleet(os.environ):
        spawn = partial(warm_or_own, spawn, slots)
    return RemotePool(spawn, slots=slots, is_here=True)


def holds_ray() -> bool:
    """Return whether this process is a Ray driver, task, actor or job."""
    is_connected = getattr(sys.modules.get("ray"), "is_initialized", bool)
    return is_connected() or "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ


def sole_processor() -> Inventory | None:
    """Return an inventory of only this machine's CPU; None if the machine may have GPUs.

    The inventory's memory excludes the memory of Ray's object store.
    """
    if can_load_nvml():
        return None
    left_bytes = machine.memory_bytes() - store_bytes()
    return Inventory((processor_of(NodeId("this machine"), "this machine", machine.cores(), left_bytes),))
