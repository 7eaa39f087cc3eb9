"""A head without workers, to which Ray's autoscaler (v2) adds nodes on this machine.

Each node is a raylet of Ray's fake provider for tests. All files are in one folder, and no port is shared.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.ray_head import free_ports

__all__ = ["GROUP", "AutoscaledCluster", "NodeLog", "autoscaled_cluster"]

GROUP = "group"
"""The label that states a node's group."""
PROGRAM = (sys.executable, "-m", "codecfleet")
PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
HEAD_ID = "f" * 51 + "00000"
"""The provider's name for the head, which must be the id of Ray's node."""
STORE_BYTES = 80_000_000
LIMIT_S = 240
NODES = """
import contextlib, json, sys, time
import ray
from codecfleet.cluster.ray.private.autoscaler import autoscaler_report
ray.init(log_to_driver=False, logging_level="CRITICAL")
while True:
    with contextlib.suppress(Exception):  # Ray may be too busy to answer in time
        nodes = [node["Labels"].get(sys.argv[1], "head") for node in ray.nodes() if node["Alive"]]
        asked = autoscaler_report().asked.total()
        print(json.dumps([time.time(), len(nodes) - nodes.count("head"), asked]), flush=True)
    time.sleep(0.5)
"""


@dataclass
class NodeLog:
    """Each change in the number of nodes beside the head and of requested nodes: (UTC seconds, present, requested)."""

    seen: list[tuple[float, int, int]] = field(default_factory=list)
    news: threading.Condition = field(default_factory=threading.Condition)

    def note(self, at_s: float, there: int, asked: int) -> None:
        """Note a number of present and of requested nodes, if one of them has changed."""
        with self.news:
            if not self.seen or self.seen[-1][1:] != (there, asked):
                self.seen.append((at_s, there, asked))
                self.news.notify_all()

    def comes_to(self, count: int, within_s: float = LIMIT_S) -> bool:
        """Wait for this number of present and requested nodes; return whether it was reached."""
        with self.news:
            return self.news.wait_for(lambda: self.seen and self.seen[-1][1:] == (count, count), within_s)


@dataclass
class AutoscaledCluster:
    """A running cluster. ``env`` is the environment for its drivers."""

    folder: Path
    env: dict[str, str]

    def run(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        """Run ``codecfleet`` against the cluster."""
        command = [*PROGRAM, *map(str, arguments)]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def program(self, path: str) -> str:
        """Run a Python program against the cluster, and return its output."""
        command = [sys.executable, path]
        ran = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def wait_for(self, log: NodeLog, count: int) -> None:
        """Wait until there are this many nodes beside the head."""
        if not log.comes_to(count):
            said = self.run("status", "--json").stdout
            pytest.fail(f"not {count} nodes: {log.seen} {said} {self.run('status').stdout}")

    @contextmanager
    def node_log(self) -> Iterator[NodeLog]:
        """Keep a log of the cluster's nodes."""
        command, pipe = [sys.executable, "-c", NODES, GROUP], subprocess.PIPE
        log = NodeLog()
        with subprocess.Popen(command, env=self.env, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as looking:
            reader = threading.Thread(target=_read, args=(looking, log), daemon=True)
            reader.start()
            try:
                yield log
            finally:
                looking.kill()
                reader.join()

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the cluster."""
        return [each for each in psutil.process_iter() if self._is_ours(each)]

    def _is_ours(self, process: psutil.Process) -> bool:
        with suppress(psutil.Error):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                return False
            # Ray's agents overwrite their environment with their titles.
            named = any(str(self.folder) in word for word in process.cmdline())
            return named or process.environ().get("HOME") == str(self.folder)
        return False


@contextmanager
def autoscaled_cluster(most: Mapping[str, int], env: Mapping[str, str] | None = None) -> Iterator[AutoscaledCluster]:
    """Yield a cluster without workers that grows on request to ``most`` nodes of each group.

    A node has one CPU, and Ray removes an idle one after an hour. Everything is removed at the end.
    """
    folder = Path(tempfile.mkdtemp(prefix="cfa-", dir="/tmp"))  # short, because the paths of Ray's sockets are limited
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    own = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    ray = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    cluster = AutoscaledCluster(folder, {**inherited, **own, **ray, **(env or {})})
    try:
        cluster.env["RAY_ADDRESS"] = _started(cluster, most)
        yield cluster
    finally:
        for _ in range(2):  # the autoscaler may start one more node meanwhile
            for process in cluster.processes():
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _started(cluster: AutoscaledCluster, most: Mapping[str, int]) -> str:
    port, dashboard = free_ports(2)
    types = cluster.folder / "types.json"
    types.write_text(json.dumps(_types(port, most)))
    ray = {
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        "RAY_FAKE_CLUSTER": "1",
        "RAY_enable_autoscaler_v2": "1",
        "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
    }
    place = ("--port", port, "--dashboard-port", dashboard, "--temp-dir", cluster.folder / "r", "--cpus", 0)
    small = ("--object-store-memory", STORE_BYTES, "--min-worker-port", 0, "--max-worker-port", 0)
    command = list(
        map(str, [*PROGRAM, "node", "start", "--head", *place, "--", *small, f"--autoscaling-config={types}"])
    )
    env = {**cluster.env, **ray}
    began = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert began.returncode == 0, began.stderr
    return f"127.0.0.1:{port}"


def _types(port: int, most: Mapping[str, int]) -> dict[str, Any]:
    provider = {
        "type": "external",
        "module": PROVIDER,
        "gcs_address": f"127.0.0.1:{port}",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
        "launch_multiple": True,
        "head_node_id": HEAD_ID,
    }
    workers = {
        name: {
            "resources": {"CPU": 1, "object_store_memory": STORE_BYTES},
            "labels": {GROUP: name},
            "node_config": {},
            "min_workers": 0,
            "max_workers": count,
        }
        for name, count in most.items()
    }
    head = {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0}
    lists = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
    return {
        "cluster_name": "fake",
        "max_workers": sum(most.values()),
        "provider": provider,
        "available_node_types": {"ray.head.default": head, **workers},
        "head_node_type": "ray.head.default",
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 60,
        "auth": {},
        "docker": {},
        "file_mounts": {},
        "cluster_synced_files": [],
        "file_mounts_sync_continuously": False,
        "rsync_exclude": [],
        "rsync_filter": [],
        **{f"{name}_commands": [] for name in lists},
    }


def _read(looking: "subprocess.Popen[str]", log: NodeLog) -> None:
    assert looking.stdout is not None
    for line in looking.stdout:
        if line.startswith("["):  # other lines are Ray's messages about infeasible requests
            log.note(*json.loads(line))
