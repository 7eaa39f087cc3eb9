"""One step of a start, timed in a separate process: ``python -m bench.start_steps STEP ARGUMENTS``.

The program prints the seconds by name, as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

from codecfleet import Fleet, Job, TranscodeSpec
from codecfleet.actors.process.process import start_program
from codecfleet.cluster import machine
from codecfleet.cluster.fleet.default import default_pool
from codecfleet.cluster.fleet.host.program import WORKER
from codecfleet.cluster.worker.child_worker import ChildWorker
from codecfleet.jobs.report.events import Progress

__all__ = ["STEPS"]


async def _open() -> Mapping[str, float]:
    """Open a fleet's pool until a worker is ready, and close it."""
    began_s = time.monotonic()
    pool = default_pool(None, None)
    await pool.start()
    ready_s = time.monotonic()
    await pool.aclose()
    return {"ready": ready_s - began_s, "stop": time.monotonic() - ready_s}


async def _worker() -> Mapping[str, float]:
    """Start a worker's process until it answers."""
    began_s = time.monotonic()
    worker = ChildWorker(start_program(WORKER))
    await worker.begin(1, machine.cores())
    ready_s = time.monotonic()
    worker.end()
    await worker.death()
    return {"ready": ready_s - began_s}


async def _again(source: str, output: str) -> Mapping[str, float]:
    """Run a job twice on one fleet; time the second run, whose workers are up."""
    spec = TranscodeSpec(source=source, output=output, overwrite=True)
    async with Fleet() as fleet:
        await (await fleet.transcode(spec))
        began_s = time.monotonic()
        job = await fleet.transcode(spec)
        first_s = await _first_picture_s(job)
        await job
        return {"first picture": first_s - began_s, "whole job": time.monotonic() - began_s}


async def _first_picture_s(job: Job) -> float:
    async for event in job.events():
        if isinstance(event, Progress) and event.frames_done:
            return time.monotonic()
    return time.monotonic()  # the job ended before its progress was read


STEPS: Mapping[str, Callable[..., Awaitable[Mapping[str, float]]]] = {"open": _open, "worker": _worker, "again": _again}


async def _step(name: str, *arguments: str) -> Mapping[str, float]:
    return await STEPS[name](*arguments)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_step(*sys.argv[1:]))))
