"""Two live supervisors: one on a frozen node that Ray declared dead, and its successor."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from .ray_cluster import ray_cluster
from .test_supervisor import PATIENCE_S, ready

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]

ELSEWHERE = """
import sys
import time
import ray
from ray._private.state import actors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.supervisor.runner import actor
from codecfleet.cluster.supervisor.runner.actor import SupervisorActor
from codecfleet.cluster.supervisor.state.settings import SupervisorSettings
ray.init(log_to_driver=False, logging_level="CRITICAL")
there = NodeAffinitySchedulingStrategy(sys.argv[1], soft=False)
task = ray.remote(lambda: 0).options(num_cpus=0, scheduling_strategy=there)
ray.get(task.remote())  # from then on every node knows it
for _ in range(10):
    made = ray.remote(SupervisorActor).options(
        num_cpus=0, name=actor.SUPERVISOR, namespace="codecfleet", lifetime="detached", max_restarts=-1,
        scheduling_strategy=NodeAffinitySchedulingStrategy(sys.argv[1], soft=True),
    ).remote(SupervisorSettings(idle_release_s=5, client_expiry_s=5), Policy())
    pid = ray.get(made.status.remote()).pid
    if actors(made._actor_id.hex())["Address"]["NodeID"] == sys.argv[1]:
        break
    ray.kill(made)
    time.sleep(1)
print(pid)
"""
"""Starts the cluster's supervisor on a node, if possible, so that its successor may start anywhere."""


def test_an_old_supervisor_that_wakes_touches_nothing(film: Path, tmp_path: Path) -> None:
    """After its node froze, the successor adopts the workers; when it wakes, it ends."""
    with ray_cluster(2) as cluster:
        calm, output = tmp_path / "calm.mp4", tmp_path / "out.mp4"
        common = ("--segment-seconds", "0.5", "--quiet")
        doomed = cluster.add_node(0)
        old = int(cluster.python(ELSEWHERE, doomed).split()[-1])
        driver = cluster.start("transcode", str(film), str(output), *common)
        before = cluster.status_once(lambda status: len(ready(status)) == 1 and bool(status["jobs"]), PATIENCE_S)
        assert before["pid"] == old
        cluster.stop_node(doomed)
        while psutil.Process(old).status() != psutil.STATUS_STOPPED:  # The signal takes a moment to arrive.
            time.sleep(0.01)
        after = cluster.status_once(lambda status: status["pid"] != old and len(ready(status)) == 1, PATIENCE_S)
        assert ready(after) == ready(before)
        _wakes_and_ends(old)
        _, said = driver.communicate(timeout=PATIENCE_S)
        assert driver.returncode == 0, said
        log = cluster.status()["log"]
        assert not [line for _, line in log if "died" in line]
        assert cluster.run("transcode", str(film), str(calm), *common).returncode == 0
        assert calm.read_bytes() == output.read_bytes()


def _wakes_and_ends(pid: int) -> None:
    process = psutil.Process(pid)
    os.kill(pid, signal.SIGCONT)
    assert psutil.wait_procs([process], timeout=15)[1] == [], "it is still there"
