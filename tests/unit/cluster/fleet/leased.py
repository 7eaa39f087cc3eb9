"""Pools with leases on one node in memory."""

import time
from typing import Any

from codecfleet.cluster.fleet.leases.ground import Ground
from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
from codecfleet.cluster.fleet.pool import ClientName
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.testing import FakeClusterBackend

SETTINGS = SupervisorSettings(idle_release_s=None)


def leased_pool(
    cores: int,
    workers_max: int | None = None,
    *,
    client: type[SupervisorRunner] = SupervisorRunner,
    name: ClientName | None = None,
    **ground: Any,
) -> tuple[LeasedPool, FakeClusterBackend, SupervisorRunner]:
    """Return a pool on a node with this many cores, its backend, and its connection to the supervisor."""
    backend = FakeClusterBackend((RayNode(node="here", name="here", cores=cores, free_cores=cores),))
    supervisor = client(backend, Core(SETTINGS, Policy(), 1, time.monotonic()), SETTINGS)
    return LeasedPool(Ground(supervisor=supervisor, **ground).reach, workers_max, name=name), backend, supervisor
