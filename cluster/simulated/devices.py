"""A machine that does not exist: what ``fleet_file.py`` reads of ``configs/fleets/*.toml``.

``codecfleet.testing.FakeNvml`` answers NVML's calls from these values, so that the real probes report on them.
"""

from dataclasses import dataclass, field
from datetime import datetime

from ..probes.report.device_report import DeviceKind
from ..probes.report.engines import Engine, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSlice:
    """One MIG device of a simulated GPU: a compute instance in a GPU instance.

    ``profile``, ``memory_bytes`` and ``engines`` are the GPU instance's, which its compute instances share.
    ``compute_slices`` is what the compute instance has of the GPU instance's slices, None where it has them all.
    """

    uuid: str
    gpu_instance: int
    profile: str
    memory_bytes: int
    engines: dict[Engine, int]
    compute_instance: int = 0
    compute_slices: int | None = None

    @property
    def gpu_slices(self) -> int:
        """Return how many of the GPU's slices its GPU instance takes: 3 of "3g.20gb"."""
        return int(self.profile.partition("g.")[0] or 1)

    @property
    def name(self) -> str:
        """Return what NVML calls it: "3g.20gb", or "1c.3g.20gb" where it has one of the three slices."""
        return self.profile if self.compute_slices is None else f"{self.compute_slices}c.{self.profile}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedVgpu:
    """One vGPU that runs on a simulated host GPU."""

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
    """One device of a simulated node.

    ``engines`` are its own engine counts; ``trials`` what its engines would do with every codec case.
    ``faults`` maps an NVML function's name to the return code that it answers with ("nvmlDeviceGetUUID": 15); ``xids``
    are events that wait to be read. ``virtualization`` is NVML's mode: 0 none, 1 passthrough, 2 vGPU,
    3 host of vGPUs. ``share`` is the part of its engines that a vGPU with a fixed or equal share has. ``licensed`` says
    whether it has a vGPU software licence, None where none applies to it.
    """

    kind: DeviceKind
    uuid: str
    name: str
    memory_bytes: int
    engines: dict[Engine, int]
    architecture: str = ""
    compute_capability: str = ""
    pci_bus_id: str = ""
    max_video_clock_mhz: int | None = None
    trials: tuple[Trial, ...] = ()
    mig_enabled: bool = False
    mig_capable: bool = False
    slices: tuple[SimulatedSlice, ...] = ()
    virtualization: int = 0
    vgpus: tuple[SimulatedVgpu, ...] = ()
    vgpu_scheduler: str = "best effort"
    share: float = 1.0
    licensed: bool | None = None
    licence_expires: datetime | None = None
    encoder_sessions_max: int | None = None
    faults: dict[str, int] = field(default_factory=dict)
    xids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """One machine of a simulated fleet; ``cordoned`` says why it takes no new work."""

    name: str
    cores: int
    memory_bytes: int
    driver: str
    devices: tuple[SimulatedDevice, ...]
    preemptible: bool = False
    cordoned: str = ""
    tegra: str = ""
    speed: float = 1.0
    """How fast its cores are, as a multiple of the reference core that documented software rates are for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFleet:
    """A fleet that does not exist. ``source`` says where its figures are from: "documents" or "measured ..."."""

    name: str
    description: str
    source: str
    nodes: tuple[SimulatedNode, ...]
