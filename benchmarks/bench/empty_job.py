"""A program that runs empty work items on a cluster, to measure what each costs Ray and the client.

It starts its workers and prints that they are up. Each line on stdin names a phase; the program runs the phase and
prints its cost as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from codecfleet.actors.device.work import Work
from codecfleet.cluster.fleet.leases.connecting import connecting_pool
from codecfleet.cluster.fleet.leases.leased_pool import LeasedPool
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.testing import works

JOB = "job"
SECONDS_IDLE = 20.0
CALLS_AT_ONCE = 16
MIB = 1 << 20


def _empty(label: str) -> Work[Any]:
    return works.Count(job=JOB, label=label)


def _full(label: str) -> Work[Any]:
    return works.MakeArray(job=JOB, label=label, length=MIB)


async def _work(pool: LeasedPool, pieces: int, make: Callable[[str], Work[Any]]) -> None:
    """Run all work items, one per slot at a time, as a job's board does."""
    left = iter(range(pieces))
    pool.set_demand(JOB, plain_demand(JOB, pieces))

    async def lane() -> None:
        for number in left:
            await pool.submit(make(f"piece {number}"))

    await asyncio.gather(*(lane() for _ in range(pool.state.slots)))
    pool.set_demand(JOB, None)


async def _call(pool: LeasedPool, calls: int) -> None:
    """Call workers for their heartbeats, as the supervisor does."""
    pool.set_demand(JOB, plain_demand(JOB, 1))
    running = pool.submit(works.Dwell(job=JOB, label="it runs", seconds=3600.0))
    while not running.progress.frames:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.1)
    worker = await pool.client.supervisor.handle(running.progress.worker)
    for _ in range(calls // CALLS_AT_ONCE):
        await asyncio.gather(*(worker.heartbeat() for _ in range(CALLS_AT_ONCE)))
    running.cancel()
    pool.set_demand(JOB, None)


async def _do(pool: LeasedPool, phase: str, count: int) -> None:
    match phase:
        case "empty":
            await _work(pool, count, _empty)
        case "full":
            await _work(pool, count, _full)
        case "call":
            await _call(pool, count)
        case _:
            await asyncio.sleep(SECONDS_IDLE)


async def _main() -> None:
    async with connecting_pool(None, None) as pool:
        began_s = time.monotonic()
        await _work(pool, 1, _empty)
        first_s = time.monotonic() - began_s
        await _work(pool, 4 * pool.state.slots, _empty)
        print(json.dumps({"first_piece_s": round(first_s, 2), "slots": pool.state.slots}), flush=True)
        while line := (await asyncio.to_thread(sys.stdin.readline)).split():
            began_s, cpu_s = time.monotonic(), time.process_time()
            await _do(pool, line[0], int(line[1]))
            took = {"wall_s": time.monotonic() - began_s, "driver": time.process_time() - cpu_s}
            print(json.dumps(took), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
