"""Simulated machines. ``fleet_file.py`` reads them; ``codecfleet.testing.FakeNvml`` answers NVML's calls from them."""

from dataclasses import dataclass, field
from datetime import datetime

from ..probes.report.device_kinds import DeviceKind
from ..probes.report.engines import Engine, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSlice:
    """A MIG device of a simulated GPU: a compute instance in a GPU instance."""

    uuid: str
    gpu_instance: int
    profile: str  #: the profile of the GPU instance, which determines memory and engines
    memory_bytes: int
    engines: dict[Engine, int]
    compute_instance: int = 0
    compute_slices: int | None = None  #: how many of the GPU instance's compute slices this device has; None for all

    @property
    def gpu_slices(self) -> int:
        """The number of slices of the GPU instance: 3 for "3g.20gb"."""
        return int(self.profile.partition("g.")[0] or 1)

    @property
    def name(self) -> str:
        """The name in NVML: "3g.20gb", or "1c.3g.20gb" for one compute slice of such an instance."""
        return self.profile if self.compute_slices is None else f"{self.compute_slices}c.{self.profile}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedVgpu:
    """A vGPU that runs on a simulated host GPU."""

    instance: int
    type_id: int
    type_name: str
    uuid: str
    vm_id: str
    framebuffer_bytes: int
    licensed: bool = True
    licence_expires: datetime | None = None
    frame_rate_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDevice:
    """A device of a simulated node."""

    kind: DeviceKind
    uuid: str
    name: str
    memory_bytes: int
    engines: dict[Engine, int]
    architecture: str = ""
    compute_capability: str = ""
    pci_bus_id: str = ""
    max_video_clock_mhz: int | None = None
    trials: tuple[Trial, ...] = ()  #: the result of each codec case on the engines
    mig_enabled: bool = False
    mig_capable: bool = False
    slices: tuple[SimulatedSlice, ...] = ()
    virtualization: int = 0  #: the mode in NVML: 0 none, 1 passthrough, 2 vGPU, 3 host of vGPUs
    vgpus: tuple[SimulatedVgpu, ...] = ()
    vgpu_scheduler: str = "best effort"
    share: float = 1.0  #: a vGPU's share of the engines under a scheduler with fixed or equal shares
    licensed: bool | None = None  #: whether the device has a licence for vGPU software; None if no licence is needed
    licence_expires: datetime | None = None
    encoder_sessions_max: int | None = None
    faults: dict[str, int] = field(default_factory=dict)  #: return codes by the name of the NVML function
    xids: tuple[int, ...] = ()  #: unread Xid events


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """A machine of a simulated fleet."""

    name: str
    cores: int
    memory_bytes: int
    driver: str
    devices: tuple[SimulatedDevice, ...]
    preemptible: bool = False
    cordoned: str = ""  #: why the node takes no new work; "" if it takes work
    tegra: str = ""
    speed: float = 1.0  #: the speed of a core, relative to the core on which the rates of software were measured


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFleet:
    """A simulated fleet."""

    name: str
    description: str
    source: str  #: the source of the figures: "documents" or "measured ..."
    nodes: tuple[SimulatedNode, ...]
