"""A head of Ray on this machine, with its own home and ports."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

BIN = Path(sys.executable).parent
UP_S, GONE_S = 60, 10


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@dataclass(frozen=True, slots=True)
class RayHead:
    """A running head."""

    env: dict[str, str]  # for the head's processes, and for programs that are to reach the head
    dashboard: int  # the port of the dashboard and the job server

    def processes(self) -> Iterator[psutil.Process]:
        """Yield the head's processes: all that have the head's HOME."""
        for each in psutil.process_iter():
            with suppress(psutil.Error):
                if each.environ().get("HOME") == self.env["HOME"]:
                    yield each

    def ports(self) -> set[int]:
        """Return the ports on which the head's processes listen."""
        found: set[int] = set()
        for each in self.processes():
            with suppress(psutil.Error):
                found |= {place.laddr.port for place in each.net_connections() if place.status == psutil.CONN_LISTEN}
        return found


@contextmanager
def ray_head(*options: str, env: Mapping[str, str]) -> Iterator[RayHead]:
    """Yield a head with these options and variables once the dashboard listens; remove the whole head at the end.

    The head's processes are killed one by one: ``ray stop`` would end every Ray on the machine.
    """
    folder = tempfile.mkdtemp(prefix="cfh-", dir="/tmp")  # short, for the paths of Ray's sockets
    port, dashboard = free_ports(2)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHONPATH"))}
    own = {"HOME": folder, "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
    head = RayHead({**inherited, **own, **env}, dashboard)
    ports = (f"--port={port}", f"--dashboard-port={dashboard}")
    command = [BIN / "ray", "start", "--head", "--block", "--object-store-memory=100000000", *ports, *options]
    log = Path(folder, "said")
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, env=head.env, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
    try:
        until_s = time.monotonic() + UP_S
        while dashboard not in head.ports():
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < until_s, "the head did not start in time"
        yield head
    finally:
        family = list(head.processes())
        process.kill()  # first, so that it starts nothing again
        for each in family:
            with suppress(psutil.Error):
                each.kill()
        process.wait()
        psutil.wait_procs(family, timeout=GONE_S)
        shutil.rmtree(folder, ignore_errors=True)
