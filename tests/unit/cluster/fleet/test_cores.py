"""How many cores a job's work may keep busy: those of its slots, and what is idle beside."""

import asyncio
import time
from dataclasses import replace

import pytest

from codecfleet.cluster.fleet.leases.ground import Ground
from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
from codecfleet.cluster.fleet.pool import more_slots
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.runner.client import LocalClient
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.testing import FakeClusterBackend


def eight_cores(*, is_alone: bool, workers_max: int | None = None) -> LeasedPool:
    """Return a pool on a node of eight cores."""
    settings = SupervisorSettings(idle_release_s=None)
    backend = FakeClusterBackend((RayNode(node="here", name="here", cores=8, free_cores=8),))
    runner = SupervisorRunner(backend, Core(settings, Policy(), 1, time.monotonic()), settings)
    return LeasedPool(Ground(supervisor=LocalClient(runner), is_alone=is_alone).reach, workers_max)


async def cores_of(pool: LeasedPool, segments: int, *, job: str = "j", workers_max: int | None = None) -> int:
    """Return the cores of a job of that many segments, all of which may run."""
    pool.set_demand(job, replace(plain_demand(job, segments), workers_max=workers_max))
    async with asyncio.timeout(20):
        await more_slots(pool, job, min(segments, workers_max or segments) - 1)
    return pool.state.of(job).cores


@pytest.mark.parametrize(
    ("is_alone", "segments", "workers_max", "cores"),
    [
        (True, 3, None, 8),
        (True, 8, None, 8),
        # Others' work may come: it uses as many again as it was given, not all that is idle.
        (False, 3, None, 6),
        (False, 6, None, 8),
        # A limit on slots limits the cores; one that is never reached limits nothing.
        (True, 3, 2, 4),
        (True, 3, 8, 8),
    ],
)
async def test_idle_cores_count_where_no_other_program_uses_them(
    *, is_alone: bool, segments: int, workers_max: int | None, cores: int
) -> None:
    """A machine of our own is used in full; a cluster at most twice as much as was granted."""
    async with eight_cores(is_alone=is_alone) as pool:
        assert await cores_of(pool, segments, workers_max=workers_max) == cores


async def test_the_slots_of_a_limited_fleet_have_two_cores_each() -> None:
    """Three segments at once may use six cores, and a single one those that are left of them."""
    async with eight_cores(is_alone=True, workers_max=3) as pool:
        assert await cores_of(pool, 1) == 6
        assert await cores_of(pool, 3) == 6


async def test_what_another_job_uses_is_not_idle() -> None:
    """Two jobs of one fleet do not both count the same cores as their own slots."""
    async with eight_cores(is_alone=True) as pool:
        assert await cores_of(pool, 2, job="first") == 8
        assert await cores_of(pool, 4, job="second") == 6
        assert pool.state.of("first").cores == 4
        assert pool.state.of("unknown").cores == 2
