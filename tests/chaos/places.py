"""Where a program runs, and how a fault reaches it: a private Ray below the driver, or a cluster for many rounds."""

import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from codecfleet.cluster.fleet_variables import EVENTS
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.simulated.devices import SimulatedNode
from codecfleet.cluster.supervisor.runner.recording import SUFFIX
from tests.driver_sim.scenario import Action, Scenario, machine
from tests.driver_sim.scenario import Fault as DriverFault
from tests.driver_sim.simulated_driver import simulated_environment
from tests.integration.ray_cluster import RayCluster

from .driver import Driver
from .processes import below, having, named, signalled
from .schedule import NODE_LOSSES, OF_A_DEVICE, SEGMENT_FRAMES, SIZE, Fault, Round, Shape, Strike

GIVEN_BACK_S = 20.0
RAY_NOTICES_S = 75.0
"""Ray starts the supervisor again elsewhere once its health checks have missed a frozen node for about a minute."""
GCS_DOWN_S = 1.0
NOTICE_S = 8
DEVICES_WORK = 3
"""After how many segments a device fails at the earliest: a call that hangs sooner has the patience of a first one."""
_CUT_S = {Fault.NODE_CUT_OFF: 6.0, Fault.NODE_CUT_BRIEFLY: 0.5}
_DECODES = "cuvidDecodePicture@{}x{}".format(*SIZE)
_DRIVER_FAULTS = {
    Fault.NVDEC_HANGS: (_DECODES, Action.HANG, None),
    Fault.NVDEC_FAILS: (_DECODES, Action.STATUS, 700),
    Fault.NVENC_FAILS: ("NvEncEncodePicture", Action.STATUS, 8),
    Fault.CUDA_BREAKS: (_DECODES, Action.BREAK, None),
    Fault.GPU_LOST: (_DECODES, Action.LOSE, None),
}
_SIGNALS = {
    Fault.WORKER_KILLED: signal.SIGKILL,
    Fault.WORKER_TERMINATED: signal.SIGTERM,
    Fault.WORKER_STOPPED: signal.SIGSTOP,
}


@dataclass
class Place:
    """A machine with a private Ray; ``Cluster`` is the other place."""

    shape: Shape
    env: dict[str, str]

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words that a command in this place begins with."""
        return ()

    def prepare(self, plan: Round, folder: Path) -> None:
        """Make what a round needs in its own folder; Ray starts first only if a fault hits one of its processes."""
        del folder
        hits_ray = any(strike.fault in (Fault.RAYLET_KILLED, Fault.GCS_KILLED) for strike in plan.strikes)
        self.env["CODECFLEET_RAY"] = "first" if hits_ray else ""

    @property
    def has_met_its_fault(self) -> bool:
        """Whether a prepared fault has struck."""
        return False

    def workers(self, driver: Driver) -> list[psutil.Process]:
        """Return the worker processes that may have work of the driver."""
        found = below(driver.process.pid)
        return named("RayWorker", found) + named("cluster.worker.program", found)

    def strike(self, strike: Strike, driver: Driver) -> bool:
        """Carry out a fault that does not end the driver; return False if there is no victim."""
        if strike.fault in _SIGNALS:
            return signalled(_SIGNALS[strike.fault], self.workers(driver), strike.choice)
        name = {Fault.RAYLET_KILLED: "raylet", Fault.GCS_KILLED: "gcs_server", Fault.HOST_KILLED: "cluster.fleet.host"}
        return signalled(signal.SIGKILL, named(name[strike.fault], below(driver.process.pid)), strike.choice)

    def leftovers(self) -> list[str]:
        return []

    def kept_events(self, folder: Path) -> list[Path]:
        """Return the recordings of supervisors' decisions in ``folder``."""
        return sorted(folder.glob(f"*{SUFFIX}"))

    def restore(self) -> None:
        """Repair the place for the next round."""


@dataclass
class Cluster(Place):
    """A cluster of several nodes on this machine."""

    cluster: RayCluster
    nodes: dict[str, int]
    stopped: set[str] = field(default_factory=set)
    """Nodes that are lost, or will be."""
    timers: list[threading.Timer] = field(default_factory=list)
    """They give nodes their network back, or kill nodes whose notice is over."""

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words that a command on the cluster begins with."""
        return self.cluster.prefix

    def workers(self, driver: Driver) -> list[psutil.Process]:
        del driver
        return self._processes("RayWorker")

    def strike(self, strike: Strike, driver: Driver) -> bool:
        match strike.fault:
            case fault if fault in NODE_LOSSES or fault in _CUT_S:
                standing = sorted(set(self.nodes) - self.stopped)
                self._strike_node(strike.fault, standing[int(strike.choice * len(standing))])
                return True
            case Fault.GCS_RESTARTED:
                self.cluster.restart_control_service(GCS_DOWN_S)
                return True
            case Fault.SUPERVISOR_KILLED:
                return signalled(signal.SIGKILL, self._processes("SupervisorActor"), strike.choice)
        return super().strike(strike, driver)

    def _strike_node(self, fault: Fault, victim: str) -> None:
        if fault in NODE_LOSSES:
            self.stopped.add(victim)
        if fault in _CUT_S:
            self.cluster.cut_off(victim)
            self._later(_CUT_S[fault], self.cluster.rejoin, victim)
        elif fault is Fault.NODE_TAKEN_BACK:
            self.cluster.drain_node(victim, NOTICE_S)
            self._later(NOTICE_S, self.cluster.kill_node, victim)
        elif fault is Fault.NODE_KILLED:
            self.cluster.kill_node(victim)
        else:
            self.cluster.stop_node(victim)

    def _later(self, after_s: float, act: Callable[[str], None], node: str) -> None:
        self.timers.append(threading.Timer(after_s, act, (node,)))
        self.timers[-1].start()

    def _processes(self, name: str) -> list[psutil.Process]:
        return named(name, list(having("RAY_TMPDIR", str(self.cluster.folder))))

    def heal(self) -> None:
        for timer in self.timers:
            timer.join()
        self.timers.clear()

    def leftovers(self) -> list[str]:
        """Return the jobs that still hold slots some time after their end."""
        self.heal()
        return held_slots(self.cluster.status, GIVEN_BACK_S + (RAY_NOTICES_S if self.stopped else 0))

    def kept_events(self, folder: Path) -> list[Path]:
        """Return the recording of the cluster's supervisor, and the files of supervisors that were killed."""
        folder.mkdir(exist_ok=True)
        said = self.cluster.run("status", "--events", str(folder / f"asked{SUFFIX}"))
        assert said.returncode == 0, said.stderr
        for path in Path(self.env[EVENTS]).glob(f"*{SUFFIX}"):
            shutil.copy(path, folder)
        return super().kept_events(folder)

    def restore(self) -> None:
        for node in self.stopped:
            cpus = self.nodes.pop(node)
            self.cluster.kill_node(node)
            self.nodes[self.cluster.add_node(cpus)] = cpus
        self.stopped.clear()


def held_slots(status: Callable[[], dict[str, Any]], within_s: float) -> list[str]:
    """Return the jobs that hold slots of a supervisor after that time, by its ``status``."""
    until_s = time.monotonic() + within_s
    held: list[str] = ["the supervisor does not answer"]
    while held and time.monotonic() < until_s:
        with suppress(AssertionError):  # the supervisor may be starting again
            held = [f"job {job} holds slots" for job in status()["jobs"]]
        time.sleep(bool(held))
    return held


@dataclass
class SimulatedMachine(Place):
    """A private Ray on a machine with two GPUs, which the driver simulator plays."""

    simulation: Path = Path()

    def prepare(self, plan: Round, folder: Path) -> None:
        self.simulation = folder / "simulation"
        self.simulation.mkdir()
        scenario = Scenario(machine=_two_gpus(), faults=tuple(_fault_of(strike) for strike in _of_devices(plan)))
        self.env |= simulated_environment(scenario, self.simulation, shared_state=True)

    @property
    def has_met_its_fault(self) -> bool:
        trace = self.simulation / "trace"
        return trace.exists() and b"\nfault " in trace.read_bytes()


def _two_gpus() -> SimulatedNode:
    found = machine("l4-x4")
    gpus = [device for device in found.devices if device.kind is not DeviceKind.CPU]
    return replace(found, devices=tuple(device for device in found.devices if device not in gpus[2:]))


def _of_devices(plan: Round) -> list[Strike]:
    return [strike for strike in plan.strikes if strike.fault in OF_A_DEVICE]


def _fault_of(strike: Strike) -> DriverFault:
    """Return a fault of the simulated driver, at a picture near the moment of the strike, after some work has ended."""
    function, action, value = _DRIVER_FAULTS[strike.fault]
    picture = int((max(DEVICES_WORK, strike.after_segments) + strike.choice) * SEGMENT_FRAMES)
    return DriverFault(function=function, action=action, value=value, call=1 + picture)
