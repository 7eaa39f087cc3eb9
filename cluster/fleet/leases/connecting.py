"""Connects a pool to a cluster's supervisor, or to a supervisor in this process that manages only this machine.

Local work may begin before Ray starts. Ray reads its settings when it is imported, so it is imported late.
"""

import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ....actors.process.process import StartedProcess
from ... import machine
from ...machine import OomKills
from ...placement.model.policy import Policy
from ...probes.nvml import can_load_nvml
from ...ray.object_store import store_bytes
from ...supervisor.backends.backend import HERE, ClusterBackend
from ...supervisor.backends.machine_backend import MachineBackend
from ...supervisor.core.core import Core
from ...supervisor.runner.actor import ActorClient
from ...supervisor.runner.runner import SupervisorRunner
from ...supervisor.state.messages import RayNode
from ...supervisor.state.settings import SupervisorSettings, policy_from, settings_from
from ...worker_names import NodeId
from ..pool import ClientName
from .ground import Ground
from .late_ray import RAY_S, LateRay
from .leased_pool import LeasedPool

if TYPE_CHECKING:
    from ...ray.embedded import Connection
    from ...survey.known_gpus import KnownGpus


def connecting_pool(
    address: str | None,
    slots: int | None,
    *,
    dlas: int = 0,
    name: ClientName | None = None,
    start_process: Callable[[], StartedProcess] | None = None,
) -> LeasedPool:
    """Return a pool that opens its connection when it starts, and releases it when it closes.

    Args:
        address: a cluster's address; None uses an existing connection, ``RAY_ADDRESS``, or a private Ray.
        slots: the most slots; None for one per core.
        dlas: how many DLAs of this machine run networks; only for a private Ray, whose workers then start with the
            first work.
        name: this client's name at a cluster's supervisor.
        start_process: starts a worker's process on this machine. With it, a private Ray starts only if GPUs save time;
            without it (None), Ray starts first.
    """
    if start_process is not None:
        return LeasedPool(partial(_reach_here, slots, partial(_connect, address), start_process), slots, name=name)
    return LeasedPool(partial(_reach, address, slots, dlas), slots, name=name)


async def _connect(address: str | None) -> "Connection":
    from ...ray.embedded import connect

    return await connect(address)


async def _reach(address: str | None, slots: int | None, dlas: int) -> Ground:
    connection = await _connect(address)
    return replace(ground_on(connection, slots, dlas=dlas), release=connection.close)


SLOTS_MAX = 1024
"""More than the cores of any machine with a private Ray."""
PRIVATE = SupervisorSettings(idle_release_s=None, device_wait_s=5.0)
"""A private Ray keeps idle workers, because no other program could use their devices. A job waits only briefly for a
GPU, because no machine joins a private Ray.
"""


def ground_on(
    connection: "Connection", slots: int | None, *, dlas: int = 0, settings: SupervisorSettings = PRIVATE
) -> Ground:
    """Return the ``Ground`` of a pool on an open connection; only a private Ray uses the other arguments.

    The connection stays open when the pool closes.
    """
    if not connection.is_private:
        supervisor = ActorClient(settings_from(os.environ), policy_from(os.environ))
        return Ground(supervisor=supervisor, notes=lambda: connection.notes)
    gpus = _known_gpus if can_load_nvml() else None
    ground = _ground_here(MachineBackend(_this_machine(slots, dlas), gpus, _private_backend(connection)), settings)
    return replace(ground, eager=0 if dlas else SLOTS_MAX, notes=lambda: connection.notes)


async def _reach_here(
    slots: int | None, connect: "Callable[[], Awaitable[Connection]]", start_process: Callable[[], StartedProcess]
) -> Ground:
    """Return the ``Ground`` of a pool on this machine.

    CPU workers are child processes. Ray starts only if GPU workers would save time.
    """
    node = _this_machine(slots)
    late = LateRay(node.cores, connect, has_gpus=can_load_nvml())

    async def on_ray() -> ClusterBackend:
        return _private_backend(await late.start())

    backend = MachineBackend(node, _known_gpus if late.has_gpus else None, on_ray, start_process)
    ground = _ground_here(backend, replace(PRIVATE, bridges=True, gpu_start_s=RAY_S))
    eager = machine.slots_of_processes(node.cores)[0]
    return replace(ground, eager=eager, late=late, notes=lambda: late.notes, release=late.close)


def _this_machine(slots: int | None, dlas: int = 0) -> RayNode:
    """Return this machine with a core for each slot, and without its GPUs."""
    cores = slots or max(1, machine.cores())
    memory_bytes = machine.memory_bytes() - store_bytes()
    name = socket.gethostname()
    return RayNode(node=HERE, name=name, cores=cores, free_cores=cores, dlas=dlas, memory_bytes=memory_bytes)


def _known_gpus(node: NodeId) -> "KnownGpus":
    from ...survey.known_gpus import known_gpus

    return known_gpus(node)


def _private_backend(connection: "Connection") -> ClusterBackend:
    from ...supervisor.backends.private_backend import PrivateBackend

    return PrivateBackend(connection.why_ended)


def _ground_here(backend: ClusterBackend, settings: SupervisorSettings) -> Ground:
    runner = SupervisorRunner(backend, Core(settings, Policy(), 1, time.monotonic()), settings)
    return Ground(supervisor=runner, is_alone=True, killed_for_memory=OomKills().explains_a_death)
