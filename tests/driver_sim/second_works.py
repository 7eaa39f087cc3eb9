"""Work for a worker of two processes, and the program that has such a worker do it; a module, so that both find it."""

import asyncio
import json
import os
import pickle
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codecfleet.actors.decoding import DecodeRange, DecodeTally, decode_range, picture_hash
from codecfleet.actors.nvidia.gpu import Gpu
from codecfleet.actors.work import Work, WorkContext
from codecfleet.cluster import ray_worker
from codecfleet.errors import EngineUnfit
from codecfleet.jobs.plan import plan_transcode
from codecfleet.jobs.spec import TranscodeSpec

TICK_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold(Work[int]):
    """Stays until a file is there, and says in which process it was."""

    gate: str

    def run(self, context: WorkContext) -> int:
        """Wait."""
        while not Path(self.gate).exists():
            context.advance(0)
            threading.Event().wait(TICK_S)
        return os.getpid()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode(Work[tuple[int, list[str]]]):
    """Decodes a range on the GPU; returns its process, and what tells the pictures apart."""

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


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - nobody tells when it is so
        await asyncio.sleep(TICK_S)


async def _work(source: str, gate: str, answer: str) -> None:
    """Fill the first process, so that the second takes what comes then; end in the way in which the worker does."""
    worker = ray_worker.RayWorker(32, takes_gpu=True)
    plan = plan_transcode(TranscodeSpec(source=source, output="out.mkv", force=True))
    packed = pickle.dumps(Decode(job="j", label="decode", range_=plan.work("j", 0, 0, 0).decode))
    first = await worker.run("first", packed)
    held = [
        asyncio.create_task(worker.run(f"hold {number}", pickle.dumps(Hold(job="j", label=f"{number}", gate=gate))))
        for number in range(3)
    ]
    second = worker._second
    second.start()  # no simulated GPU is fast enough to ask for it
    await _until(lambda: second.is_ready)
    there = await asyncio.gather(*(worker.run(f"decode {number}", packed) for number in range(2)))
    pulse = await worker.pulse()
    await asyncio.to_thread(Path(gate).touch)
    outcomes = [first, *there, *[await each for each in held]]
    told: dict[str, Any] = {
        "errors": [str(outcome.error) for outcome in outcomes if outcome.error],
        "pid": os.getpid(),
        "decoded": [outcome.result for outcome in outcomes[:3]],
        "held": sorted({outcome.result for outcome in outcomes[3:]}),
        "frames_done": pulse.frames_done,
    }
    # Not to standard output: what a GPU's process prints comes out a moment later, and this one ends before.
    await asyncio.to_thread(Path(answer).write_text, json.dumps(told), encoding="utf-8")
    (child,) = {pid for pid, _ in told["decoded"]} - {os.getpid()}
    os.kill(child, signal.SIGKILL)
    await worker.watch()


def main(source: str, gate: str, answer: str) -> None:
    """Have a worker do it, to which no Ray gives its GPU; what it did is written to ``answer``."""
    ray_worker._take_device = lambda: "GPU-0"  # type: ignore[attr-defined]
    asyncio.run(_work(source, gate, answer))
