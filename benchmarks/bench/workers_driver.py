"""A driver of a cluster with many workers: it asks the supervisor for workers, gives them work, and reads the status.

Each line on stdin is an order, as JSON; the program prints its answer as a line of JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from itertools import cycle
from typing import Any, Final

from codecfleet.cluster.fleet.leases.connecting import connecting_pool
from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
from codecfleet.cluster.machine import CORES_PER_PROCESS
from codecfleet.cluster.operate.supervisor import read_status
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.errors import CodecfleetError
from codecfleet.testing import works

SLOTS_OF_A_JOB: Final = 20 * CORES_PER_PROCESS
"""The demand of each job: the workers of a large node."""
STEP_S: Final = 0.01


async def _obey(pool: LeasedPool, order: dict[str, Any]) -> Any:
    match order:
        case {"want": int(slots)}:
            _want(pool, slots)
            return None
        case {"work_s": int(seconds), "each_s": int(each_s)}:
            return await _work(pool, seconds, each_s)
        case _:
            return await _status()


def _jobs(slots: int) -> Iterator[tuple[str, int]]:
    """Yield jobs whose demands are ``slots`` together."""
    for number, first in enumerate(range(0, slots, SLOTS_OF_A_JOB)):
        yield f"job-{number}", min(SLOTS_OF_A_JOB, slots - first)


def _want(pool: LeasedPool, slots: int) -> None:
    wanted = dict(_jobs(slots))
    for job in pool.state.jobs.keys() - wanted.keys():
        pool.set_demand(job, None)
    for job, segments in wanted.items():
        pool.set_demand(job, plain_demand(job, segments))


async def _work(pool: LeasedPool, seconds: int, each_s: int) -> dict[str, Any]:
    """Submit ``each_s`` empty work items a second, of all jobs in turn; return how long they took."""
    jobs = [job for job, state in pool.state.jobs.items() if state.slots]
    took_s: list[float] = []
    failed: list[str] = []

    async def one(job: str, number: int) -> None:
        began_s = time.monotonic()
        try:
            await pool.submit(works.Count(job=job, label=f"piece {number}"))
        except CodecfleetError as error:
            failed.append(error.message)
        else:
            took_s.append(time.monotonic() - began_s)

    began_s, began_cpu_s, count, turns = time.monotonic(), time.process_time(), 0, cycle(jobs)
    async with asyncio.TaskGroup() as running:
        while (passed_s := time.monotonic() - began_s) < seconds:
            for number in range(count, int(passed_s * each_s)):
                running.create_task(one(next(turns), number))
            count = int(passed_s * each_s)
            await asyncio.sleep(STEP_S)
    wall_s = time.monotonic() - began_s
    return {"wall_s": wall_s, "driver_cpu_s": time.process_time() - began_cpu_s, "took_s": took_s, "failed": failed}


async def _status() -> dict[str, Any] | None:
    """Return the parts of the supervisor's status that are measured; None if no supervisor answers."""
    try:
        status = await read_status()
    except CodecfleetError:
        return None
    if status is None:
        return None
    shown = ("worker", "state", "pid", "heard_s", "reason")
    workers = [{name: getattr(each, name) for name in shown} for each in status.present]
    return {"pid": status.pid, "probed": sum(node.probed for node in status.nodes), "workers": workers}


async def _main() -> None:
    async with connecting_pool(None, None) as pool:
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(await _obey(pool, json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
