"""A cluster on this machine: a head that does no work, and two nodes with drivers of a queue in PostgreSQL."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import psutil

from codecfleet import QueuedJob
from tests.integration.test_killed_programs import gone
from tests.integration.test_nodes import PROGRAM, SMALL, Machine, machine
from tests.integration.test_queue import until
from tests.postgres_server import PROGRAMS, PostgresServer, postgres_server

HEAD, NODES = "10.9.0.1", ("10.9.0.2", "10.9.0.3")
SPOT = NODES[0]
"""The node that asks the cloud whether its machine will end."""
PORT = 6379
UP_S = 180.0
METADATA = "169.254.169.254"
NETWORK = (
    "ip link set lo up",
    f"ip addr add {METADATA}/32 dev lo",
    "ip link add eth0 type bridge",
    *(f"ip addr add {address}/24 dev eth0" for address in (HEAD, *NODES)),
    "ip link set eth0 up",
    "ip route add default via 10.9.0.254",
    f"exec {sys.executable} -m tests.metadata_server {METADATA} 80",
)
SUPERVISOR = "SupervisorActor"
CONTAINED = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""Runs the head apart from the nodes' processes: `ray start --head` refuses if one of them names its address."""


def obstacle() -> str:
    """Return why this machine cannot have the cluster; "" if it can."""
    if os.geteuid() != 0:
        return "a network of its own needs root"
    if PROGRAMS is None or find_spec("psycopg") is None:
        return "PostgreSQL's server is not installed (Debian: apt-get install postgresql), or psycopg is missing"
    missing = [name for name in ("runuser", "unshare", "nsenter", "ip") if shutil.which(name) is None]
    return f"{missing[0]} is not installed" if missing else ""


@dataclass
class Cluster:
    """Head and nodes, each at an address of its own. With ``keeps``, the head's GCS keeps its state on disk."""

    here: Machine
    server: PostgresServer
    cloud: "subprocess.Popen[str]"  #: its metadata server
    keeps: bool
    jobs_at_once: int  #: of each node
    cpus: int = 1  #: of each node, each for a segment
    programs: dict[str, psutil.Popen] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)

    @property
    def slots(self) -> int:
        """Return how many segments the nodes encode at the same time: so many may be in flight at a fault."""
        return self.cpus * len(NODES)

    @property
    def queue(self) -> str:
        """The queue's address."""
        return self.server.url

    def log(self, address: str) -> Path:
        """Return the file with what the programs of a node have printed since its last start."""
        return self.here.folder / f"{address}-{self.starts[address]}.log"

    async def start(self, address: str) -> None:
        """Start a node, and wait until it is up; nothing is left of an earlier one but the state of a GCS."""
        place = (
            ["--head", "--cpus", "0"] if address == HEAD else ["--address", f"{HEAD}:{PORT}", "--cpus", str(self.cpus)]
        )
        drives = (
            []
            if address == HEAD
            else ["--jobs-at-once", str(self.jobs_at_once), "--queue", self.queue, "--free-disk-gb", "1"]
        )
        asks = ["--spot", "auto" if address == SPOT else "off"]
        folder = self.here.folder / address[-1]
        shutil.rmtree(folder, ignore_errors=True)
        words = ["node", "start", "--block", "--ip", address, *place, *drives, *asks, "--temp-dir", str(folder), *SMALL]
        around = self.here.env | (self._state() if address == HEAD else {})
        self.starts[address] += 1
        with self.log(address).open("w") as log:
            prefix = (*self.here.prefix, *(CONTAINED if address == HEAD else ()))
            program = psutil.Popen([*prefix, *PROGRAM, *words], env=around, stderr=log)
        self.programs[address] = program
        sign = "the node is up" if address == HEAD else "jobs at once"
        with suppress(TimeoutError):
            await until(lambda: program.poll() is not None or sign in self.log(address).read_text(), UP_S)
        said = self.log(address).read_text()
        assert sign in said, f"the node {address} did not start: {said}"

    def _state(self) -> dict[str, str]:
        folder = self.here.folder / "state"
        return {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(folder)} if self.keeps else {}

    def runs(self, job: QueuedJob) -> tuple[str, psutil.Process | None]:
        """Return the address of the node whose driver runs a job, and that driver; "" and None if it is dead."""
        with suppress(psutil.NoSuchProcess, ValueError):  # no driver has had the job yet
            driver = psutil.Process(int(job.driver.rpartition("-")[2]))
            keepers = {each.pid for each in driver.parents()}
            for address, program in list(self.programs.items()):
                if program.pid in keepers:
                    return address, driver
        return "", None

    def kill(self, address: str) -> None:
        """Kill a node's program and all that it has started, as if its machine were gone."""
        program = self.programs.pop(address)
        family = program.children(recursive=True)
        for each in [program, *family]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        program.wait()
        assert gone(family)

    def terminate(self, address: str) -> psutil.Popen:
        """Send a node SIGTERM, and return its program, which will end."""
        program = self.programs.pop(address)
        (program.children()[0] if address == HEAD else program).terminate()
        return program

    def processes(self) -> list[psutil.Process]:
        """Return what runs on the nodes, besides their own programs."""
        found: list[psutil.Process] = []
        for program in list(self.programs.values()):
            with suppress(psutil.NoSuchProcess):
                found += program.children(recursive=True)
        return found

    def kill_supervisor(self) -> None:
        """Kill the supervisor, wherever it runs."""
        (supervisor,) = [each for each in self.processes() if SUPERVISOR in " ".join(_words(each))]
        supervisor.kill()

    def order_cloud(self, order: str) -> None:
        """Have the cloud announce the end of the node SPOT, or take that back."""
        assert self.cloud.stdin is not None
        self.cloud.stdin.write(f"{order}\n")
        self.cloud.stdin.flush()


def left_temporary(folder: Path, nodes: int) -> list[str]:
    """Return what is left in the nodes' temporary folder.

    Each node that runs may have a folder of Python's ``multiprocessing``, which Ray leaves if the node is killed as a
    whole: ``nodes`` in all.
    """
    left = sorted(path.name for path in folder.iterdir())
    of_ray = [name for name in left if name.startswith("pymp-")][:nodes]
    return [f"left in the temporary folder: {name}" for name in left if name not in of_ray]


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []


@contextmanager
def cluster(*, keeps: bool = False, jobs_at_once: int = 1, cpus: int = 1, **variables: str) -> Iterator[Cluster]:
    """Yield a cluster whose nodes have not been started, with a queue of its own."""
    command = ["unshare", "--net", "sh", "-e", "-c", "\n".join(NETWORK)]
    pipe, around = subprocess.PIPE, {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        postgres_server() as server,
        machine(**variables) as here,
        subprocess.Popen(command, env=around, stdin=pipe, stdout=pipe, text=True) as cloud,
    ):
        assert cloud.stdout is not None
        assert cloud.stdout.readline() == "up\n"
        here.prefix = ("nsenter", "--net", f"--target={cloud.pid}")
        found = Cluster(here, server, cloud, keeps, jobs_at_once, cpus)
        try:
            yield found
        finally:
            for address in [address for address, program in found.programs.items() if program.poll() is None]:
                found.kill(address)
            cloud.kill()
