"""A machine on which another worker process starts beside the first."""

import asyncio
from functools import partial

from codecfleet.actors.process.process import start_program
from codecfleet.cluster.fleet.leases.connecting import connecting_pool
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.cluster.worker_names import WORKER
from codecfleet.testing import works

ENDLESS_S = 3600
SLOTS = 9
"""One more than a process has."""


async def test_work_that_another_process_pays_for_runs_on_both() -> None:
    """What the first process has no slot for runs in another of ours."""
    pool = connecting_pool(None, SLOTS, start_process=partial(start_program, WORKER))
    async with pool, asyncio.timeout(120):
        pool.set_demand("j", plain_demand("j", 100))
        runs = [pool.submit(works.Dwell(job="j", label=f"{i}", seconds=ENDLESS_S)) for i in range(SLOTS)]
        while not all(run.progress.frames for run in runs):  # noqa: ASYNC110 - progress is polled
            await asyncio.sleep(0.01)
        assert {run.progress.worker.station for run in runs} == {"here/cpu#0", "here/cpu#1"}
        assert not any(run.result.done() for run in runs)
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
    assert pool.state.notes == ()
