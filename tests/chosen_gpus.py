"""Runs work on a fleet's GPUs, and compares the GPU that placement chose for each worker with the worker's own."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from uuid import UUID

from codecfleet.actors.device.work import Work, WorkContext
from codecfleet.cluster.fleet.default import default_pool
from codecfleet.cluster.fleet_variables import EVENTS
from codecfleet.cluster.placement.model.demand import Demand, plain_demand
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, MediaCodec
from codecfleet.cluster.supervisor.runner.recording import SUFFIX, Decided
from codecfleet.cluster.supervisor.state.events import Start, Started
from tests.replaying import unpickled

REPOSITORY: Final = Path(__file__).parents[1]
WORKS: Final = 400
"""More than one GPU's worker runs before the worker of another GPU is up."""
_PROGRAM: Final = "from tests.chosen_gpus import main; main()"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeeGpu(Work[tuple[int, tuple[str, ...]]]):
    """Return the process's id and the UUIDs of the GPUs that CUDA shows it, after ``seconds``."""

    seconds: float

    def run(self, context: WorkContext) -> tuple[int, tuple[str, ...]]:
        """Ask CUDA."""
        context.advance()
        time.sleep(self.seconds)
        from cuda.bindings import driver

        driver.cuInit(0)
        count = driver.cuDeviceGetCount()[1]
        found = [driver.cuDeviceGetUuid(driver.cuDeviceGet(number)[1])[1] for number in range(count)]
        return os.getpid(), tuple(str(UUID(bytes=bytes(each.bytes))) for each in found)


@dataclass(frozen=True, slots=True)
class WorkersGpu:
    """The GPU of one worker, as named by placement, by the worker, and by CUDA in the worker's process."""

    chosen: str
    reported: str
    seen: tuple[str, ...]


def workers_gpus(folder: Path, environment: Mapping[str, str]) -> list[WorkersGpu]:
    """Run work on every GPU in another program; return the GPUs of the workers that did work."""
    events = folder / "events"
    own = {"PYTHONPATH": str(REPOSITORY), EVENTS: str(events)}
    command = [sys.executable, "-c", _PROGRAM]
    ran = subprocess.run(
        command, env={**environment, **own}, capture_output=True, text=True, timeout=100, check=False, cwd=REPOSITORY
    )
    assert ran.returncode == 0, ran.stderr
    seen = {pid: tuple(uuids) for pid, uuids in json.loads(ran.stdout.splitlines()[-1])}
    chosen = dict[str, str]()
    found = []
    kept = (each for path in sorted(events.glob(f"*{SUFFIX}")) for each in unpickled(path.read_bytes()))
    for decided in (each for each in kept if isinstance(each, Decided)):
        chosen |= {each.worker: each.device for each in decided.effects if isinstance(each, Start)}
        if isinstance(decided.event, Started) and decided.event.facts.pid in seen:
            facts = decided.event.facts
            found.append(WorkersGpu(chosen[decided.event.worker], facts.device, seen[facts.pid]))
    return found


def main() -> None:
    """Print, for each work, the process that ran it and the GPUs that the process sees."""
    sys.stdout.write(json.dumps(asyncio.run(_seen())) + "\n")


async def _seen() -> list[tuple[int, tuple[str, ...]]]:
    pool = default_pool(None, None)
    await pool.start()
    pool.set_demand("j", _wide())
    runs = [pool.submit(SeeGpu(job="j", label=str(number), seconds=0.5)) for number in range(WORKS)]
    try:
        return [await run.result for run in runs]
    finally:
        await pool.aclose()


def _wide() -> Demand:
    """Return a demand that GPUs decode and that needs few cores, so that placement uses every GPU."""
    plain = plain_demand("j", WORKS)
    small = replace(plain.renditions[0], width=160, height=90, preset="ultrafast")
    decode = CodecCase(MediaCodec.H264, Direction.DECODE)
    return replace(
        plain, width=3840, height=2160, decode=decode, segments=(2000,) * WORKS, renditions=(small,), needs_gpu=True
    )
