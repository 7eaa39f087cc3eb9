"""Measure a supervisor with thousands of real worker actors, on Ray nodes that this machine only declares.

``python benchmarks/many_workers.py --nodes 4 --workers-per-node 8``; README.md beside this file says what is measured.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.limits import raise_limits, too_low
from bench.local_cluster import local_cluster
from bench.machine import describe_run, described_lines
from bench.program import run_in_folder
from bench.table import save_results, table_lines
from bench.workers_run import Stage, WorkersRun

from codecfleet.cluster.machine import CORES_PER_PROCESS, cores
from codecfleet.cluster.probes.nvml import can_load_nvml

THREADS_EACH: Final = 80
"""More threads than a worker's process has."""
FILES_EACH: Final = 6
"""More files than Ray's control service opens for each worker."""
STORE_BYTES: Final = 80_000_000
MEMORY_EACH_BYTES: Final = 8 << 30
"""The memory that a node declares for each worker, which work that does nothing never uses."""
LATER_S: Final = 90.0
"""How much of ``--limit-s`` is left for the stages after the start, besides their ``--stage-s``."""
VARIABLES: Final = {
    "CODECFLEET_IDLE_S": "3600",  # unused workers stay
    "OMP_NUM_THREADS": "1",  # else NumPy starts a thread for each core in each worker
    "OPENBLAS_NUM_THREADS": "1",
    "RAY_agent_register_timeout_ms": "120000",  # many processes start at the same time
    "RAY_memory_monitor_refresh_ms": "0",  # it would see the memory of all nodes as that of each node
    "RAY_num_server_call_thread": "1",  # else each process starts threads for all cores of the machine
    "RAY_prestart_worker_first_driver": "0",
    "REPORTER_UPDATE_INTERVAL_MS": "3600000",  # each node's agent would look at the processes of all nodes
}


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    return run_in_folder(lambda folder: _measure(options, folder), None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--nodes", type=int, default=4, metavar="N", help="Ray nodes, all on this machine (default: 4)")
    add("--workers-per-node", type=int, default=8, metavar="N", help="workers of each node (default: 8)")
    add(
        "--at-once", type=int, default=3 * cores(), metavar="N", help="workers that start at a time (default: 3 a core)"
    )
    add("--stage-s", type=int, default=20, metavar="S", help="how long a stage without an end lasts (default: 20)")
    add("--each-s", type=int, default=200, metavar="N", help="work items a second (default: 200)")
    add("--limit-s", type=float, default=900.0, metavar="S", help="time for the whole run (default: 900)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json, after each stage")
    return parser


def _measure(options: argparse.Namespace, folder: Path) -> None:
    ends_s = time.monotonic() + options.limit_s
    document = describe_run(None)
    for line in described_lines(document):
        print(line)
    raise_limits()
    wanted = options.nodes * options.workers_per_node
    for line in too_low(THREADS_EACH * wanted, 1000 + FILES_EACH * wanted):
        print(f"A limit of this machine may be too low; raise it: {line}")
    document |= {"nodes": options.nodes, "workers_per_node": options.workers_per_node, "stages": {}, "not_run": []}
    variables = {**VARIABLES, **_without_gpus(folder)}
    sizes = {"object_store_memory": STORE_BYTES, "memory": MEMORY_EACH_BYTES * options.workers_per_node}
    with local_cluster([], variables=variables, **sizes) as cluster:
        began_s = time.monotonic()
        nodes = cluster.add_nodes([options.workers_per_node * CORES_PER_PROCESS] * options.nodes)
        document["stages"]["nodes"] = {"nodes": len(nodes), "seconds": time.monotonic() - began_s}
        with cluster.program("workers_driver") as driver:
            run = WorkersRun(cluster, driver, nodes, options.workers_per_node)
            start = partial(run.start, options.at_once, ends_s - LATER_S - 3 * options.stage_s)
            first: tuple[Stage, ...] = (("probes", 0.0, run.probe), ("start", 0.0, start))
            for name, most_s, stage in (*first, *run.stages(options.stage_s, options.each_s)):
                if time.monotonic() + most_s > ends_s:
                    document["not_run"].append(name)
                    continue
                document["stages"][name] = stage()
                print("\n".join(_lines(name, document["stages"][name])), flush=True)
                if options.save:
                    save_results(options.save, document)
    if document["not_run"]:
        print(f"\nThere was no time for {', '.join(document['not_run'])}.")
    if options.save:
        print(f"\nsaved: {save_results(options.save, document)}")


def _without_gpus(folder: Path) -> dict[str, str]:
    """Return variables that hide the GPUs' driver: each node would try the codecs of all GPUs.

    The loader takes the first file that has a library's name, and refuses an empty file.
    """
    if not can_load_nvml():
        return {}
    for library in ("libnvidia-ml.so.1", "libcuda.so.1"):
        (folder / library).touch()
    return {"LD_LIBRARY_PATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])}


def _lines(stage: str, found: Mapping[str, Any]) -> list[str]:
    """Return a stage's figures as a table."""
    shown = {name: value for name, value in found.items() if isinstance(value, int | float)}
    return ["", *table_lines((stage, ""), [[name, f"{value:.4g}"] for name, value in shown.items()])]


if __name__ == "__main__":
    sys.exit(main())
