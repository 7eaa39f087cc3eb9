"""A machine on which Ray starts beside the first worker."""

import asyncio
from functools import partial

import pytest

from codecfleet.cluster.client.connected_pool import ConnectedPool
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.process.process import WORKER, start_program
from codecfleet.testing import works

ENDLESS_S = 3600
SLOTS = 9
"""One more than a process has."""


@pytest.mark.ray
@pytest.mark.slow
async def test_work_that_ray_pays_for_runs_on_both() -> None:
    """It begins without Ray and goes on while that starts; then two workers have it, one of which is Ray's."""
    pool = ConnectedPool(None, SLOTS, start_process=partial(start_program, WORKER))
    async with pool, asyncio.timeout(120):
        pool.set_demand(plain_demand("j", 100))
        runs = [
            asyncio.create_task(pool.submit(works.Dwell(job="j", label=f"{i}", seconds=ENDLESS_S)))
            for i in range(SLOTS)
        ]
        while not any((await pool.progress("j")).values()):  # noqa: ASYNC110 - progress is polled
            await asyncio.sleep(0.01)
        begun = set((await pool.stations("j")).values())
        while len(await pool.progress("j")) < SLOTS:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert begun == {"here/cpu#0"}
        assert set((await pool.stations("j")).values()) == {"here/cpu#0", "here/cpu#1"}
        assert not any(run.done() for run in runs)
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
    assert pool.notes == ()
