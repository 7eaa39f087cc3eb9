"""A pool of real Ray workers: deaths, results, and sharing one Ray."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import psutil
import pytest
import pytest_asyncio

from codecfleet.cluster.fleet.leases.connecting import ground_on
from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
from codecfleet.cluster.fleet.pool import Pool, more_slots
from codecfleet.cluster.machine import cores
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.ray.embedded import Connection
from codecfleet.errors import (
    DeviceLost,
    FleetUnavailable,
    UsageError,
    WorkerBroken,
    WorkerLost,
    WorkError,
)
from codecfleet.testing import works

pytestmark = [pytest.mark.ray, pytest.mark.asyncio(loop_scope="module")]

BUSY_S = 10
"""A limit for waits that take far less than a second on an idle machine."""


async def until(holds: Callable[[], Awaitable[bool]], patience_s: float = 20) -> None:
    """Ask repeatedly, because other processes send no event."""
    async with asyncio.timeout(patience_s):
        while not await holds():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)


async def _is_gone(process: int) -> bool:
    return not psutil.pid_exists(process)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def pool(private_ray: Connection) -> AsyncIterator[Pool]:
    """One pool of two slots in one process for all tests; a test without a worker gets a replacement."""
    async with LeasedPool(ground_on(private_ray, 2).reach, 2) as started:
        yield started


async def test_results_travel(pool: Pool) -> None:
    """A result that cannot be pickled is an error that ends no process; large arrays are views that free the store."""
    process = await pool.submit(works.Ask(job="j", label="a"))
    with pytest.raises(UsageError, match="cannot be pickled"):
        await pool.submit(works.Unpicklable(job="j", label="b"))
    with pytest.raises(WorkError, match="TypeError"):
        await pool.submit(works.ReturnUnpicklable(job="j", label="c"))
    before = _objects_in_store()
    for label in "defg":
        work = works.MakeArray(job="j", label=label, length=8 << 20)
        assert not (await pool.submit(work)).flags.writeable
    await until(lambda: _has_no_more_objects_than(before))
    assert await pool.submit(works.Ask(job="j", label="a")) == process


async def test_one_job_has_a_machine_of_our_own_until_it_closes(private_ray: Connection) -> None:
    """A single segment may use the cores of all slots; after closing, no process is left."""
    async with LeasedPool(ground_on(private_ray, 2).reach, 2) as pool:
        pool.set_demand("j", plain_demand("j", 1))
        await more_slots(pool, "j", 0)
        job = pool.state.of("j")
        assert (job.slots, job.cores) == (1, 4)
        process = await pool.submit(works.Ask(job="j", label="a"))
    await until(lambda: _is_gone(process), patience_s=BUSY_S)


@pytest.mark.slow
async def test_a_crash_loop_ends(private_ray: Connection) -> None:
    """Deaths with finished work between them never end a pool; five in a row do, and the error describes them."""
    async with LeasedPool(ground_on(private_ray, 2).reach, 2) as pool:
        for _ in range(6):
            with pytest.raises(WorkerLost):
                await pool.submit(works.Crash(job="j", label="a"))
            assert await pool.submit(works.Count(job="j", label="b")) == 1
        for _ in range(5):
            with pytest.raises(WorkerLost):
                await pool.submit(works.Crash(job="j", label="a"))
        with pytest.raises(FleetUnavailable, match="5 times in a row"):
            await pool.submit(works.Ask(job="j", label="b"))


async def test_a_device_that_fails_makes_all_its_work_suspect(pool: Pool) -> None:
    """If a device fails, other work on its worker fails with WorkerBroken."""
    beside = pool.submit(works.Dwell(job="j", label="a", seconds=60))
    with pytest.raises(DeviceLost):
        await pool.submit(works.RaiseError(job="j", label="b", error=DeviceLost("it fell off the bus")))
    with pytest.raises(WorkerBroken, match="fell off the bus"):
        await beside


async def test_a_kill_takes_what_ran_beside(pool: Pool) -> None:
    """SIGKILL loses all work of the process; queued work runs later."""
    process = await pool.submit(works.Ask(job="j", label="a"))
    running = [pool.submit(works.Dwell(job="j", label=f"{i}", seconds=60)) for i in range(2)]
    waiting = pool.submit(works.Ask(job="j", label="c"))
    while not all(run.progress.frames for run in running):  # noqa: ASYNC110 - progress is polled
        await asyncio.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    lost = await asyncio.gather(*running, return_exceptions=True)
    assert [type(error) for error in lost] == [WorkerLost, WorkerLost]
    assert await waiting != process


async def _has_no_more_objects_than(most: int) -> bool:
    return await asyncio.to_thread(_objects_in_store) <= most


def _objects_in_store() -> int:
    import ray
    from ray._private.internal_api import memory_summary

    found = re.search(r"(\d+) objects", memory_summary(address=ray.get_runtime_context().gcs_address, stats_only=True))
    assert found
    return int(found[1])


async def test_pools_share_a_connection(private_ray: Connection) -> None:
    """Several pools can be open, even if they ask for more slots than there are cores."""
    slots = cores() + 1
    async with AsyncExitStack() as opened:
        pools = [
            await opened.enter_async_context(LeasedPool(ground_on(private_ray, slots).reach, slots)) for _ in range(2)
        ]
        processes = {await pool.submit(works.Ask(job="j", label="a")) for pool in pools}
    assert len(processes) == 2
