"""Connecting a pool: to the supervisor of a cluster, or to one in this process for this machine alone.

On this machine alone work may begin before there is a Ray.
"""

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ... import machine
from ...machine import OomKills
from ...placement.model.policy import Policy
from ...process.process import StartedProcess
from ...ray.object_store import store_bytes
from ...supervisor.backends import ClusterBackend
from ...supervisor.state.messages import RayNode
from ...supervisor.state.settings import SupervisorSettings, policy_from, settings_from
from ...supervisor.state.stations import slots_of_processes
from ..client_name import ClientName
from .ground import Ground
from .late_ray import RAY_S, LateRay
from .leased_pool import LeasedPool

if TYPE_CHECKING:
    from ...ray.embedded import Connection
    from ...survey.known_gpus import KnownGpus

    ListGpus = Callable[[], Awaitable[KnownGpus]]


def connecting_pool(
    address: str | None,
    slots: int | None,
    *,
    dlas: int = 0,
    name: ClientName | None = None,
    start_process: Callable[[], StartedProcess] | None = None,
) -> LeasedPool:
    """Return a pool with a connection of its own, which it opens on start and releases on close.

    Args:
        address: a cluster's address; None uses an existing connection, ``RAY_ADDRESS``, or an embedded Ray.
        slots: pieces of work at a time; None means one per core.
        dlas: this machine's DLAs, for networks on an embedded Ray; workers then start with the first work.
        name: what a cluster's supervisor is to call this client.
        start_process: starts the process of a worker on this machine, and a private Ray starts only where GPUs pay;
            None where Ray comes first.
    """
    if start_process is not None:
        return LeasedPool(partial(_reach_here, slots, partial(_connect, address), start_process), slots, name=name)
    return LeasedPool(partial(_reach, address, slots, dlas), slots, name=name)


async def _connect(address: str | None) -> "Connection":
    from ...ray.embedded import connect  # noqa: PLC0415 - this machine may do without Ray

    return await connect(address)


async def _reach(address: str | None, slots: int | None, dlas: int) -> Ground:
    connection = await _connect(address)
    return replace(ground_on(connection, slots, dlas=dlas), release=connection.close)


async def _reach_here(
    asked: int | None, connect: "Callable[[], Awaitable[Connection]]", start_process: Callable[[], StartedProcess]
) -> Ground:
    from ...probes.nvml import can_load_nvml  # noqa: PLC0415 - for a fleet of this machine alone

    slots = max(1, asked or machine.cores())
    late = LateRay(slots_of_processes(slots)[0], slots, connect, has_gpus=can_load_nvml())
    return machine_ground(late, asked, start_process)


SLOTS_MAX = 1024
"""More than the cores of any machine with a private Ray."""
PRIVATE = SupervisorSettings(idle_release_s=None, device_wait_s=5.0)
"""A private Ray keeps its workers, which no other program could use, and no machine joins it."""


def ground_on(connection: "Connection", slots: int | None, *, dlas: int = 0) -> Ground:
    """Return the ground of a pool on an open connection, which must outlive it.

    Args:
        connection: on a private Ray the supervisor runs in this process; elsewhere it is the cluster's.
        slots: pieces of work at a time; None means one per core. A private Ray has as many as requested.
        dlas: how many DLAs a private Ray's workers have.
    """
    # Imported late: an embedded Ray's settings are read when Ray is imported.
    from ...supervisor.backends.backend import HERE  # noqa: PLC0415
    from ...supervisor.runner.client import ActorClient  # noqa: PLC0415

    def notes() -> tuple[str, ...]:
        return connection.notes

    if not connection.is_private:
        supervisor = ActorClient(settings_from(os.environ), policy_from(os.environ))
        return Ground(supervisor=supervisor, notes=notes)
    backend = _private_backend(connection, slots, dlas, partial(asyncio.to_thread, _known_gpus, HERE))
    ground = _ground_here(backend, PRIVATE)
    return replace(ground, eager=0 if dlas else SLOTS_MAX, notes=notes)


def machine_ground(late: LateRay, slots: int | None, start_process: Callable[[], StartedProcess]) -> Ground:
    """Return the ground of a pool on this machine: processes for processors, and Ray for GPUs where it pays.

    ``slots`` are the pieces of work at a time; None means one per core.
    """
    from ...supervisor.backends.backend import HERE  # noqa: PLC0415 - as above
    from ...supervisor.backends.machine_backend import MachineBackend  # noqa: PLC0415 - as above

    async def on_ray(gpus: "ListGpus") -> ClusterBackend:
        return _private_backend(await late.start(), slots, 0, gpus)

    cores = slots or machine.cores()
    node = RayNode(
        node=HERE,
        name=socket.gethostname(),
        cores=cores,
        free_cores=cores,
        memory_bytes=machine.memory_bytes() - store_bytes(),
    )
    backend = MachineBackend(node, start_process, on_ray, _known_gpus if late.has_gpus else None)
    settings = replace(PRIVATE, bridges=True, gpu_start_s=RAY_S)
    ground = _ground_here(backend, settings)
    return replace(ground, eager=late.first_slots, late=late, notes=lambda: late.notes, release=late.close)


def _known_gpus(node: str) -> "KnownGpus":
    from ...survey.known_gpus import known_gpus  # noqa: PLC0415 - where there is an NVIDIA driver

    return known_gpus(node)


def _private_backend(connection: "Connection", slots: int | None, dlas: int, gpus: "ListGpus") -> ClusterBackend:
    from ...supervisor.backends.private_backend import PrivateBackend  # noqa: PLC0415 - as above
    from ...survey.ray_probe import probe_ray_node  # noqa: PLC0415

    return PrivateBackend(slots, connection.why_ended, probe_ray_node, gpus, dlas)


def _ground_here(backend: ClusterBackend, settings: SupervisorSettings) -> Ground:
    """Return the ground of a pool whose supervisor runs in this process."""
    from ...supervisor.core.core import Core  # noqa: PLC0415 - as above
    from ...supervisor.runner.client import LocalClient  # noqa: PLC0415
    from ...supervisor.runner.runner import SupervisorRunner  # noqa: PLC0415

    runner = SupervisorRunner(backend, Core(settings, Policy(), 1, time.monotonic()), settings)
    return Ground(supervisor=LocalClient(runner), is_alone=True, killed_for_memory=OomKills().explains_a_death)
