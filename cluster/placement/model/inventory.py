"""Nodes and devices that work is placed on: frozen values, from node reports or a simulated fleet."""

from dataclasses import dataclass, field, replace
from enum import Enum

from ...probes.report.device_kinds import DeviceKind
from ...probes.report.engines import CodecCase, Engine, Trial
from ...probes.report.gpu_identity import ShownGpus
from ...worker_names import NodeId, StationId


class DeviceState(Enum):
    """Whether a device takes new work."""

    OPEN = "open"  #: takes work
    CORDONED = "cordoned"  #: a user asked for no new work; running work continues
    DRAINING = "draining"  #: the node is leaving; running work may finish
    QUARANTINED = "quarantined"  #: it failed, and has not passed a probe since


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device of any kind."""

    device: str  # unique: the UUID if it is stable, else node and PCI bus id; ``<node>/cpu``; a DLA's station
    node: NodeId
    kind: DeviceKind
    name: str
    engines: dict[Engine, int]  # counts by kind; {CPU: cores} for a processor
    trials: tuple[Trial, ...] = ()  # shared by equal devices; without trials its engines are unknown
    architecture: str = ""
    driver_branch: str = ""
    max_video_clock_mhz: int | None = None
    free_memory_bytes: int | None = None  # memory that sessions may use
    encoder_sessions_max: int | None = None  # learnt from a refusal, or documented; None if unknown
    parent: str = ""  # the GPU of a MIG slice, whose caps count all its slices together
    share: float = 1.0  # fraction of its physical engines: below 1 on a vGPU, and for compute instances that share them
    share_unknown: str = ""  # why that share is unknown, "" if it is known
    busy: dict[Engine, float] = field(default_factory=dict)  # use by other programs, 0 to 1, as last polled
    encoder_sessions_others: int = 0  # held by other programs
    fps_max: float | None = None  # its driver's limit for all sessions together: for a vGPU without a licence
    state: DeviceState = DeviceState.OPEN
    state_reason: str = ""
    no_kernels: str = ""  # why it cannot scale and convert pictures itself, "" if it can, as far as known
    untried: str = ""  # why none of its codecs could be tried, "" if they could
    hosts_vgpus: bool = False  # its engines belong to the guests of its hypervisor, so it is not counted

    def engine_count(self, engine: Engine) -> float:
        """Return its share of a GPU's engines of a kind."""
        return self.engines.get(engine, 0) * self.share

    @property
    def converts(self) -> bool:
        """Whether it can scale and convert pictures itself, as far as known."""
        return not self.no_kernels

    def can(self, case: CodecCase, engine: Engine) -> bool:
        """Return whether a trial found that ``engine`` of this device can do ``case``."""
        return any(trial.works for trial in self.trials if trial.engine is engine and trial.case == case)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine."""

    node: NodeId
    name: str
    devices: tuple[Device, ...]  # includes its processor, but not its DLAs
    dlas: tuple[Device, ...] = ()  # accelerators for jobs that run networks; an error ends the process that uses one
    preemptible: bool = False
    memory_bytes: int | None = None
    speed: float = 1.0  # speed of its cores, relative to the reference core
    system_encoder_sessions_max: int | None = None  # the most encoder sessions of all its GPUs together
    shown: ShownGpus | None = None  # its GPUs by all their names, as shown to Ray; None if NVML was not asked
    state: DeviceState = DeviceState.OPEN
    state_reason: str = ""
    pyav: str = ""  # PyAV's version, "" if unknown
    release: str = ""  # codecfleet's version, "" if unknown
    machine_uuid: str = ""  # a virtual machine's UUID, as its host knows it; "" if it may not be read
    search_path: str | None = None  # its workers' LD_LIBRARY_PATH, None if they keep the node's own
    driver_choice: str = ""  # which CUDA driver its workers load, and why, "" if there was no choice

    @property
    def gpus(self) -> tuple[Device, ...]:
        """Its GPUs and slices."""
        return tuple(device for device in self.devices if not device.kind.is_processor)

    @property
    def processor(self) -> Device | None:
        """Its processor, None if unknown."""
        return next((device for device in self.devices if device.kind.is_processor), None)

    @property
    def cores(self) -> int:
        """How many cores its processor has for work."""
        return sum(device.engines.get(Engine.CPU, 0) for device in self.devices)


def cordoned(device: Device, reason: str) -> Device:
    """Return a copy of the device that gets no new work for this reason, unless it already has a reason."""
    is_open = device.state is DeviceState.OPEN
    return replace(device, state=DeviceState.CORDONED, state_reason=reason) if is_open else device


def plain_type(name: str) -> str:
    """Return the name of a vGPU's type without its maker's name, which has changed over the years."""
    return name.removeprefix("GRID ").removeprefix("NVIDIA ")


def processor_name(node: NodeId) -> str:
    """Return the name of a node's processor among devices."""
    return f"{node}/cpu"


def processor(node: NodeId, cores: int, name: str = "processor", trials: tuple[Trial, ...] = ()) -> Device:
    """Return a node's processor as a device; without trials its software is assumed to do everything."""
    engines, device = {Engine.CPU: cores}, processor_name(node)
    return Device(device=device, node=node, kind=DeviceKind.CPU, name=name, engines=engines, trials=trials)


def processor_of(node: NodeId, name: str, cores: int, memory_bytes: int | None = None) -> Node:
    """Return a node with a processor of ``cores`` slots for any software codec, and nothing else."""
    return Node(node=node, name=name, devices=(processor(node, cores),), memory_bytes=memory_bytes)


def dlas_of(node: NodeId, count: int) -> tuple[Device, ...]:
    """Return a node's ``count`` DLAs, which are named like their workers' stations."""
    kind, stations = DeviceKind.DLA, (StationId.of(node, DeviceKind.DLA, number) for number in range(count))
    return tuple(
        Device(device=each, node=node, kind=kind, name=f"DLA {each.number}", engines={Engine.DLA: 1})
        for each in stations
    )


def dla_number(dla: Device) -> int:
    """Return a DLA's number on its node."""
    return StationId(dla.device).number


@dataclass(frozen=True, slots=True)
class Inventory:
    """Every node, in a fixed order."""

    nodes: tuple[Node, ...]
