"""A pool with its own connection and supervisor: the default of a fleet.

On this machine alone the supervisor runs in this process, which may begin work before there is a Ray; elsewhere it is
the cluster's own.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ....actors.device.work import Work
from ....errors import FleetUnavailable, UsageError
from ... import machine
from ...machine import OomKills
from ...placement.model.demand import Demand
from ...placement.model.policy import Policy
from ...placement.model.preview import PlacementPreview
from ...process.process import StartedProcess
from ...ray.object_store import store_bytes
from ...supervisor.backends import ClusterBackend
from ...supervisor.state.messages import RayNode
from ...supervisor.state.settings import SupervisorSettings, policy_from, settings_from
from ...supervisor.state.stations import slots_of_processes
from ..client_name import ClientName
from ..pool import Pool
from .late_ray import RAY_S, LateRay

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ...ray.embedded import Connection
    from ...supervisor.status.history import History
    from ...supervisor.status.status import Status
    from ...survey.known_gpus import KnownGpus
    from .leased_pool import LeasedPool

    ListGpus = Callable[[], Awaitable[KnownGpus]]

ResultT = TypeVar("ResultT")


class ConnectedPool(Pool):
    """Connects to Ray on start, runs a ``LeasedPool`` there, and releases the connection on close.

    With ``start_process`` processors' workers are processes of ours, and a private Ray starts only where GPUs pay.

    Args:
        address: a cluster's address; None uses an existing connection, ``RAY_ADDRESS``, or an embedded Ray.
        slots: pieces of work at a time; None means one per core.
        dlas: this machine's DLAs, for networks on an embedded Ray; workers then start with the first work.
        name: what a cluster's supervisor is to call this client.
        start_process: starts the process of a worker on this machine; None where Ray is to come first.
    """

    def __init__(
        self,
        address: str | None,
        slots: int | None,
        *,
        dlas: int = 0,
        name: ClientName | None = None,
        start_process: Callable[[], StartedProcess] | None = None,
    ) -> None:
        self._address = address
        self._asked_slots = slots
        self._dlas = dlas
        self._name = name
        self._start_process = start_process
        self._connection: Connection | LateRay | None = None
        self._pool: LeasedPool | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    @property
    def slots(self) -> int:
        return self._started().slots

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self._connection is None else self._connection.notes

    def lost(self) -> str:
        """Say why its Ray is gone; "" while it is there, or it was never reached."""
        return "" if self._pool is None else self._pool.lost

    def spent(self) -> str:
        """Say why no work will ever run here again; "" while it may."""
        return "" if self._pool is None else self._pool.spent

    async def start(self) -> None:
        """Connect, and make the workers ready.

        Raises:
            FleetUnavailable: there is nothing to run on, or the pool is closed.
        """
        async with self._lock:
            if self._closed:
                raise FleetUnavailable("the pool is closed", "Open a new fleet.")
            if self._pool is None:
                self._connection, self._pool = await self._opened()
            pool = self._pool
        # Outside the lock: closing must not wait for workers that do not start.
        await pool.start()

    async def _opened(self) -> "tuple[Connection | LateRay, LeasedPool]":
        if self._start_process is not None:
            slots = max(1, self._asked_slots or machine.cores())
            from ...probes.nvml import can_load_nvml  # noqa: PLC0415 - for a fleet of this machine alone

            late = LateRay(slots_of_processes(slots)[0], slots, self._connect, has_gpus=can_load_nvml())
            return late, machine_pool(late, self._asked_slots, self._start_process)
        connection = await self._connect()
        return connection, leased_pool(connection, self._asked_slots, dlas=self._dlas, name=self._name)

    async def _connect(self) -> "Connection":
        from ...ray.embedded import connect  # noqa: PLC0415 - this machine may do without Ray

        return await connect(self._address)

    def slots_for(self, job: str) -> int:
        return 0 if self._pool is None else self._pool.slots_for(job)

    def cores_for(self, job: str) -> int:
        return 0 if self._pool is None else self._pool.cores_for(job)

    async def more_slots(self, job: str, beyond: int) -> None:
        await self._started().more_slots(job, beyond)

    def waits_for(self, job: str) -> str:
        return self._started().waits_for(job)

    async def preview(self, demand: Demand) -> PlacementPreview:
        late = self._connection if isinstance(self._connection, LateRay) else None
        return await self._started().preview(demand if late is None else late.previewed(demand))

    async def status(self) -> "Status | None":
        return await self._started().status()

    async def history(self, stations: tuple[str, ...]) -> "History":
        return await self._started().history(stations)

    def set_demand(self, demand: Demand) -> None:
        self._started().set_demand(demand)

    def clear_demand(self, job: str) -> None:
        if self._pool is not None:
            self._pool.clear_demand(job)

    def set_behind(self, batch: str, like: str, segments: int, frames: int) -> None:
        if self._pool is not None:
            self._pool.set_behind(batch, like, segments, frames)

    async def submit(self, work: Work[ResultT]) -> ResultT:
        return await self._started().submit(work)

    async def serve_files(self) -> str:
        return await self._started().serve_files()

    def found_wrong(self, job: str, label: str, reason: str) -> None:
        self._started().found_wrong(job, label, reason)

    def found_doubtful(self, job: str, label: str, reason: str) -> None:
        self._started().found_doubtful(job, label, reason)

    async def progress(self, job: str) -> Mapping[str, int]:
        return {} if self._pool is None else await self._pool.progress(job)

    async def stations(self, job: str) -> Mapping[str, str]:
        return {} if self._pool is None else await self._pool.stations(job)

    async def write_off(self, job: str, label: str, reason: str) -> None:
        if self._pool is not None:
            await self._pool.write_off(job, label, reason)

    async def aclose(self) -> None:
        """Stop or release the workers and the connection. Idempotent."""
        self._closed = True
        async with self._lock:
            pool, connection = self._pool, self._connection
            self._pool = self._connection = None
            if pool is not None:
                await pool.aclose()
            if connection is not None:
                await connection.close()

    def _started(self) -> "LeasedPool":
        if self._closed:
            raise UsageError("the pool is closed")
        if self._pool is None:
            raise FleetUnavailable("the pool is not started", "Start it first.")
        return self._pool


SLOTS_MAX = 1024
"""More than the cores of any machine with a private Ray."""
PRIVATE = SupervisorSettings(idle_release_s=None, device_wait_s=5.0)
"""A private Ray keeps its workers, which no other program could use, and no machine joins it."""


def leased_pool(
    connection: "Connection", slots: int | None, *, dlas: int = 0, name: ClientName | None = None
) -> "LeasedPool":
    """Return a pool on an open connection, which must outlive it.

    Args:
        connection: on a private Ray the supervisor runs in this process; elsewhere it is the cluster's.
        slots: pieces of work at a time; None means one per core. A private Ray has as many as requested.
        dlas: how many DLAs a private Ray's workers have.
        name: what a cluster's supervisor is to call this client; None is a new name.
    """
    # Imported late: an embedded Ray's settings are read when Ray is imported.
    from ...supervisor.backends.backend import HERE  # noqa: PLC0415
    from ...supervisor.runner.client import ActorClient  # noqa: PLC0415
    from .leased_pool import LeasedPool  # noqa: PLC0415

    if not connection.is_private:
        return LeasedPool(
            ActorClient(settings_from(os.environ), policy_from(os.environ)), slots, notes=connection.notes, name=name
        )
    backend = _private_backend(connection, slots, dlas, partial(asyncio.to_thread, _known_gpus, HERE))
    return _pool_here(backend, slots, eager=0 if dlas else SLOTS_MAX, notes=connection.notes)


def machine_pool(late: LateRay, slots: int | None, start_process: Callable[[], StartedProcess]) -> "LeasedPool":
    """Return a pool on this machine: ``start_process`` starts processors' workers, ``late`` Ray those of GPUs.

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
    return _pool_here(
        backend, slots, settings=settings, eager=late.first_slots, reported=late.bounded, followed=late.followed
    )


def _known_gpus(node: str) -> "KnownGpus":
    from ...survey.known_gpus import known_gpus  # noqa: PLC0415 - where there is an NVIDIA driver

    return known_gpus(node)


def _private_backend(connection: "Connection", slots: int | None, dlas: int, gpus: "ListGpus") -> ClusterBackend:
    from ...supervisor.backends.private_backend import PrivateBackend  # noqa: PLC0415 - as above
    from ...survey.ray_probe import probe_ray_node  # noqa: PLC0415

    return PrivateBackend(slots, connection.why_ended, probe_ray_node, gpus, dlas)


def _pool_here(
    backend: ClusterBackend,
    slots: int | None,
    *,
    eager: int,
    settings: SupervisorSettings = PRIVATE,
    notes: tuple[str, ...] = (),
    reported: Callable[[Demand], Demand] = lambda demand: demand,
    followed: Callable[[Demand], Demand] = lambda demand: demand,
) -> "LeasedPool":
    """Return a pool whose supervisor runs in this process."""
    from ...supervisor.core.core import Core  # noqa: PLC0415 - as above
    from ...supervisor.runner.client import LocalClient  # noqa: PLC0415
    from ...supervisor.runner.runner import SupervisorRunner  # noqa: PLC0415
    from .leased_pool import LeasedPool  # noqa: PLC0415

    runner = SupervisorRunner(backend, Core(settings, Policy(), 1, time.monotonic()), settings)
    killed_for_memory = OomKills().explains_a_death
    return LeasedPool(
        LocalClient(runner),
        slots,
        eager=eager,
        notes=notes,
        is_alone=True,
        killed_for_memory=killed_for_memory,
        reported=reported,
        followed=followed,
    )
