"""A Ray cluster of several nodes on this machine, which no other Ray on it can see or be seen by.

The nodes are made by ``ray.cluster_utils.Cluster`` in a process of its own (this file, run as a program), which takes
orders on stdin: Ray stays in the process that starts it.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

__all__ = ["RayCluster", "ray_cluster"]

BIN = Path(sys.executable).parent
SWIFT = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
"""A node's death is noticed within seconds, where Ray's defaults take 15."""
ANY_PORT = ("--min-worker-port", "0", "--max-worker-port", "0", "--object-store-memory", "100000000")
JOIN_S = 60
NODE = """
import sys
import ray
ray.init(log_to_driver=False, logging_level="CRITICAL")
print(any(node["Alive"] and node["NodeName"] == sys.argv[1] for node in ray.nodes()))
"""


@dataclass
class RayCluster:
    """A running cluster. ``env`` is what a driver needs to reach it."""

    address: str
    env: dict[str, str]
    folder: Path
    keeper: "subprocess.Popen[str]"

    def add_node(self, cpus: int, gpus: int = 0) -> str:
        """Start a node and wait until it has joined; return its Ray id."""
        return str(self._order(add={"num_cpus": cpus, "num_gpus": gpus})["node"])

    @contextmanager
    def started_node(self, *options: str, env: Mapping[str, str]) -> Iterator[None]:
        """Run ``ray start`` with these options and variables, as on a machine of its own; gone at the end.

        Unlike ``add_node``, this finds its GPUs as Ray does: in its environment.
        """
        name = secrets.token_hex(4)
        command: list[str | Path] = [
            BIN / "ray",
            "start",
            "--address",
            self.address,
            "--node-name",
            name,
            "--block",
            *ANY_PORT,
        ]
        with (self.folder / "node.log").open("ab") as log:
            node = subprocess.Popen([*command, *ANY_PORT, *options], env={**self.env, **env}, stdout=log, stderr=log)
        try:
            until_s = time.monotonic() + JOIN_S
            while not self._has_node(name):
                assert node.poll() is None, (self.folder / "node.log").read_text(encoding="utf-8")
                assert time.monotonic() < until_s, "the node did not join in time"
            yield
        finally:
            self._kill_what_has(env)
            node.wait()
            while self._has_node(name):
                assert time.monotonic() < until_s + JOIN_S, "the node did not leave in time"

    def _has_node(self, name: str) -> bool:
        return self.python(NODE, name).split()[0] == "True"

    def _kill_what_has(self, env: Mapping[str, str]) -> None:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().items() >= {**env, "RAY_TMPDIR": self.env["RAY_TMPDIR"]}.items():
                    process.send_signal(signal.SIGKILL)

    def stop_node(self, node: str) -> None:
        """Freeze a node and everything on it (SIGSTOP); it may be killed later."""
        self._order(stop=node)

    def kill_node(self, node: str) -> None:
        """Kill a node and everything on it, as a power cut would."""
        self._order(kill=node)

    def run(self, *arguments: str, timeout_s: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run ``codecfleet`` against the cluster."""
        command: list[str | Path] = [BIN / "codecfleet", *arguments]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False)

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """Start ``codecfleet`` against the cluster, in the background."""
        command: list[str | Path] = [BIN / "codecfleet", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env={**self.env, **(env or {})}, stdout=pipe, stderr=pipe, text=True)

    def status(self) -> dict[str, Any]:
        """Return what ``codecfleet status`` says."""
        answered = self.run("status", "--json")
        assert answered.returncode == 0, answered.stderr
        found: dict[str, Any] = json.loads(answered.stdout)["supervisor"]
        return found

    def python(self, program: str, *arguments: str, timeout_s: float = 60) -> str:
        """Run a Python program against the cluster; return what it prints."""
        command = [sys.executable, "-c", program, *arguments]
        ran = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def close(self) -> None:
        """Kill everything."""
        self.keeper.kill()
        self.keeper.communicate()  # closes its pipes
        self._kill_what_has({})
        shutil.rmtree(self.folder, ignore_errors=True)

    def _order(self, **order: object) -> dict[str, Any]:
        assert self.keeper.stdin is not None
        assert self.keeper.stdout is not None
        self.keeper.stdin.write(json.dumps(order) + "\n")
        self.keeper.stdin.flush()
        found: dict[str, Any] = json.loads(self.keeper.stdout.readline())
        return found


@contextmanager
def ray_cluster(
    *cpus: int, env: Mapping[str, str] | None = None, system_config: Mapping[str, int] = SWIFT
) -> Iterator[RayCluster]:
    """Yield a cluster with a head, on which no work runs, and a node for each number of CPUs; gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="cfc-", dir="/tmp"))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    own = {"RAY_TMPDIR": str(folder), "HOME": str(folder)}
    own |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    environment = {**inherited, **own, **(env or {})}
    with (folder / "keeper.log").open("wb") as log:
        pipe = subprocess.PIPE
        keeper = subprocess.Popen(
            [sys.executable, __file__], env=environment, stdin=pipe, stdout=pipe, stderr=log, text=True
        )
    cluster = RayCluster("", environment, folder, keeper)
    try:
        cluster.address = cluster._order(head=dict(system_config))["address"]
        cluster.env["RAY_ADDRESS"] = cluster.address
        for count in cpus:
            cluster.add_node(count)
        yield cluster
    finally:
        cluster.close()


class _Keeper:
    """Makes and kills nodes as it is told."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(shutdown_at_exit=False)
        self._nodes: dict[str, Any] = {}

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked and say what came of it."""
        small: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 100_000_000}
        if "head" in order:
            self._cluster.add_node(num_cpus=0, num_gpus=0, _system_config=order["head"], **small)
            return {"address": self._cluster.address}
        if "add" in order:
            node = self._cluster.add_node(**order["add"], object_store_memory=small["object_store_memory"])
            self._nodes[node.node_id] = node
            return {"node": node.node_id}
        if "stop" in order:
            for process in _processes(self._nodes[order["stop"]]):
                process.suspend()
            return {}
        for process in _processes(self._nodes.pop(order["kill"])):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return {}

    def close(self) -> None:
        """End every node."""
        self._cluster.shutdown()


def _processes(node: Any) -> list[psutil.Process]:
    """Return a node's raylet and everything below it."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    return [raylet, *raylet.children(recursive=True)]


def _keep() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is not an answer
    keeper = _Keeper()
    for line in sys.stdin:
        print(json.dumps(keeper.obey(json.loads(line))), file=out, flush=True)
    keeper.close()  # reached only where the tests have ended without closing: close() kills this process


if __name__ == "__main__":
    _keep()
