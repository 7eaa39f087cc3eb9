"""Workers that are killed for want of memory: named as such, once for each death."""

import asyncio
import time
from collections.abc import Callable

import pytest

from codecfleet.cluster.fleet.leases.ground import Ground
from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
from codecfleet.cluster.machine import OomKills
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.runner.client import LocalClient
from codecfleet.cluster.supervisor.runner.runner import SupervisorRunner
from codecfleet.cluster.supervisor.state.messages import RayNode
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
from codecfleet.errors import WorkerLost, WorkerOutOfMemory
from codecfleet.testing import FakeClusterBackend, works

SETTINGS = SupervisorSettings(idle_release_s=None)


def opened(killed_for_memory: Callable[[], bool]) -> tuple[LeasedPool, FakeClusterBackend]:
    """Return a pool of one worker with two slots, and its backend."""
    backend = FakeClusterBackend((RayNode(node="a", name="a", cores=2, free_cores=2),))
    runner = SupervisorRunner(backend, Core(SETTINGS, Policy(), 1, time.monotonic()), SETTINGS)
    return LeasedPool(Ground(supervisor=LocalClient(runner), killed_for_memory=killed_for_memory).reach), backend


@pytest.mark.parametrize(("kills", "error"), [(8, WorkerOutOfMemory), (7, WorkerLost)])
async def test_a_kill_for_memory_is_named(kills: int, error: type[WorkerLost]) -> None:
    """All work of a worker that dies while the kernel's counter moves failed for memory; else it just died."""
    count = 7
    pool, backend = opened(OomKills(lambda: count).explains_a_death)
    async with pool:
        running = [pool.submit(works.Dwell(job="j", label=label, seconds=3)) for label in "ab"]
        while not all(run.progress.worker for run in running):  # noqa: ASYNC110 - another thread's progress sets no event
            await asyncio.sleep(0.001)
        count = kills
        backend.kill(next(iter(backend.workers)), "signal 9")
        found = await asyncio.gather(*running, return_exceptions=True)
    assert [type(each) for each in found] == [error, error]
    assert str(found[0]) == str(found[1])
    assert ("for want of memory" in str(found[0])) == (error is WorkerOutOfMemory)
