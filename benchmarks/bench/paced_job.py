"""A program that runs a job of paced work on a cluster.

It starts its workers, reports that, waits for a line on stdin, and prints the job's times as JSON.
"""

import asyncio
import json
import sys
import time

from codecfleet.actors.decode.picture_hash import PictureHash
from codecfleet.cluster.fleet.leases.connecting import connecting_pool
from codecfleet.cluster.fleet.pool import Pool
from codecfleet.cluster.placement.model.demand import plain_demand
from codecfleet.jobs.board.board import Board
from codecfleet.jobs.board.events import Finished, Run
from codecfleet.jobs.board.loop import BoardLoop, PoolCapacity, WorkerWait
from codecfleet.jobs.board.watch import WorkWatch
from codecfleet.jobs.request.running import WaitOptions

from .paced_work import FRAMES, Paced


async def _run(pool: Pool, name: str, segments: int, second_runs: int) -> dict[str, float]:
    """Run a job of equal segments whose seams all agree."""
    options = WaitOptions(second_runs=second_runs)
    watch = WorkWatch(pool, options)

    async def work(run: Run) -> int:
        return await watch.submit(Paced(job=name, label=run.label, apart_from=run.apart_from), FRAMES)

    async def accept(run: Run, frames: int) -> Finished:
        del frames
        after = () if run.until == segments - 1 else (PictureHash(run.until + 1, b""),)
        before = (PictureHash(run.segment, b""),)
        return Finished(run.segment, run.until, before, after, at_start=False, attempt=run.attempt)

    async def join(board: Board, segment: int) -> None:
        del board, segment

    capacity = PoolCapacity(pool, plain_demand(name, segments), None, WorkerWait(pool, name, options))
    board = Board.of([FRAMES] * segments)
    loop = BoardLoop(board, capacity, work=work, accept=accept, join=join, watch=watch)
    looking = asyncio.create_task(watch.run())
    began_s = time.monotonic()
    await loop.run()
    took_s = time.monotonic() - began_s
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    return {"makespan_s": round(took_s, 2), "second_runs": loop.board.doubled, "wasted_frames": loop.wasted_frames}


async def _main(workers: int, segments: int, second_runs: int) -> None:
    async with connecting_pool(None, None) as pool:
        await _run(pool, "warm-up job", 2 * workers, 0)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print(json.dumps(await _run(pool, "job", segments, second_runs)), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(*(int(argument) for argument in sys.argv[1:])))
