"""Where a round runs, and how a fault reaches it: a private Ray below the driver, or a cluster for many rounds."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from codecfleet.cluster.fleet_variables import EVENTS
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.simulated.devices import SimulatedNode
from codecfleet.cluster.supervisor.runner.recording import SUFFIX
from tests.driver_sim.build import BuildError, built_libraries
from tests.driver_sim.scenario import Action, Scenario, machine
from tests.driver_sim.scenario import Fault as DriverFault
from tests.driver_sim.simulated_driver import simulated_environment
from tests.integration.ray_cluster import SWIFT, RayCluster, ray_cluster

from .driver import Driver
from .schedule import NODE_LOSSES, OF_A_DEVICE, SEGMENT_FRAMES, SIZE, Fault, Round, Shape, Strike

MARK = "CHAOS_ROUND"
"""In the environment of a round's driver and of all that it starts."""
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
        below = _below(driver)
        return _named("RayWorker", below) + _named("cluster.worker.program", below)

    def strike(self, strike: Strike, driver: Driver) -> bool:
        """Carry out a fault that does not end the driver; return False if there is no victim."""
        if strike.fault in _SIGNALS:
            return _signalled(_SIGNALS[strike.fault], self.workers(driver), strike.choice)
        name = {Fault.RAYLET_KILLED: "raylet", Fault.GCS_KILLED: "gcs_server", Fault.HOST_KILLED: "cluster.fleet.host"}
        return _signalled(signal.SIGKILL, _named(name[strike.fault], _below(driver)), strike.choice)

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
                return _signalled(signal.SIGKILL, self._processes("SupervisorActor"), strike.choice)
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
        return _named(name, list(_with("RAY_TMPDIR", str(self.cluster.folder))))

    def heal(self) -> None:
        for timer in self.timers:
            timer.join()
        self.timers.clear()

    def leftovers(self) -> list[str]:
        """Return the jobs that still hold slots some time after their end."""
        self.heal()
        until_s = time.monotonic() + GIVEN_BACK_S + (RAY_NOTICES_S if self.stopped else 0)
        held: list[str] = ["the supervisor does not answer"]
        while held and time.monotonic() < until_s:
            with suppress(AssertionError):  # the supervisor may be starting again
                held = [f"job {job} holds slots" for job in self.cluster.status()["jobs"]]
            time.sleep(bool(held))
        return held

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


@contextmanager
def place_of(shape: Shape) -> Iterator[Place]:
    """Yield the place for rounds of a shape; if its network is whole, Ray notices deaths with default settings."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    if shape is Shape.SIMULATED_GPUS:
        yield SimulatedMachine(shape, own)
        return
    if not shape.node_cpus:
        yield Place(shape, own)
        return
    is_split = shape is Shape.SPLIT_NODES
    with TemporaryDirectory(dir="/tmp") as kept:
        env = {"CODECFLEET_IDLE_S": "4", EVENTS: f"{kept}/events"}
        if shape is Shape.SMALL_NODES:
            env |= {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": kept}
        with ray_cluster(env=env, system_config=SWIFT if is_split else {}, apart=is_split) as cluster:
            nodes = {cluster.add_node(cpus): cpus for cpus in shape.node_cpus}
            place = Cluster(shape, cluster.env, cluster, nodes)
            yield place
            place.heal()


def obstacle(shape: Shape) -> str:
    """Return why this machine cannot have a place of this shape; "" if it can."""
    if shape is Shape.SPLIT_NODES:
        trial = ["unshare", "--net", "ip", "link", "add", "one", "type", "veth", "peer", "name", "other"]
        try:
            subprocess.run(trial, check=True, capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return f"no network namespaces: {getattr(error, 'stderr', '') or error}".strip()
    if shape is Shape.SIMULATED_GPUS:
        if find_spec("PyNvVideoCodec") is None:
            return "PyNvVideoCodec is not installed"
        if len(os.sched_getaffinity(0)) == 1:
            return "on one core no NVENC gets work"
        try:
            built_libraries()
        except BuildError as error:
            return str(error)
    return ""


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
            if name in " ".join(command[:6]) and not any("orphan_reaper" in word for word in command):
                found.append(process)
    return sorted(found, key=lambda process: process.pid)


def _signalled(number: int, victims: Sequence[psutil.Process], choice: float) -> bool:
    if not victims:
        return False
    with suppress(psutil.NoSuchProcess):
        victims[int(choice * len(victims))].send_signal(number)
        return True
    return False
