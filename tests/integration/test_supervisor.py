"""A cluster's supervisor: fair shares, its own death, drained and dead nodes, released reservations."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .ray_cluster import RayCluster, ray_cluster

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

IDLE_S = 8
PATIENCE_S = 90

RESERVED = """
import ray
ray.init(log_to_driver=False, logging_level="CRITICAL")
from ray.util.placement_group import placement_group_table
left = [group["name"] for group in placement_group_table().values() if group["state"] != "REMOVED"]
total, free = ray.cluster_resources(), ray.available_resources()
print(len(left), total.get("CPU", 0) - free.get("CPU", 0))
"""

RESERVE = """
import ray, sys
ray.init(log_to_driver=False, logging_level="CRITICAL")
from ray.util.placement_group import placement_group, remove_placement_group
label = {"ray.io/node-id": sys.argv[1]}
group = placement_group([{"CPU": 1}], strategy="STRICT_PACK", bundle_label_selector=[label])
print(group.wait(5))
remove_placement_group(group)
"""
"""Reserves a core of a node, for at most 5 s; prints whether Ray reserved it."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """Two nodes with two CPUs each; unused workers are given back after a few seconds."""
    with ray_cluster(2, 2, env={"CODECFLEET_IDLE_S": str(IDLE_S)}) as running:
        yield running


def ready(status: dict[str, Any]) -> dict[str, int]:
    """Return the process of each ready worker."""
    return {worker["worker"]: worker["pid"] for worker in status["workers"] if worker["state"] == "ready"}


def shares(status: dict[str, Any]) -> list[int]:
    """Return the number of slots that each job may use."""
    return sorted(job["granted_slots"] for job in status["jobs"])


def first_node(cluster: RayCluster) -> str:
    """Return a node's id, which no supervisor is needed for."""
    return str(json.loads(cluster.run("node", "list", "--json").stdout)["nodes"][0]["ray"]["id"])


def test_an_order_needs_no_job(cluster: RayCluster) -> None:
    """It starts a supervisor, because the driver of a queue may run on the node."""
    node = first_node(cluster)
    for order, state in (("drain", "draining"), ("uncordon", "open")):
        ordered = cluster.run(order, node)
        assert ordered.returncode == 0, ordered.stderr
        assert {each["node"]: each["state"] for each in cluster.status()["nodes"]}[node] == state


def given_back(cluster: RayCluster) -> bool:
    """Return whether no placement group exists and no CPU is taken."""
    groups, cpus = cluster.python(RESERVED).split()
    return int(groups) == 0 and float(cpus) == 0


def test_two_drivers_share_and_survive_the_supervisor(cluster: RayCluster, film: Path, tmp_path: Path) -> None:
    """Two jobs of unequal size get equal shares; the supervisor's death delays neither, and nothing stays reserved."""
    outputs = [tmp_path / "large.mp4", tmp_path / "small.mp4"]
    common = ("--segment-seconds", "0.5", "--quiet")
    drivers = [
        cluster.start("transcode", str(film), str(outputs[0]), *common),
        cluster.start("transcode", str(film), str(outputs[1]), "--end", "5", *common),
    ]
    both = cluster.status_once(lambda status: shares(status) == [2, 2] and len(ready(status)) == 2, PATIENCE_S)
    workers = ready(both)
    os.kill(both["pid"], signal.SIGKILL)
    after = cluster.status_once(lambda status: status["pid"] != both["pid"] and len(ready(status)) == 2, PATIENCE_S)
    assert ready(after) == workers
    assert any("was adopted" in line for _, line in after["log"])
    for driver in drivers:
        _, said = driver.communicate(timeout=PATIENCE_S)
        assert driver.returncode == 0, said
    assert ready(cluster.status()).items() <= workers.items(), "what is idle may have been given back"
    for output, options in zip(outputs, [(), ("--end", "5")], strict=True):
        verified = cluster.run("verify", str(film), str(output), *options)
        assert verified.returncode == 0, verified.stdout
    cluster.status_once(lambda status: not ready(status), PATIENCE_S)
    assert given_back(cluster)


def test_nodes_may_be_drained_and_may_die(cluster: RayCluster, film: Path, tmp_path: Path) -> None:
    """A drained node finishes its work and is released, even by a new supervisor; a dead node only delays a job."""
    doomed = cluster.add_node(2)
    output = tmp_path / "out.mp4"
    driver = cluster.start(
        "transcode", str(film), str(output), "--segment-seconds", "0.5", "--scale", "960x540", "--quiet"
    )
    busy = cluster.status_once(lambda status: len(ready(status)) == 3, PATIENCE_S)
    drained = next(node["node"] for node in busy["nodes"] if node["devices"].startswith("2") and node["node"] != doomed)
    assert cluster.run("drain", drained).returncode == 0
    os.kill(busy["pid"], signal.SIGKILL)
    cluster.status_once(lambda status: not any(name.startswith(drained) for name in ready(status)), PATIENCE_S)
    cluster.kill_node(doomed)
    _, said = driver.communicate(timeout=PATIENCE_S)
    assert driver.returncode == 0, said
    verified = cluster.run("verify", str(film), str(output))
    assert verified.returncode == 0, verified.stdout
    status = cluster.status()
    assert {node["node"]: node["state"] for node in status["nodes"]}[drained] == "draining"
    assert doomed not in {node["node"] for node in status["nodes"]}
    assert cluster.run("uncordon", drained).returncode == 0


def test_work_goes_on_if_ray_makes_no_more_placement_groups(cluster: RayCluster, film: Path, tmp_path: Path) -> None:
    """If a node freezes during a reservation, Ray reserves nothing more on any node; jobs still get their workers."""
    healthy = first_node(cluster)
    frozen = cluster.add_node(2)
    cluster.stop_node(frozen)
    assert [cluster.python(RESERVE, node).split()[-1] for node in (frozen, healthy)] == ["False", "False"]
    output = tmp_path / "out.mp4"
    done = cluster.run("transcode", str(film), str(output), "--scale", "320x180", "--quiet")
    assert done.returncode == 0, done.stderr
    lines = [line for _, line in cluster.status()["log"]]
    assert any("starts without a placement group" in line for line in lines)
    verified = cluster.run("verify", str(film), str(output))
    assert verified.returncode == 0, verified.stdout
