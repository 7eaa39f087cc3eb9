"""Measure the cost of Ray and the client for each work item: CPU of driver, supervisor, workers, raylets and GCS.

``python benchmarks/ray_overhead.py``; README.md beside this file says what each number means.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from bench.empty_job import SECONDS_IDLE
from bench.failures import CommandFailed
from bench.local_cluster import local_cluster
from bench.machine import describe_run, described_lines
from bench.program import run_in_folder
from bench.ray_processes import KINDS, cpu_s_by_kind
from bench.table import number, save_results, table_lines

if TYPE_CHECKING:
    import subprocess

SIDES = ("driver", *KINDS)
SETTLE_S = 3.0
"""How long to wait for Ray to count ended work."""


@dataclass(frozen=True)
class Phase:
    """One row: the name of the unit, the driver's phase, and the number of repetitions."""

    name: str
    order: str
    count: int


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    return run_in_folder(lambda _folder: _measure(options), None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--workers", type=int, default=2, metavar="N", help="nodes of one CPU, a worker each (default: 2)")
    add("--pieces", type=int, default=2000, metavar="N", help="work items that do nothing (default: 2000)")
    add("--results", type=int, default=500, metavar="N", help="work items with a result of 1 MiB (default: 500)")
    add("--calls", type=int, default=4000, metavar="N", help="small calls to a worker (default: 4000)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _measure(options: argparse.Namespace) -> None:
    document = describe_run(None)
    for line in described_lines(document):
        print(line)
    idle = Phase("a second without work", "idle", round(SECONDS_IDLE))
    phases = (
        Phase("a work item", "empty", options.pieces),
        Phase("a result of 1 MiB", "full", options.results),
        Phase("a small call to a worker", "call", options.calls),
    )
    os.environ["CODECFLEET_IDLE_S"] = "3600"  # the workers stay
    with local_cluster([1] * options.workers) as cluster, cluster.program("empty_job") as job:
        began: dict[str, Any] = json.loads(_line(job.stdout))
        resting = _phase(job, idle, {})
        took = {idle.name: resting, **{phase.name: _phase(job, phase, resting) for phase in phases}}
    document |= {"workers": options.workers, **began, "cpu_ms_each": took}
    print(f"\n{options.workers} workers; first item: {began['first_piece_s']} s, including the start of the workers.\n")
    rows = [[name, *(number(row[side], 3) for side in SIDES), number(row["per_s"], 0)] for name, row in took.items()]
    print("\n".join(table_lines(("CPU milliseconds for", *SIDES, "each s"), rows)))
    if options.save:
        print(f"\nsaved: {save_results(options.save, document)}")


def _phase(job: "subprocess.Popen[str]", phase: Phase, resting: Mapping[str, float]) -> dict[str, float]:
    """Return the CPU milliseconds of each side per unit, minus those of an idle cluster, and the units per second."""
    before, began_s = cpu_s_by_kind(), time.monotonic()
    if job.stdin is not None:
        job.stdin.write(f"{phase.order} {phase.count}\n")
        job.stdin.flush()
    told: dict[str, float] = json.loads(_line(job.stdout))
    time.sleep(SETTLE_S)
    after: dict[str, float] = cpu_s_by_kind() | {"driver": told["driver"]}
    rest_s = {"driver": told["wall_s"], **dict.fromkeys(KINDS, time.monotonic() - began_s)}
    took_ms = {
        side: 1000 * (after[side] - before.get(side, 0.0)) - resting.get(side, 0.0) * rest_s[side] for side in SIDES
    }
    each = {side: max(0.0, ms) / phase.count for side, ms in took_ms.items()}
    return {**{side: round(ms, 4) for side, ms in each.items()}, "per_s": round(phase.count / told["wall_s"], 1)}


def _line(output: IO[str] | None) -> str:
    line = "" if output is None else output.readline()
    if not line:
        raise CommandFailed("the job ended without an answer")
    return line


if __name__ == "__main__":
    sys.exit(main())
