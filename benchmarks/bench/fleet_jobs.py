"""Runs the same job several times on one fleet: the first job opens the fleet, the others find the fleet open and warm.

Run as a separate program (``python -m bench.fleet_jobs ORDER.json``), so that all of it is measured, as in the
other contenders.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from codecfleet import Fleet, LadderReport, LadderSpec, Report, TranscodeSpec

from .processes import ProcessTree
from .same_bytes import decoding_of


def main(order_path: str) -> None:
    """Run the order's jobs, and write the result of each job."""
    order = json.loads(Path(order_path).read_text(encoding="utf-8"))
    jobs = asyncio.run(_run(order))
    Path(order["answer"]).write_text(json.dumps(jobs), encoding="utf-8")


_SPECS: Final[Mapping[str, type[TranscodeSpec | LadderSpec]]] = {"transcode": TranscodeSpec, "ladder": LadderSpec}


async def _run(order: dict[str, Any]) -> list[dict[str, Any]]:
    spec = _SPECS[order.get("command", "transcode")].model_validate(order["spec"])
    tree = ProcessTree(os.getpid())
    jobs = []
    began_s, cpu_before_s = order["began_s"], 0.0
    async with Fleet(workers=order["workers"]) as fleet:
        for _ in range(order["jobs"]):
            report = await (fleet.ladder(spec) if isinstance(spec, LadderSpec) else _transcode(fleet, spec))
            ended_s, cpu_s = time.monotonic(), _cpu_s(tree)
            jobs.append(_told(report, ended_s - began_s, cpu_s - cpu_before_s))
            began_s, cpu_before_s = time.monotonic(), _cpu_s(tree)
    return jobs


async def _transcode(fleet: Fleet, spec: TranscodeSpec) -> Report:
    return await (await fleet.transcode(spec))


def _cpu_s(tree: ProcessTree) -> float:
    """Return the CPU time of this process and its descendants so far; Ray's workers live as long as the fleet."""
    return time.process_time() + sum(process.cpu_s for process in tree.look())


def _told(report: Report | LadderReport, wall_s: float, cpu_s: float) -> dict[str, Any]:
    if isinstance(report, LadderReport):
        return {"wall_s": wall_s, "cpu_s": cpu_s, "report": report.to_json()}
    told = decoding_of(report)
    return {
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "stages_s": report.timings_s,
        "decoded_by": told["decoded_by"],
        "fallbacks": told["fallbacks"],
        "sha256": report.proof.output_sha256,
        "workers": report.workers,
        "encoder_kind": report.encoder_kind,
    }


if __name__ == "__main__":
    main(sys.argv[1])
