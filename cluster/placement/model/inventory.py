"""What there is to place work on: frozen values, made from node reports or from a simulated fleet."""

from dataclasses import dataclass, field, replace
from enum import Enum

from ...probes.report.device_report import DeviceKind
from ...probes.report.engines import CodecCase, Engine, Trial
from ...probes.report.gpu_identity import ShownGpus


class DeviceState(Enum):
    """Whether a device takes new work."""

    OPEN = "open"  #: takes work
    CORDONED = "cordoned"  #: a user asked for no new work; running work continues
    DRAINING = "draining"  #: the node is leaving; running work may finish
    QUARANTINED = "quarantined"  #: it failed, and has not passed a probe since


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device: a whole GPU, a MIG slice, a vGPU, a Tegra iGPU, or the node's processor.

    ``device`` is unique in the inventory (the UUID where it is stable, else node and PCI bus id; ``<node>/cpu`` for a
    processor). A processor's ``engines`` are {CPU: cores}. ``trials`` are shared by all devices of a kind.
    ``encoder_sessions_max`` is a cap learnt from an error, or documented; None is none known. ``parent`` is the GPU of
    a MIG slice: caps of the GPU hold for its slices together. ``free_memory_bytes`` is what sessions may use.
    """

    device: str
    node: str
    kind: DeviceKind
    name: str
    engines: dict[Engine, int]
    trials: tuple[Trial, ...] = ()
    architecture: str = ""
    driver_branch: str = ""
    max_video_clock_mhz: int | None = None
    free_memory_bytes: int | None = None
    encoder_sessions_max: int | None = None
    parent: str = ""
    share: float = 1.0
    """The part of its physical engines that is its own: below 1 on a vGPU, and where compute instances share them."""
    share_unknown: str = ""
    """Why that part is not known, "" where it is."""
    busy: dict[Engine, float] = field(default_factory=dict)
    """The part of each kind of engine that other programs keep busy, as last polled: 0 to 1."""
    encoder_sessions_others: int = 0
    """Encoder sessions that other programs hold on it."""
    fps_max: float | None = None
    """What its driver limits all its sessions to together, in frames a second: a vGPU without a licence."""
    state: DeviceState = DeviceState.OPEN
    state_reason: str = ""
    no_kernels: str = ""
    """Why it cannot scale and convert pictures itself, "" where it can, as far as known: that takes our kernels."""
    untried: str = ""
    """Why none of its codecs could be tried, "" where they could: without trials nothing is known of its engines."""
    hosts_vgpus: bool = False
    """Whether it is a hypervisor's GPU, whose engines belong to its guests: it takes no work and is not counted."""

    def engine_count(self, engine: Engine) -> float:
        """Return how many engines of a kind are its own: its share of those that there are."""
        return self.engines.get(engine, 0) * self.share

    @property
    def converts(self) -> bool:
        """Whether it can scale and convert pictures itself, as far as known."""
        return not self.no_kernels

    def can(self, case: CodecCase, engine: Engine) -> bool:
        """Return whether a trial found that ``engine`` of this device does ``case``."""
        return any(trial.works for trial in self.trials if trial.engine is engine and trial.case == case)


@dataclass(frozen=True, slots=True)
class Dla:
    """A DLA: an engine of a Tegra, and by itself since an error of one is final for the process that uses it.

    ``device`` is unique in the inventory, ``number`` counts those of its node.
    """

    device: str
    number: int
    state: DeviceState = DeviceState.OPEN
    state_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine, its processor among its devices. ``system_encoder_sessions_max`` caps all its GPUs together.

    ``dlas`` are for jobs that run networks; nothing of a transcode is placed on them. ``shown`` are its GPUs by all
    their names, and which of them Ray was shown; None where NVML was not asked. ``pyav`` and ``release`` are the
    versions of PyAV and codecfleet that are installed, "" where they are not known.
    """

    node: str
    name: str
    devices: tuple[Device, ...]
    dlas: tuple[Dla, ...] = ()
    preemptible: bool = False
    memory_bytes: int | None = None
    speed: float = 1.0
    system_encoder_sessions_max: int | None = None
    shown: ShownGpus | None = None
    state: DeviceState = DeviceState.OPEN
    state_reason: str = ""
    pyav: str = ""
    release: str = ""
    machine_uuid: str = ""
    """A virtual machine's UUID as its host knows it, "" where it may not be read."""
    search_path: str | None = None
    """The LD_LIBRARY_PATH of its workers, None where they keep the node's own."""
    driver_choice: str = ""
    """Which CUDA driver its workers load, and why, "" where there was nothing to choose."""

    @property
    def cores(self) -> int:
        """How many cores its processor has for work."""
        return sum(device.engines.get(Engine.CPU, 0) for device in self.devices)


def cordoned(device: Device, reason: str) -> Device:
    """Return a device that gets no new work for a reason, unless it had one before."""
    is_open = device.state is DeviceState.OPEN
    return replace(device, state=DeviceState.CORDONED, state_reason=reason) if is_open else device


def plain_type(name: str) -> str:
    """Return the name of a vGPU's type without its maker's, which has changed over the years."""
    return name.removeprefix("GRID ").removeprefix("NVIDIA ")


def processor_name(node: str) -> str:
    """Return the name of a node's processor among devices."""
    return f"{node}/cpu"


def processor(node: str, cores: int, name: str = "processor", trials: tuple[Trial, ...] = ()) -> Device:
    """Return a node's processor as a device; without trials its software is taken to do whatever is asked."""
    engines, device = {Engine.CPU: cores}, processor_name(node)
    return Device(device=device, node=node, kind=DeviceKind.CPU, name=name, engines=engines, trials=trials)


def processor_of(node: str, name: str, cores: int, memory_bytes: int | None = None) -> Node:
    """Return a node of which only its processor is known, with ``cores`` slots for any software codec."""
    return Node(node=node, name=name, devices=(processor(node, cores),), memory_bytes=memory_bytes)


def dlas_of(node: str, count: int) -> tuple[Dla, ...]:
    """Return a node's ``count`` DLAs."""
    return tuple(Dla(f"{node}/dla#{number}", number) for number in range(count))


@dataclass(frozen=True, slots=True)
class Inventory:
    """Every node, in a fixed order."""

    nodes: tuple[Node, ...]
