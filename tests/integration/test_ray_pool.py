"""What only a pool of real processes can promise: surviving their deaths, and living beside other Ray work."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import psutil
import pytest

from codecfleet.actors.device.work import Constraints
from codecfleet.cluster.fleet.leases.connecting import ground_on
from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
from codecfleet.cluster.fleet.pool import Pool, more_slots
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.ray.embedded import Connection
from codecfleet.errors import (
    DeviceLost,
    FleetUnavailable,
    ProcessKilled,
    UsageError,
    WorkerBroken,
    WorkerLost,
    WorkError,
)
from codecfleet.testing import works

pytestmark = pytest.mark.ray

ALONE = Constraints(alone=True)
BUSY_S = 10
"""What takes far less than a second may take this long where the machine does much else besides."""


async def until(holds: Callable[[], Awaitable[bool]], patience_s: float = 20) -> None:
    """Ask again and again: other processes send no event."""
    async with asyncio.timeout(patience_s):
        while not await holds():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)


async def _is_gone(process: int) -> bool:
    return not psutil.pid_exists(process)


@pytest.fixture
async def pool(private_ray: Connection) -> AsyncIterator[Pool]:
    """A pool of two slots in one process."""
    async with LeasedPool(ground_on(private_ray, 2).reach, 2) as started:
        yield started


async def test_a_crash_at_work_is_a_lost_worker(pool: Pool) -> None:
    """Work whose process ends without a word raises WorkerLost, and the next finds a new process."""
    former = await pool.submit(works.Ask(job="j", label="a"))
    with pytest.raises(WorkerLost):
        await pool.submit(works.Crash(job="j", label="b"))
    assert await pool.submit(works.Ask(job="j", label="a")) != former


async def test_a_crash_of_work_that_runs_alone_costs_its_own_process(pool: Pool) -> None:
    """It is told from a worker's death; the worker lives on, and so does what it runs."""
    worker = await pool.submit(works.Ask(job="j", label="a"))
    beside = pool.submit(works.Dwell(job="j", label="b", seconds=60))
    with pytest.raises(ProcessKilled, match="the process that ran it alone died: it ended with exit code 1"):
        await pool.submit(works.Crash(job="j", label="c", constraints=ALONE))
    first = await pool.submit(works.Ask(job="j", label="c", constraints=ALONE))
    again = await pool.submit(works.Ask(job="j", label="d", constraints=ALONE))
    assert first == again != worker, "what left its process sound leaves it to the next"
    assert await pool.submit(works.Ask(job="j", label="e")) == worker
    assert not beside.result.done()
    beside.cancel()
    await asyncio.gather(beside, return_exceptions=True)


async def test_a_device_that_fails_makes_all_its_work_suspect(pool: Pool) -> None:
    """What ran beside the failure is told that its worker was broken, not that it died of anything."""
    beside = pool.submit(works.Dwell(job="j", label="a", seconds=60))
    with pytest.raises(DeviceLost):
        await pool.submit(works.RaiseError(job="j", label="b", error=DeviceLost("it fell off the bus")))
    with pytest.raises(WorkerBroken, match="fell off the bus"):
        await beside


async def test_a_kill_takes_what_ran_beside(pool: Pool) -> None:
    """A SIGKILL loses everything that ran in the process, and keeps what waited."""
    process = await pool.submit(works.Ask(job="j", label="a"))
    running = [pool.submit(works.Dwell(job="j", label=f"{i}", seconds=60)) for i in range(2)]
    waiting = pool.submit(works.Ask(job="j", label="c"))
    while not all(run.progress.frames for run in running):  # noqa: ASYNC110 - progress is polled
        await asyncio.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    lost = await asyncio.gather(*running, return_exceptions=True)
    assert [type(error) for error in lost] == [WorkerLost, WorkerLost]
    assert await waiting != process


async def test_a_death_at_rest_costs_no_work(pool: Pool) -> None:
    """A process killed while it has no work is replaced before work is lost on it."""
    process = await pool.submit(works.Ask(job="j", label="a"))
    os.kill(process, signal.SIGKILL)
    await until(lambda: _is_gone(process))
    await asyncio.sleep(0.2)  # Ray tells of the death some milliseconds later
    assert await pool.submit(works.Ask(job="j", label="a")) != process


async def test_a_crash_loop_ends(pool: Pool) -> None:
    """Work that kills every process it meets ends in FleetUnavailable, and says what killed them."""
    for _ in range(5):
        with pytest.raises(WorkerLost):
            await pool.submit(works.Crash(job="j", label="a"))
    with pytest.raises(FleetUnavailable, match="5 times in a row"):
        await pool.submit(works.Ask(job="j", label="b"))


@pytest.mark.slow
async def test_success_forgives_former_deaths(pool: Pool) -> None:
    """Deaths with finished work between them never end a pool."""
    for _ in range(6):
        with pytest.raises(WorkerLost):
            await pool.submit(works.Crash(job="j", label="a"))
        assert await pool.submit(works.Count(job="j", label="b")) == 1


async def test_work_that_does_not_pickle_is_refused(pool: Pool) -> None:
    """Work that cannot travel is the caller's mistake, said at once."""
    with pytest.raises(UsageError, match="cannot be pickled"):
        await pool.submit(works.Unpicklable(job="j", label="a"))


async def test_a_result_that_does_not_pickle_is_an_error(pool: Pool) -> None:
    """A result that cannot travel fails its work, not the process."""
    process = await pool.submit(works.Ask(job="j", label="a"))
    with pytest.raises(WorkError, match="TypeError"):
        await pool.submit(works.ReturnUnpicklable(job="j", label="b"))
    assert await pool.submit(works.Ask(job="j", label="a")) == process


async def test_large_arrays_are_not_copied(pool: Pool) -> None:
    """A large array is a view of the object store: read-only, and no copy of it was made."""
    work = works.MakeArray(job="j", label="a", length=20 << 20)
    assert not (await pool.submit(work)).flags.writeable


async def test_results_do_not_fill_the_store(pool: Pool) -> None:
    """Results that are no longer held leave the object store."""
    before = _objects_in_store()
    for i in range(6):
        await pool.submit(works.MakeArray(job="j", label=f"{i}", length=64 << 20))
    await until(lambda: _has_no_more_objects_than(before))


async def _has_no_more_objects_than(most: int) -> bool:
    return await asyncio.to_thread(_objects_in_store) <= most


def _objects_in_store() -> int:
    import ray
    from ray._private.internal_api import memory_summary

    found = re.search(r"(\d+) objects", memory_summary(address=ray.get_runtime_context().gcs_address, stats_only=True))
    assert found
    return int(found[1])


async def test_pools_share_a_connection(private_ray: Connection) -> None:
    """Pools live side by side, also when they ask for more slots than there are cores."""
    async with AsyncExitStack() as opened:
        pools = [await opened.enter_async_context(LeasedPool(ground_on(private_ray, 9).reach, 9)) for _ in range(2)]
        processes = {await pool.submit(works.Ask(job="j", label="a")) for pool in pools}
    assert len(processes) == 2


async def test_closing_leaves_no_process(private_ray: Connection) -> None:
    """A closed pool's processes are gone within a second."""
    async with LeasedPool(ground_on(private_ray, 1).reach, 1) as pool:
        process = await pool.submit(works.Ask(job="j", label="a"))
    await until(lambda: _is_gone(process), patience_s=BUSY_S)


async def test_a_machine_of_our_own_is_used_in_full(pool: Pool) -> None:
    """On a private Ray a job's only segment may use the cores of all slots: no other program has any there."""
    pool.set_demand("j", plain_demand("j", 1))
    await more_slots(pool, "j", 0)
    job = pool.state.of("j")
    assert (job.slots, job.cores) == (1, 4)
