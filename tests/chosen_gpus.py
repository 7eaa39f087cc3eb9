"""Runs work on a fleet's GPUs, and compares the GPU that placement chose for each worker with the worker's own."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from codecfleet.actors.device.work import Work, WorkContext
from codecfleet.cluster.fleet.default import default_pool
from codecfleet.cluster.fleet_variables import EVENTS
from codecfleet.cluster.placement.model.demand import Demand, plain_demand
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, MediaCodec
from codecfleet.cluster.supervisor.core.core import Core
from codecfleet.cluster.supervisor.runner.recording import SUFFIX, decide
from codecfleet.cluster.supervisor.state.events import AnswerReport
from tests.replaying import unpickled

REPOSITORY: Final = Path(__file__).parents[1]
BY_RAY: Final = (sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus", "2")
BY_CODECFLEET: Final = (sys.executable, "-m", "codecfleet", "node", "start", "--spot", "off", "--cpus", "2")
BY_EXPORTS: Final = (
    *("sh", "-c", f'eval "$({shlex.quote(sys.executable)} -m codecfleet node env --cpus 2)" && exec "$@"', "sh"),
    *BY_RAY,
)
SHARER: Final = """
import ray, sys, time
ray.init(log_to_driver=False, namespace="a stranger")

@ray.remote(num_cpus=0, num_gpus=0.4)
class Stranger:
    def gpus(self):
        return ray.get_gpu_ids()

ray.get(Stranger.options(name="s" + sys.argv[1], lifetime="detached").remote().gpus.remote())
"""
"""Another program's actor, which leaves enough of its GPU for a worker."""
WORKS: Final = 400
"""More than one GPU's worker runs at a time."""
PATIENCE_S: Final = 120.0
"""How long the workers of all GPUs may take to start, on a machine that is busy with other tests."""
_PROGRAM: Final = "from tests.chosen_gpus import main; main()"
_Seen = tuple[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeeGpu(Work[_Seen]):
    """Return the process's id and the UUIDs of the GPUs that CUDA shows it, after ``seconds``."""

    seconds: float

    def run(self, context: WorkContext) -> _Seen:
        """Ask CUDA."""
        context.advance()
        time.sleep(self.seconds)
        from cuda.bindings import driver

        driver.cuInit(0)
        count = driver.cuDeviceGetCount()[1]
        found = [driver.cuDeviceGetUuid(driver.cuDeviceGet(number)[1])[1] for number in range(count)]
        return os.getpid(), tuple(str(UUID(bytes=bytes(each.bytes))) for each in found)


@dataclass(slots=True)
class WorkersGpu:
    """The GPU of a worker that did work, as named by CUDA in its process, by placement, and by the worker."""

    seen: tuple[str, ...]  #: the UUIDs of all GPUs that the process sees
    chosen: set[str] = field(default_factory=set)  #: the GPUs of the lanes for which it got slots
    reported: set[str] = field(default_factory=set)


class Way(NamedTuple):
    """A way to start a node: the first words of the command, its options, and variables."""

    start: tuple[str, ...]
    options: tuple[str, ...] = ()
    variables: dict[str, str] = {}  # noqa: RUF012 - never changed
    is_shared: bool = False  #: whether another program's actor has a part of a GPU


def ways(uuids: Sequence[str], whole: int) -> dict[str, Way]:
    """Return the ways to start a node on a machine whose GPUs and slices have these UUIDs, on ``whole`` GPUs."""
    count, last_first = str(len(uuids)), ",".join(sorted(uuids, reverse=True))
    numbers = ",".join(map(str, reversed(range(whole))))
    pod = {"NVIDIA_VISIBLE_DEVICES": last_first}
    as_operator = ("--num-gpus", count, "--resources", json.dumps({"video": 1}))
    return {
        "codecfleet": Way(BY_CODECFLEET, ("--",)),
        "ray": Way(BY_RAY),
        "ray with a number": Way(BY_RAY, ("--num-gpus", count)),
        "visible numbers": Way(BY_RAY, ("--num-gpus", str(whole)), {"CUDA_VISIBLE_DEVICES": numbers}),
        "visible uuids": Way(BY_RAY, ("--num-gpus", count), {"CUDA_VISIBLE_DEVICES": last_first}),
        "pod": Way(BY_RAY, as_operator, pod, is_shared=True),
        "pod with exports": Way(BY_EXPORTS, as_operator, pod),
    }


def workers_gpus(folder: Path, environment: Mapping[str, str], gpus: int) -> list[WorkersGpu]:
    """Run work in another program until ``gpus`` processes did some; return the GPUs of these workers.

    ``folder`` gets the events of the supervisor, which may be an earlier program's.
    """
    own = {"PYTHONPATH": str(REPOSITORY), EVENTS: str(folder)}
    ran = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(gpus)],
        env={**environment, **own},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S + 60,
        check=False,
        cwd=REPOSITORY,
    )
    assert ran.returncode == 0, ran.stderr
    found = {pid: WorkersGpu(tuple(uuids)) for pid, uuids in json.loads(ran.stdout.splitlines()[-1])}
    for path in folder.glob(f"*{SUFFIX}"):
        for pid, chosen, reported in _granted(path.read_bytes()):
            if pid in found:
                found[pid].chosen.add(chosen)
                found[pid].reported.add(reported)
    return list(found.values())


def assert_chosen(found: list[WorkersGpu], uuids: Mapping[str, str]) -> None:
    """Check that each worker has the GPU that placement chose, that no two share one, and that every GPU is used.

    ``uuids`` maps the GPUs' names on their machine to the UUIDs by which CUDA knows them.
    """
    for worker in found:
        (chosen,), (reported,) = ({_here(name) for name in names} for names in (worker.chosen, worker.reported))
        assert (reported, worker.seen) == (chosen, (uuids[chosen].split("-", 1)[1],))
    assert sorted(_here(name) for worker in found for name in worker.chosen) == sorted(uuids)


def _here(device: str) -> str:
    """Return the name of a GPU on its machine."""
    return device.rpartition("/")[2]


def _granted(recording: bytes) -> Iterator[tuple[int, str, str]]:
    """Yield each process that got slots, with the GPU for which placement gave them, and the GPU that it reported."""
    core: Core | None = None
    for kept in unpickled(recording):
        if core is None or isinstance(kept, Core):
            core = kept
            continue
        for answer in decide(core, kept.event, kept.now_s).effects:
            for job, slots in answer.grants.slots.items() if isinstance(answer, AnswerReport) else ():
                lanes = {lane.device for lane in core.state.plans.of(f"{answer.client}/{job}").lanes}
                for book in (core.state.stations[worker.station] for worker in slots):
                    if book.facts is not None and book.station.kind.takes_gpu:
                        yield book.facts.pid, book.chosen if book.chosen in lanes else "", book.device


def main() -> None:
    """Print the processes that ran works and the GPUs that each process sees, for as many processes as stated."""
    sys.stdout.write(json.dumps(asyncio.run(_seen(int(sys.argv[1])))) + "\n")


async def _seen(gpus: int) -> list[_Seen]:
    pool = default_pool(None, None)
    await pool.start()
    pool.set_demand("j", _wide())
    found, is_enough = set[_Seen](), asyncio.Event()

    async def work(number: int) -> object:
        while True:
            found.add(await pool.submit(SeeGpu(job="j", label=str(number), seconds=0.2)).result)
            if len({pid for pid, _ in found}) >= gpus:
                is_enough.set()

    works = [asyncio.create_task(work(number)) for number in range(WORKS)]
    works.append(asyncio.create_task(is_enough.wait()))
    try:
        done, _ = await asyncio.wait(works, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()  # raises a work's error
    finally:
        for each in works:
            each.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        await pool.aclose()
    return sorted(found)


def _wide() -> Demand:
    """Return a demand that GPUs decode and that needs few cores, so that placement uses every GPU."""
    plain = plain_demand("j", WORKS)
    small = replace(plain.renditions[0], width=160, height=90, preset="ultrafast")
    decode = CodecCase(MediaCodec.H264, Direction.DECODE)
    return replace(
        plain, width=3840, height=2160, decode=decode, segments=(2000,) * WORKS, renditions=(small,), needs_gpu=True
    )
