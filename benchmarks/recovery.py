"""Measure how soon lost work runs again after a worker or node is killed, on a local Ray cluster of three nodes.

``python benchmarks/recovery.py [--runs N]``; README.md beside this file says what is recorded.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from codecfleet.cluster.fleet.leases.connecting import connecting_pool
from codecfleet.cluster.fleet.pool import Pool
from codecfleet.errors import WorkerLost
from codecfleet.testing import works
from tests.integration.ray_cluster import RayCluster, ray_cluster

PIECE_S = 2.0
"""A short segment."""
WARM_S = 6.0


async def drive() -> None:
    """Keep every slot of the cluster busy; print a line for each lost work item that runs again."""
    async with connecting_pool(os.environ["RAY_ADDRESS"], None) as pool:
        print("ready", flush=True)
        numbers = iter(range(1, 1_000_000))
        await asyncio.gather(*(_keep_busy(pool, numbers) for _ in range(pool.state.slots)))


async def _keep_busy(pool: Pool, numbers: Iterator[int]) -> None:
    while True:
        work = works.Dwell(job="recovery", label=str(next(numbers)), seconds=PIECE_S)
        try:
            await pool.submit(work)
        except WorkerLost:
            lost_s = time.monotonic()
            await _again(pool, work, lost_s)


async def _again(pool: Pool, work: works.Dwell, lost_s: float) -> None:
    while True:
        try:
            began_s, _ = await pool.submit(work)
        except WorkerLost:
            continue
        print(json.dumps({"lost_s": lost_s, "again_s": began_s}), flush=True)
        return


def _kill_worker(cluster: RayCluster, rng: random.Random) -> None:
    pids = [worker["pid"] for worker in cluster.status()["workers"] if worker["state"] == "ready"]
    os.kill(rng.choice(pids), signal.SIGKILL)


def _kill_node(cluster: RayCluster, rng: random.Random) -> None:
    nodes = [worker["worker"].partition("/")[0] for worker in cluster.status()["workers"] if worker["pid"]]
    cluster.kill_node(rng.choice(sorted(set(nodes))))


def measure(cluster: RayCluster, kill: Callable[[RayCluster, random.Random], None], seed: int) -> dict[str, Any]:
    """Kill a process at a random moment.

    Return the seconds until its work counted as lost, and until that work ran again.
    """
    rng = random.Random(seed)  # noqa: S311 - a repeatable choice
    command = [sys.executable, __file__, "--drive"]
    driver = subprocess.Popen(command, env=cluster.env, stdout=subprocess.PIPE, text=True)
    said = driver.stdout
    if said is None:
        raise RuntimeError("a driver without a pipe")
    try:
        said.readline()
        time.sleep(WARM_S + rng.random() * PIECE_S)
        began_s = time.monotonic()
        kill(cluster, rng)
        killed_s = time.monotonic()
        os.set_blocking(said.fileno(), False)
        time.sleep(PIECE_S + 12)
        lines = [json.loads(line) for line in said]
    finally:
        driver.kill()
        driver.wait()
    found = [line for line in lines if line["lost_s"] > began_s]
    return {
        "pieces": len(found),
        "lost_s": [round(line["lost_s"] - killed_s, 3) for line in found],
        "again_s": [round(line["again_s"] - killed_s, 3) for line in found],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="runs for each kind of death (default: 5)")
    parser.add_argument("--drive", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.drive:
        asyncio.run(drive())
        return
    with ray_cluster(2, 2, 2) as cluster:
        for name, kill in (("worker SIGKILL", _kill_worker), ("node crash", _kill_node)):
            runs = []
            for seed in range(asked.runs):
                runs.append(measure(cluster, kill, seed))
                print(name, seed, json.dumps(runs[-1]), flush=True)
                if kill is _kill_node:
                    cluster.add_node(2)
            again = [max(run["again_s"]) for run in runs if run["again_s"]]
            summary = (
                f"median {statistics.median(again):.2f} s, worst {max(again):.2f} s" if again else "nothing was lost"
            )
            print(f"{name}: work runs again after {summary}, {len(again)} of {asked.runs} runs", flush=True)


if __name__ == "__main__":
    main()
