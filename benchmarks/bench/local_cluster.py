"""Runs a Ray cluster of several nodes on this machine, in a separate process, and programs on this cluster."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .failures import CommandFailed
from .processes import ProcessTree
from .program import CODECFLEET, module_command

__all__ = ["LocalCluster", "local_cluster"]

STORE_BYTES: Final = 200_000_000


@dataclass(frozen=True)
class LocalCluster:
    """A running cluster; ``environment`` has the variables that a driver needs to reach it."""

    environment: dict[str, str]
    _keeper: "subprocess.Popen[str]"

    @contextmanager
    def program(self, module: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """Run a module of this package against the cluster; end it when the block ends."""
        command, _ = module_command(module, *arguments)
        pipe = subprocess.PIPE
        started = subprocess.Popen(command, env=self.environment, stdin=pipe, stdout=pipe, text=True)
        try:
            yield started
        finally:
            started.kill()
            started.communicate()

    def add_nodes(self, cpus: Sequence[int]) -> list[str]:
        """Start a node for each number of CPUs, and wait until all have joined; return their Ray ids."""
        return list(self._order(add=list(cpus))["nodes"])

    def kill_node(self, node: str) -> None:
        """Kill a node and everything on it, as a power cut would."""
        self._order(kill=node)

    def workers(self) -> dict[str, int]:
        """Return the process of each running worker, by the worker's station."""
        found = json.loads(self._run("status", "--json"))["supervisor"]
        up = [worker for worker in found["workers"] if worker["state"] == "ready"]
        return {worker["worker"].rpartition(":")[0]: worker["pid"] for worker in up}

    def _run(self, *arguments: str) -> str:
        ran = subprocess.run(
            [*CODECFLEET, *arguments], env=self.environment, capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise CommandFailed(f"codecfleet {arguments[0]} ended with {ran.returncode}: {ran.stderr}")
        return ran.stdout

    def _order(self, **order: object) -> dict[str, Any]:
        return _ordered(self._keeper, order)


def _ordered(keeper: "subprocess.Popen[str]", order: Mapping[str, object]) -> dict[str, Any]:
    found: dict[str, Any] = ask(keeper, order, "the cluster")
    if "error" in found:
        raise CommandFailed(f"the cluster could not do this: {found['error']}")
    return found


def ask(program: "subprocess.Popen[str]", order: object, name: str) -> Any:
    """Send an order to a program as a line of JSON, and return its answer. Raises CommandFailed: the program ended."""
    line = ""
    if program.stdin is not None and program.stdout is not None:
        with suppress(BrokenPipeError):
            program.stdin.write(json.dumps(order) + "\n")
            program.stdin.flush()
            line = program.stdout.readline()
    if not line:
        raise CommandFailed(f"{name} ended without an answer")
    return json.loads(line)


@contextmanager
def local_cluster(
    cpus: Sequence[int], *, variables: Mapping[str, str] | None = None, **options: int
) -> Iterator[LocalCluster]:
    """Yield a cluster of a head that runs no work and a node for each number in ``cpus``; stop it at the end.

    Its processes get ``variables``; ``options`` are Ray's, for each node.
    """
    folder = Path(tempfile.mkdtemp(prefix="cfb-", dir="/tmp"))
    command, environment = module_command("local_cluster", json.dumps(options))
    environment = {name: value for name, value in environment.items() if not name.startswith("RAY_")}
    environment |= {"RAY_TMPDIR": str(folder), "HOME": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), **(variables or {})}
    pipe, errors = subprocess.PIPE, folder / "keeper.log"
    with errors.open("wb") as log:
        keeper = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=log, text=True)
    try:
        address = _ordered(keeper, {"add": list(cpus)})["address"]
        yield LocalCluster({**environment, "RAY_ADDRESS": address}, keeper)
    except CommandFailed as error:
        last = errors.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
        raise CommandFailed(f"{error}; the cluster printed last: {last}") from error
    finally:
        keeper.kill()
        keeper.communicate()
        _kill(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _kill(folder: Path) -> None:
    """Kill every process whose environment names the cluster's folder."""
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # the process has ended, or belongs to another user
            if f"RAY_TMPDIR={folder}".encode() in environ.read_bytes().split(b"\0"):
                os.kill(int(environ.parent.name), signal.SIGKILL)


class _Keeper:
    """Makes and kills nodes on request."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        from ray.cluster_utils import Cluster  # noqa: PLC0415 - Ray stays in the process that runs the cluster

        # Each node would follow the logs of the workers of all nodes, since they have one folder.
        self._options: dict[str, Any] = {"object_store_memory": STORE_BYTES, **options, "include_log_monitor": False}
        self._cluster = Cluster(shutdown_at_exit=False)
        self._cluster.add_node(num_cpus=0, include_dashboard=False, **self._options)
        self._nodes: dict[str, Any] = {}

    def obey(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an order; return its result."""
        if "kill" in order:
            self._kill(order["kill"])
        # One after the other: with ten at a time, Ray 2.60 waits in vain for the first answer of its control service.
        added = [self._add(cpus).node_id for cpus in order.get("add", ())]
        return {"address": self._cluster.address, "nodes": added}

    def _add(self, cpus: int) -> Any:
        node = self._cluster.add_node(num_cpus=cpus, **self._options)
        self._nodes[node.node_id] = node
        return node

    def _kill(self, node: str) -> None:
        raylet = self._nodes.pop(node).all_processes["raylet"][0].process
        below = ProcessTree(raylet.pid).look()
        raylet.kill()
        raylet.wait()  # the workers of a raylet that is a zombie live on for a while
        for process in below:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def _keep(options: Mapping[str, Any]) -> None:
    """Run a cluster until stdin ends; each line is an order."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # separate Ray's own output from the answers
    keeper = _Keeper(options)
    for line in sys.stdin:
        try:
            answer = keeper.obey(json.loads(line))
        except Exception as error:  # noqa: BLE001 - Ray raises what it likes, and the program prints it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    _keep(json.loads(sys.argv[1]))
