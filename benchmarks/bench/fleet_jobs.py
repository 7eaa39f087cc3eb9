"""The same job several times on one fleet: the first finds it closed, the others find it open and warm.

Run as a program of its own (``python -m bench.fleet_jobs ORDER.json``), so that it is measured whole, as others are.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, TypeVar

from codecfleet import Fleet, Report, TranscodeSpec
from codecfleet.actors.device.work import Work
from codecfleet.cluster.client.connected_pool import ConnectedPool

from .processes import ProcessTree
from .same_bytes import decoding_of

ResultT = TypeVar("ResultT")


def main(order_path: str) -> None:
    """Run the order's jobs, and write what came of each."""
    order = json.loads(Path(order_path).read_text(encoding="utf-8"))
    jobs = asyncio.run(_run(order))
    Path(order["answer"]).write_text(json.dumps(jobs), encoding="utf-8")


class _WatchedPool(ConnectedPool):
    """Notes how many pieces of work each worker process has at once: a report does not tell."""

    def __init__(self, slots: int | None) -> None:
        super().__init__(None, slots)
        self.most: Counter[str] = Counter()

    async def submit(self, work: Work[ResultT]) -> ResultT:
        asyncio.get_running_loop().call_soon(self._look, work.job)  # once it has been handed out
        try:
            return await super().submit(work)
        finally:
            self._look(work.job)

    def _look(self, job: str) -> None:
        held = self._started()._leases.held(job)  # noqa: SLF001 - there is no public way to read it
        for worker, count in held.items():
            self.most[_kind(worker)] = max(self.most[_kind(worker)], count)


def _kind(worker: str) -> str:
    """Return "gpu#0" of a worker's name "<node>/gpu#0:1"."""
    return worker.rpartition("/")[2].partition(":")[0]


async def _run(order: dict[str, Any]) -> list[dict[str, Any]]:
    spec = TranscodeSpec.model_validate(order["spec"])
    tree = ProcessTree(os.getpid())
    pool = _WatchedPool(order["workers"])
    jobs = []
    began_s, cpu_before_s = order["began_s"], 0.0
    async with Fleet(pool=pool) as fleet:
        for _ in range(order["jobs"]):
            pool.most.clear()
            report = await (await fleet.transcode(spec))
            ended_s, cpu_s = time.monotonic(), _cpu_s(tree)
            jobs.append(_told(report, ended_s - began_s, cpu_s - cpu_before_s, dict(pool.most)))
            began_s, cpu_before_s = time.monotonic(), _cpu_s(tree)
    return jobs


def _cpu_s(tree: ProcessTree) -> float:
    """Return what this process and all below it have used so far; Ray's workers live as long as the fleet."""
    return time.process_time() + sum(process.cpu_s for process in tree.look())


def _told(report: Report, wall_s: float, cpu_s: float, slots: dict[str, int]) -> dict[str, Any]:
    told = decoding_of(report)
    return {
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "stages_s": report.timings_s,
        "decoded_by": told["decoded_by"],
        "fallbacks": told["fallbacks"],
        "slots": slots,
        "sha256": report.proof.output_sha256,
        "workers": report.workers,
        "encoder_kind": report.encoder_kind,
    }


if __name__ == "__main__":
    main(sys.argv[1])
