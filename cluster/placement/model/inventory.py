"""Nodes and devices on which work is placed: frozen values, from node reports or a simulated fleet."""

from dataclasses import dataclass, field, replace
from enum import Enum

from ...probes.report.device_kinds import DeviceKind
from ...probes.report.engines import CodecCase, Engine, Trial
from ...probes.report.gpu_identity import ShownGpus
from ...probes.report.verdict import Grade
from ...worker_names import NodeId, StationId


class DeviceState(Enum):
    """Whether a device takes new work."""

    OPEN = "open"  #: the device takes new work
    CORDONED = "cordoned"  #: a user wants no new work on the device; running work continues
    DRAINING = "draining"  #: the node is leaving; running work may finish
    QUARANTINED = "quarantined"  #: the device failed, and has not passed a probe since


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of any kind."""

    # unique: a GPU's UUID if it is stable, otherwise node and PCI bus id; a processor's ``<node>/cpu``; a DLA's station
    device: str
    node: NodeId
    kind: DeviceKind
    name: str
    engines: dict[Engine, int]  # engine counts by kind; {CPU: cores} for a processor
    trials: tuple[Trial, ...] = ()  # trials, shared by equal devices; without trials the device's engines are unknown
    architecture: str = ""
    driver: str = ""  # the driver's version, or only its branch
    max_video_clock_mhz: int | None = None
    free_memory_bytes: int | None = None  # memory that sessions may use
    encoder_sessions_max: int | None = None  # the cap, learnt from a refusal or documented; None if unknown
    parent: str = ""  # the GPU of a MIG slice; the GPU's caps count all its slices together
    # The fraction of a physical engine: below 1 on a vGPU, and for compute instances that share engines.
    share: float = 1.0
    share_unknown: str = ""  # why ``share`` is unknown; "" if it is known
    busy: dict[Engine, float] = field(default_factory=dict)  # use by other programs, 0 to 1, at the last poll
    encoder_sessions_others: int = 0  # encoder sessions that other programs hold
    # The driver's limit for all sessions together, set for an unlicensed vGPU; None if there is no limit.
    fps_max: float | None = None
    state: DeviceState = DeviceState.OPEN
    state_reason: str = ""
    no_kernels: str = ""  # why the device itself cannot scale and convert pictures; "" if it can, as far as known
    untried: str = ""  # why no codec could be tried on the device; "" if a codec could be tried
    compatibility: Grade = Grade.UNKNOWN  # the worst verdict about the CUDA driver and the software that uses it
    hosts_vgpus: bool = False  # the device hosts vGPUs: its engines belong to the guests, so the device is not counted

    def engine_count(self, engine: Engine) -> float:
        """Return how many engines of this kind the device has; a fraction for a device that shares an engine."""
        return self.engines.get(engine, 0) * self.share

    @property
    def driver_branch(self) -> str:
        """The branch of the device's driver, such as "580"; "" if unknown."""
        return self.driver.partition(".")[0]

    @property
    def converts(self) -> bool:
        """Whether the device itself can scale and convert pictures, as far as known."""
        return not self.no_kernels

    def can(self, case: CodecCase, engine: Engine) -> bool:
        """Return whether a trial found that ``engine`` of this device can do ``case``."""
        return any(trial.works for trial in self.trials if trial.engine is engine and trial.case == case)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine with its devices."""

    node: NodeId
    name: str
    devices: tuple[Device, ...]  # the node's devices, including its processor but not its DLAs
    # Accelerators for jobs that run networks. If an accelerator fails, the process that used it ends.
    dlas: tuple[Device, ...] = ()
    preemptible: bool = False
    memory_bytes: int | None = None
    speed: float = 1.0  # the speed of the node's cores, relative to the reference core
    system_encoder_sessions_max: int | None = None  # the most encoder sessions on all GPUs of the node together
    shown: ShownGpus | None = None  # the node's GPUs, with what limits them for Ray; None if NVML was not asked
    state: DeviceState = DeviceState.OPEN
    state_reason: str = ""
    pyav: str = ""  # PyAV's version, "" if unknown
    release: str = ""  # codecfleet's version, "" if unknown
    machine_uuid: str = ""  # a virtual machine's UUID, which the host knows too; "" if it may not be read
    search_path: str | None = None  # the workers' LD_LIBRARY_PATH; None if the node's value stays
    keeper: str = ""  # the socket of the node's keeper (see ``ray/keeper.py``); "" without a driver
    driver_choice: str = ""  # which CUDA driver the workers load, and why; "" if there was no choice

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The node's GPUs and slices."""
        return tuple(device for device in self.devices if not device.kind.is_processor)

    @property
    def processor(self) -> Device | None:
        """The node's processor; None if unknown."""
        return next((device for device in self.devices if device.kind.is_processor), None)

    @property
    def cores(self) -> int:
        """How many cores the node's processor has for work."""
        return sum(device.engines.get(Engine.CPU, 0) for device in self.devices)


def cordoned(device: Device, reason: str) -> Device:
    """Return a copy of the device that gets no new work for this reason; an earlier reason stays."""
    is_open = device.state is DeviceState.OPEN
    return replace(device, state=DeviceState.CORDONED, state_reason=reason) if is_open else device


def plain_type(name: str) -> str:
    """Return the name of a vGPU's type without the maker's name, which has changed over the years."""
    return name.removeprefix("GRID ").removeprefix("NVIDIA ")


def processor_name(node: NodeId) -> str:
    """Return the name that a node's processor has as a device."""
    return f"{node}/cpu"


def processor(node: NodeId, cores: int, name: str = "processor", trials: tuple[Trial, ...] = ()) -> Device:
    """Return a node's processor as a device; without trials, all software codecs are assumed to work."""
    engines, device = {Engine.CPU: cores}, processor_name(node)
    return Device(device=device, node=node, kind=DeviceKind.CPU, name=name, engines=engines, trials=trials)


def processor_of(node: NodeId, name: str, cores: int, memory_bytes: int | None = None) -> Node:
    """Return a node that has only a processor, with ``cores`` slots for any software codec."""
    return Node(node=node, name=name, devices=(processor(node, cores),), memory_bytes=memory_bytes)


def dlas_of(node: NodeId, count: int) -> tuple[Device, ...]:
    """Return ``count`` DLAs of a node, named after the stations of their workers."""
    kind, stations = DeviceKind.DLA, (StationId.of(node, DeviceKind.DLA, number) for number in range(count))
    return tuple(
        Device(device=each, node=node, kind=kind, name=f"DLA {each.number}", engines={Engine.DLA: 1})
        for each in stations
    )


def dla_number(dla: Device) -> int:
    """Return the number of a DLA on its node."""
    return StationId(dla.device).number


@dataclass(frozen=True, slots=True)
class Inventory:
    """Every node, in a fixed order."""

    nodes: tuple[Node, ...]
