"""Where a round runs, and how a fault reaches it: a private Ray below the driver, or a cluster that outlives rounds."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.integration.ray_cluster import RayCluster, ray_cluster

from .driver import Driver
from .schedule import Fault, Shape, Strike

MARK = "CODECFLEET_CHAOS_ROUND"
"""In the environment of a round's driver and of all that it starts."""
GIVEN_BACK_S = 20.0
_SIGNALS = {
    Fault.WORKER_KILLED: signal.SIGKILL,
    Fault.WORKER_TERMINATED: signal.SIGTERM,
    Fault.WORKER_STOPPED: signal.SIGSTOP,
}


@dataclass
class Place:
    """A private Ray's machine; ``Cluster`` is the other place."""

    shape: Shape
    env: dict[str, str]

    def workers(self, driver: Driver) -> list[psutil.Process]:
        """Return the worker processes that may have the driver's work."""
        return _named("RayWorker", _below(driver))

    def strike(self, strike: Strike, driver: Driver) -> bool:
        """Carry out a fault other than one that ends the driver; False where there is no victim."""
        if strike.fault in _SIGNALS:
            return _signalled(_SIGNALS[strike.fault], self.workers(driver), strike.choice)
        name = {Fault.RAYLET_KILLED: "raylet", Fault.GCS_KILLED: "gcs_server", Fault.HOST_KILLED: "cluster.host"}
        return _signalled(signal.SIGKILL, _named(name[strike.fault], _below(driver)), strike.choice)

    def leftovers(self) -> list[str]:
        """Return what a round has left that it should not."""
        return []

    def restore(self) -> None:
        """Make the place whole for the next round."""


@dataclass
class Cluster(Place):
    """A cluster of several nodes on this machine."""

    cluster: RayCluster
    nodes: dict[str, int]
    stopped: set[str] = field(default_factory=set)

    def workers(self, driver: Driver) -> list[psutil.Process]:
        """Return all workers of the cluster."""
        del driver
        return _named("RayWorker", list(_with("RAY_TMPDIR", str(self.cluster.folder))))

    def strike(self, strike: Strike, driver: Driver) -> bool:
        """Carry out a fault; False where there is no victim."""
        match strike.fault:
            case Fault.NODE_KILLED | Fault.NODE_STOPPED:
                standing = sorted(set(self.nodes) - self.stopped)
                victim = standing[int(strike.choice * len(standing))]
                if strike.fault is Fault.NODE_KILLED:
                    self.cluster.kill_node(victim)
                    self.stopped.add(victim)
                else:
                    self.cluster.stop_node(victim)
                    self.stopped.add(victim)
                return True
            case Fault.SUPERVISOR_KILLED:
                with suppress(AssertionError):
                    os.kill(self.cluster.status()["pid"], signal.SIGKILL)
                    return True
                return False
        return super().strike(strike, driver)

    def leftovers(self) -> list[str]:
        """Return the jobs that still hold slots some time after their end."""
        until_s = time.monotonic() + GIVEN_BACK_S
        held: list[str] = ["the supervisor does not answer"]
        while held and time.monotonic() < until_s:
            with suppress(AssertionError):  # it may be starting again
                held = [f"job {job} holds slots" for job in self.cluster.status()["jobs"]]
            time.sleep(bool(held))
        return held

    def restore(self) -> None:
        """Replace lost nodes."""
        for node in self.stopped:
            cpus = self.nodes.pop(node)
            with suppress(KeyError):
                self.cluster.kill_node(node)
            self.nodes[self.cluster.add_node(cpus)] = cpus
        self.stopped.clear()


@contextmanager
def place_of(shape: Shape) -> Iterator[Place]:
    """Yield the place for rounds of a shape; with Ray's own defaults for noticing deaths."""
    if not shape.node_cpus:
        own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        yield Place(shape, own)
        return
    with ray_cluster(env={"CODECFLEET_IDLE_S": "4"}, system_config={}) as cluster:
        nodes = {cluster.add_node(cpus): cpus for cpus in shape.node_cpus}
        yield Cluster(shape, cluster.env, cluster, nodes)


def marked(mark: str) -> list[psutil.Process]:
    """Return the processes of a round's driver that still run."""
    return [found for found in _with(MARK, mark) if found.status() != psutil.STATUS_ZOMBIE]


def _with(name: str, value: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(name) == value:
                yield process


def _below(driver: Driver) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return list(psutil.Process(driver.process.pid).children(recursive=True))
    return []


def _named(name: str, processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        with suppress(psutil.Error):
            command = process.cmdline()
            if name in " ".join(command[:4]) and not any("orphan_reaper" in word for word in command):
                found.append(process)
    return sorted(found, key=lambda process: process.pid)


def _signalled(number: int, victims: Sequence[psutil.Process], choice: float) -> bool:
    if not victims:
        return False
    with suppress(psutil.NoSuchProcess):
        victims[int(choice * len(victims))].send_signal(number)
        return True
    return False


def work_locations(folder: Path) -> list[Path]:
    """Return the hidden work folders in a folder of outputs."""
    return [path for path in folder.iterdir() if path.name.startswith(".") and path.is_dir()]
