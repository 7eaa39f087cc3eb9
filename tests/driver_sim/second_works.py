"""Work for a worker of two processes, and programs that run such a worker; both processes import this module."""

import asyncio
import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codecfleet.actors.decode.decoding import DecodeRange, DecodeTally, decode_range
from codecfleet.actors.decode.picture_hash import picture_hash
from codecfleet.actors.device.work import UNCONSTRAINED, Constraints, Work, WorkContext
from codecfleet.actors.nvidia.gpu import Gpu
from codecfleet.actors.worker import helper
from codecfleet.actors.worker.packed_work import BlobCache
from codecfleet.cluster.probes.gpus.visible_device import TakenDevice
from codecfleet.cluster.worker import ray_worker
from codecfleet.errors import EngineUnfit
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec

TICK_S = 0.02
SEIZED_S = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Work[int]):
    """Runs until a file exists, and returns its process id."""

    gate: str

    def run(self, context: WorkContext) -> int:
        """Wait."""
        while not Path(self.gate).exists():
            context.advance(0)
            threading.Event().wait(TICK_S)
        return os.getpid()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode(Work[tuple[int, list[str]]]):
    """Decodes a range on the GPU; returns its process id, and the hashes of the pictures."""

    range_: DecodeRange

    def run(self, context: WorkContext) -> tuple[int, list[str]]:
        """Decode.

        Raises:
            EngineUnfit: this process has no GPU.
        """
        if not isinstance(context.device, Gpu):
            message = "no GPU here"
            raise EngineUnfit(message, "Give it one.")
        hashes = []
        for ticks, picture in decode_range(self.range_, DecodeTally(), context.device.pictures):
            context.advance()
            hashes.append(picture_hash(ticks, picture).digest.hex())
        return os.getpid(), hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class Seize(Work[None]):
    """Holds the GIL, as a driver's call may, after writing its process id to a file."""

    told: str

    def run(self, context: WorkContext) -> None:
        """Stop every thread of the process."""
        Path(self.told).write_text(str(os.getpid()), encoding="utf-8")
        ctypes.PyDLL(None).sleep(SEIZED_S)
        context.advance()


def packed(work: Work[Any]) -> tuple[bytes, Constraints]:
    """Return work packed as a client packs it."""
    return BlobCache(bytes).pack(work)[0], UNCONSTRAINED


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(TICK_S)


async def _filled(
    gate: str, work: tuple[bytes, Constraints]
) -> tuple[ray_worker.RayWorker, Any, list[asyncio.Task[Any]]]:
    """Return a worker with a full first process, so that the second gets further work; also return its running work."""
    worker = ray_worker.RayWorker(32, takes_gpu=True)
    first = await worker.run("first", *work)
    held = [
        asyncio.create_task(worker.run(f"hold {number}", *packed(Hold(job="j", label=f"{number}", gate=gate))))
        for number in range(3)
    ]
    host = worker._host
    # no simulated GPU is fast enough for the worker to start a second process by itself
    worker._loop.call_soon_threadsafe(host.start_second, host._spawn_second)
    await _until(lambda: host._second is not None and host._second.is_ready)
    return worker, first, held


async def _work(source: str, gate: str, answer: str) -> None:
    """Let both processes work, then kill the second, which ends this process too."""
    plan = plan_transcode(TranscodeSpec(source=source, output="out.mkv", force=True))
    decode = packed(Decode(job="j", label="decode", range_=plan.work("j", 0, 0, 0).decode))
    worker, first, held = await _filled(gate, decode)
    there = await asyncio.gather(*(worker.run(f"decode {number}", *decode) for number in range(2)))
    heartbeat = await worker.heartbeat()
    await asyncio.to_thread(Path(gate).touch)
    outcomes = [first, *there, *[await each for each in held]]
    told: dict[str, Any] = {
        "errors": [str(outcome.error) for outcome in outcomes if outcome.error],
        "pid": os.getpid(),
        "decoded": [outcome.result for outcome in outcomes[:3]],
        "held": sorted({outcome.result for outcome in outcomes[3:]}),
        "frames_done": heartbeat.frames_done,
    }
    # Not to standard output: output of a GPU's process appears a moment later, and this process ends before that.
    await asyncio.to_thread(Path(answer).write_text, json.dumps(told), encoding="utf-8")
    (child,) = {pid for pid, _ in told["decoded"]} - {os.getpid()}
    os.kill(child, signal.SIGKILL)
    await worker.watch()


async def _seize(gate: str, told: str, end: Callable[[ray_worker.RayWorker], Coroutine[Any, Any, None]]) -> None:
    """Let the second process hang with its interpreter, then let ``end`` end the worker."""
    here = await asyncio.to_thread(Path(gate).with_name, "open")
    await asyncio.to_thread(here.touch)
    hold = packed(Hold(job="j", label="open", gate=str(here)))
    worker, _, held = await _filled(gate, hold)
    child = (await worker.run("there", *hold)).result
    os.kill(child, signal.SIGINT)  # as from a terminal; with work, the process waits for its worker's order
    if (await worker.run("there still", *hold)).result == child:
        held.append(asyncio.create_task(worker.run("seize", *packed(Seize(job="j", label="seize", told=told)))))
        await _until(Path(told).exists)
        await end(worker)


async def _killed(_: ray_worker.RayWorker) -> None:
    """End this process as the kernel does when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


async def _asked(worker: ray_worker.RayWorker) -> None:
    """Ask the worker for heartbeats again and again, as a supervisor does."""
    helper.QUIET_S = 1.0  # type: ignore[misc]
    while True:
        await worker.heartbeat(0)
        await asyncio.sleep(TICK_S)


def main(source: str, gate: str, answer: str) -> None:
    """Run a worker with a GPU but without Ray, and write its results to ``answer``."""
    _alone_on_a_gpu()
    asyncio.run(_work(source, gate, answer))


def seize(folder: str, what: str) -> None:
    """Let a worker's second process hang in ``folder``, where it must not import modules; ``what`` ends the worker."""
    _alone_on_a_gpu()
    sys.path.remove("")
    os.chdir(folder)
    asyncio.run(_seize(f"{folder}/gate", f"{folder}/told", {"killed": _killed, "asked": _asked}[what]))


def _alone_on_a_gpu() -> None:
    ray_worker._take_device = lambda *_, **__: TakenDevice("GPU-0")  # type: ignore[attr-defined]
