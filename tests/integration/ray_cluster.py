"""A Ray cluster of several nodes on this machine, isolated from every other Ray on it.

The nodes are made by ``ray.cluster_utils.Cluster`` in a separate process (this file, run as a program), which takes
orders on stdin, because Ray stays in the process that starts it.
"""

import ctypes
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
"""Nodes' deaths are noticed within seconds; Ray's defaults take 15."""
ANY_PORT = ("--min-worker-port", "0", "--max-worker-port", "0", "--object-store-memory", "100000000")
JOIN_S = 60
WITHOUT_FOLDER = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')
"""Runs a command that sees an empty folder in the place of a given one."""
NODE = """
import sys
import ray
ray.init(log_to_driver=False, logging_level="CRITICAL")
print(any(node["Alive"] and node["NodeName"] == sys.argv[1] for node in ray.nodes()))
"""


@dataclass
class RayCluster:
    """A running cluster. ``env`` is the environment for its drivers."""

    address: str
    env: dict[str, str]
    folder: Path
    keeper: "subprocess.Popen[str]"
    prefix: tuple[str, ...] = ()
    """The first words of a command that must reach the cluster."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held during one order at a time."""
    frozen: list[psutil.Process] = field(default_factory=list)
    """Processes that were stopped and may still exist."""

    def add_node(self, cpus: int, gpus: int = 0) -> str:
        """Start a node and wait until it has joined; return its Ray id."""
        return str(self._order(add={"num_cpus": cpus, "num_gpus": gpus})["node"])

    @contextmanager
    def started_node(
        self,
        *options: str,
        env: Mapping[str, str],
        hidden: Path | None = None,
        start: Sequence[str] = (str(BIN / "ray"), "start"),
    ) -> Iterator[None]:
        """Start a node with these options and variables as on a separate machine; it ends with the context.

        Unlike ``add_node``, this finds the node's GPUs as Ray does, in the environment. ``start`` begins the command;
        options of ``ray start`` follow those of this node. The folder ``hidden`` is empty there (needs root).
        """
        name = secrets.token_hex(4)
        command: list[str | Path] = [
            *(() if hidden is None else (*WITHOUT_FOLDER, hidden)),
            *start,
            *("--address", self.address, "--block", *options, "--node-name", name, *ANY_PORT),
        ]
        with (self.folder / "node.log").open("ab") as log:
            node = subprocess.Popen(command, env={**self.env, **env}, stdout=log, stderr=log)
        try:
            until_s = time.monotonic() + JOIN_S
            while not self._has_node(name):
                assert node.poll() is None, (self.folder / "node.log").read_text(encoding="utf-8")
                assert time.monotonic() < until_s, "the node did not join in time"
            yield
        finally:
            self._kill_what_has(env)
            node.wait()
            until_s = time.monotonic() + JOIN_S
            while self._has_node(name):
                assert time.monotonic() < until_s, "the node did not leave in time"

    def _has_node(self, name: str) -> bool:
        return self.python(NODE, name).split()[0] == "True"

    def _kill_what_has(self, env: Mapping[str, str]) -> None:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().items() >= {**env, "RAY_TMPDIR": self.env["RAY_TMPDIR"]}.items():
                    process.send_signal(signal.SIGKILL)

    def stop_node(self, node: str) -> None:
        """Freeze a node and everything on it (SIGSTOP)."""
        for process in self._order(stop=node)["pids"]:
            with suppress(psutil.NoSuchProcess):
                self.frozen.append(psutil.Process(process))

    def kill_node(self, node: str) -> None:
        """Kill a node and everything on it, as a power cut would."""
        self._order(kill=node)

    def drain_node(self, node: str, left_s: int) -> None:
        """Let Ray drain a node, as before a spot instance ends."""
        command = [*map(str, self.prefix), str(BIN / "ray"), "drain-node", "--address", self.address, "--node-id", node]
        command += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "taken back"]
        command += ["--deadline-remaining-seconds", str(left_s)]
        subprocess.run(command, env=self.env, capture_output=True, timeout=60, check=True)

    def cut_off(self, node: str) -> None:
        """Disconnect a node's network, on a cluster that is ``apart``; ``rejoin`` reconnects it."""
        self._order(cut=node)

    def rejoin(self, node: str) -> None:
        """Reconnect a node's network."""
        self._order(rejoin=node)

    def restart_control_service(self, down_s: float) -> None:
        """Restart Ray's control service (GCS); if its state is stored, nodes and actors survive."""
        self._order(restart=down_s)

    def run(self, *arguments: str, timeout_s: float = 120) -> "subprocess.CompletedProcess[str]":
        """Run ``codecfleet`` against the cluster."""
        command: list[str | Path] = [*self.prefix, BIN / "codecfleet", *arguments]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False)

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """Start ``codecfleet`` against the cluster, in the background."""
        command: list[str | Path] = [*self.prefix, BIN / "codecfleet", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env={**self.env, **(env or {})}, stdout=pipe, stderr=pipe, text=True)

    def status(self) -> dict[str, Any]:
        """Return the output of ``codecfleet status``."""
        answered = self.run("status", "--json")
        assert answered.returncode == 0, answered.stderr
        found: dict[str, Any] = json.loads(answered.stdout)["supervisor"]
        return found

    def status_once(self, holds: Callable[[dict[str, Any]], bool], patience_s: float) -> dict[str, Any]:
        """Read the supervisor's status repeatedly until ``holds`` is true; return the last status."""
        until_s = time.monotonic() + patience_s
        while time.monotonic() < until_s:
            answered = self.run("status", "--json")
            # A supervisor that is restarting does not answer for a moment.
            found = json.loads(answered.stdout)["supervisor"] if answered.returncode == 0 else None
            if found is not None and holds(found):
                return dict(found)
            time.sleep(1)  # each look starts a program
        raise AssertionError(f"not within {patience_s} s; last seen: {answered.stdout} {answered.stderr}")

    def python(self, program: str, *arguments: str, timeout_s: float = 60) -> str:
        """Run a Python program against the cluster, and return its output."""
        command = [*self.prefix, sys.executable, "-c", program, *arguments]
        ran = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=timeout_s, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def close(self) -> None:
        """Kill everything."""
        self.keeper.kill()
        self.keeper.communicate()  # closes its pipes
        self._kill_what_has({})
        for process in self.frozen:  # Ray's agents overwrite their environment with their titles.
            with suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _order(self, **order: object) -> dict[str, Any]:
        assert self.keeper.stdin is not None
        assert self.keeper.stdout is not None
        with self.lock:
            self.keeper.stdin.write(json.dumps(order) + "\n")
            self.keeper.stdin.flush()
            found: dict[str, Any] = json.loads(self.keeper.stdout.readline())
        return found


@contextmanager
def ray_cluster(
    *cpus: int, env: Mapping[str, str] | None = None, system_config: Mapping[str, int] = SWIFT, apart: bool = False
) -> Iterator[RayCluster]:
    """Yield a cluster with a head without work, and a node for each number of CPUs; it is removed at the end.

    With ``apart``, head and nodes each have a network, joined by a bridge (needs root).
    """
    folder = Path(tempfile.mkdtemp(prefix="cfc-", dir="/tmp"))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    own = {"RAY_TMPDIR": str(folder), "HOME": str(folder)}
    own |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    environment = {**inherited, **own, **(env or {})}
    with (folder / "keeper.log").open("wb") as log:
        pipe = subprocess.PIPE
        command = [*(("unshare", "--net") if apart else ()), sys.executable, __file__, *(("apart",) if apart else ())]
        keeper = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=log, text=True)
    prefix = ("nsenter", "--net", f"--target={keeper.pid}") if apart else ()
    cluster = RayCluster("", environment, folder, keeper, prefix)
    try:
        cluster.address = cluster._order(head=dict(system_config))["address"]
        cluster.env["RAY_ADDRESS"] = cluster.address
        for count in cpus:
            cluster.add_node(count)
        yield cluster
    finally:
        cluster.close()


class _Keeper:
    """Makes and kills nodes on request."""

    def __init__(self, networks: "_Networks | None") -> None:
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(shutdown_at_exit=False)
        self._nodes: dict[str, Any] = {}
        self._networks = networks
        self._addresses: dict[str, int] = {}

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out an order; return its result."""
        small: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 100_000_000}
        if "head" in order:
            if self._networks is not None:
                small["node_ip_address"] = self._networks.make_hub()
            self._cluster.add_node(num_cpus=0, num_gpus=0, _system_config=order["head"], **small)
            return {"address": self._cluster.address}
        if "add" in order:
            return {"node": self._add({**order["add"], "object_store_memory": small["object_store_memory"]})}
        if self._networks is not None and ("cut" in order or "rejoin" in order):
            state = "down" if "cut" in order else "up"
            self._networks.set_link(self._addresses[order.get("cut") or order["rejoin"]], state)
            return {}
        if "restart" in order:
            head: Any = self._cluster.head_node
            head.kill_gcs_server()
            time.sleep(order["restart"])
            head.start_gcs_server()
            return {}
        if "stop" in order:
            processes = _processes(self._nodes[order["stop"]])
            for process in processes:
                process.suspend()
            return {"pids": [process.pid for process in processes]}
        node = self._nodes.pop(order["kill"], None)  # the node may have been killed before
        for process in _processes(node) if node is not None else ():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return {}

    def _add(self, options: dict[str, Any]) -> str:
        if self._networks is None:
            node = self._cluster.add_node(**options)
        else:
            number, address = self._networks.make()
            with self._networks.entered(number):
                node = self._cluster.add_node(node_ip_address=address, **options)
            self._addresses[node.node_id] = number
        self._nodes[node.node_id] = node
        return str(node.node_id)

    def close(self) -> None:
        """End every node."""
        self._cluster.shutdown()


class _Networks:
    """A network namespace for each node, and a bridge in this one; each ends with its last process."""

    def __init__(self) -> None:
        self._holders: list[subprocess.Popen[bytes]] = []

    def make_hub(self) -> str:
        """Make the bridge, and return its address."""
        _ip("link set lo up")
        _ip("link add hub type bridge")
        _ip("addr add 10.9.0.254/24 dev hub")
        _ip("link set hub up")
        return "10.9.0.254"

    def make(self) -> tuple[int, str]:
        """Make a network with a cable to the bridge; return its number and address."""
        # The shell prints a line once it is in its new network, then waits.
        holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert holder.stdout is not None
        holder.stdout.readline()
        self._holders.append(holder)
        number = len(self._holders)
        _ip(f"link add node{number} type veth peer name eth0 netns {holder.pid}")
        _ip(f"link set node{number} master hub up")
        for words in (f"addr add 10.9.0.{number}/24 dev eth0", "link set eth0 up", "link set lo up"):
            _ip(words, f"nsenter --net --target={holder.pid}")
        _ip("route add default via 10.9.0.254", f"nsenter --net --target={holder.pid}")
        return number, f"10.9.0.{number}"

    @contextmanager
    def entered(self, number: int) -> Iterator[None]:
        """Move this thread, and what it starts, into a network."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path("/proc/thread-self/ns/net").open("rb") as ours:
            with Path(f"/proc/{self._holders[number - 1].pid}/ns/net").open("rb") as theirs:
                assert libc.setns(theirs.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
            try:
                yield
            finally:
                assert libc.setns(ours.fileno(), 0) == 0, os.strerror(ctypes.get_errno())

    def set_link(self, number: int, state: str) -> None:
        """Connect or disconnect a network."""
        _ip(f"link set node{number} {state}")


def _ip(words: str, inside: str = "") -> None:
    subprocess.run([*inside.split(), "ip", *words.split()], check=True, stdout=subprocess.DEVNULL)


def _processes(node: Any) -> list[psutil.Process]:
    """Return a node's raylet and all its descendants."""
    try:
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        return [raylet, *raylet.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _keep() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Ray's own output is no answer
    keeper = _Keeper(_Networks() if sys.argv[1:] == ["apart"] else None)
    for line in sys.stdin:
        print(json.dumps(keeper.obey(json.loads(line))), file=out, flush=True)
    keeper.close()  # reached only if the tests end without closing: close() kills this process


if __name__ == "__main__":
    _keep()
