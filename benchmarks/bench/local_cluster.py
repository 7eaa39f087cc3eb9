"""Runs a Ray cluster of several nodes on this machine, in a separate process, and programs on this cluster."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .failures import CommandFailed
from .program import CODECFLEET, module_command

__all__ = ["LocalCluster", "local_cluster"]

STORE_BYTES = 200_000_000


@dataclass(frozen=True)
class LocalCluster:
    """A running cluster; ``environment`` has the variables that a driver needs to reach it."""

    environment: dict[str, str]

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


@contextmanager
def local_cluster(cpus: Sequence[int]) -> Iterator[LocalCluster]:
    """Yield a cluster of a head that runs no work and a node for each number in ``cpus``; stop it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="cfb-", dir="/tmp"))
    command, environment = module_command("local_cluster", *map(str, cpus))
    environment = {name: value for name, value in environment.items() if not name.startswith("RAY_")}
    environment |= {"RAY_TMPDIR": str(folder), "HOME": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    pipe = subprocess.PIPE
    keeper = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
    try:
        address = "" if keeper.stdout is None else keeper.stdout.readline().strip()
        if not address:
            raise CommandFailed("the cluster did not start")
        yield LocalCluster({**environment, "RAY_ADDRESS": address})
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


def _keep(cpus: Sequence[int]) -> None:
    """Run a cluster until stdin ends."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - Ray stays in the process that runs the cluster

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # separate Ray's own output from the address
    cluster = Cluster(shutdown_at_exit=False)
    cluster.add_node(num_cpus=0, include_dashboard=False, object_store_memory=STORE_BYTES)
    for count in cpus:
        cluster.add_node(num_cpus=count, object_store_memory=STORE_BYTES)
    print(cluster.address, file=out, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _keep([int(count) for count in sys.argv[1:]])
