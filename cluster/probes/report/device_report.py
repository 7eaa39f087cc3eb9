"""The report on one device: values from NVML and the CUDA driver.

Utilisation is in percent of the sampling period.
"""

from dataclasses import dataclass

from .absence import Maybe, Unavailable, known
from .device_kinds import DeviceKind
from .engines import EngineCount
from .xids import broken_by_xid


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Device memory in bytes."""

    total_bytes: int
    used_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process that uses the device; values are None if the driver does not report them."""

    pid: int
    memory_bytes: int | None = None
    sm_percent: int | None = None
    encoder_percent: int | None = None
    decoder_percent: int | None = None


@dataclass(frozen=True, slots=True)
class CodecSession:
    """An open encoder session."""

    session: int
    pid: int
    codec: str
    width: int
    height: int
    fps: int
    latency_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """A device's current use."""

    gpu_percent: Maybe[int]
    memory_percent: Maybe[int]
    encoder_percent: Maybe[int]
    decoder_percent: Maybe[int]
    jpeg_percent: Maybe[int]
    ofa_percent: Maybe[int]
    encoder_capacity_percent: dict[str, Maybe[int]]
    encoder_sessions_open: Maybe[int]
    encoder_fps: Maybe[int]
    encoder_latency_us: Maybe[int]
    encoder_sessions: Maybe[tuple[CodecSession, ...]]
    processes: Maybe[tuple[DeviceProcess, ...]]
    gpm_percent: Maybe[dict[str, float]]  # by engine ("nvdec0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A device's health."""

    ecc_enabled: Maybe[bool]
    ecc_uncorrected: Maybe[int]  # errors since the driver was loaded
    retired_pages: Maybe[int]
    retirement_pending: Maybe[bool]
    remapped_rows_pending: Maybe[bool]
    recovery_action: Maybe[str]  # the driver's advice ("none", "reset", "reboot", "drain", ...)
    xids: tuple[int, ...] = ()  # Xid errors since the watch began
    lost: str = ""  # why the device cannot be used; "" if it is usable
    xids_refused: Unavailable | None = None  # why Xid errors cannot be watched; None if they can


def why_unplaceable(health: Health) -> str:
    """Return why a device may get no new work, as a sentence without a full stop; "" if it may.

    NVML API Reference Manual, "Device Queries"; for guests, vGPU Management SDK guide, 3.3.2.
    """
    if health.lost:
        return health.lost
    if broken := broken_by_xid(health.xids):
        return broken
    if (action := known(health.recovery_action, "none")) != "none":
        return f"its driver advises: {action}"
    if errors := known(health.ecc_uncorrected, 0):
        return f"its memory is damaged: {errors} error{'' if errors == 1 else 's'} could not be corrected"
    if known(health.retirement_pending, otherwise=False) or known(health.remapped_rows_pending, otherwise=False):
        return "a reset is pending, which replaces faulty memory"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigSlice:
    """One MIG instance; ``uuid`` is the instance's name in CUDA_VISIBLE_DEVICES."""

    uuid: str
    gpu_instance: int
    compute_instance: Maybe[int]
    profile: str
    memory: Maybe[MemoryUse]
    engines: tuple[EngineCount, ...]
    gpm_percent: Maybe[dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """A MIG profile, with the engines of an instance."""

    profile_id: int
    name: str
    memory_bytes: int
    engines: tuple[EngineCount, ...]
    instances_max: int
    instances_free: Maybe[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigReport:
    """MIG on one GPU."""

    enabled: bool
    pending: bool  # whether MIG is on after the next reset
    slices_max: Maybe[int]
    slices: tuple[MigSlice, ...]
    profiles: tuple[MigProfile, ...]
    slices_refused: Unavailable | None = None  # why slices may be missing

    def sharers_of(self, part: MigSlice) -> int:
        """Return how many compute instances share a slice's GPU instance; the slice itself counts."""
        return sum(other.gpu_instance == part.gpu_instance for other in self.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """One GPU, vGPU or iGPU of a node, with its MIG instances."""

    index: int
    kind: DeviceKind
    uuid: Maybe[str]
    uuid_is_stable: bool  # False for a vGPU, which is identified by host and PCI bus id instead
    pci_bus_id: Maybe[str]
    name: str
    architecture: Maybe[str]
    compute_capability: Maybe[str]
    memory: Maybe[MemoryUse]
    max_video_clock_mhz: Maybe[int]  # the clock by which documented rates are scaled
    virtualization: Maybe[str]
    engines: tuple[EngineCount, ...]  # only known counts, from the driver or trials
    use: DeviceUse
    health: Health
    mig: Maybe[MigReport]
    facts: dict[str, Maybe[str | int | float | bool]]  # facts for display: serial, VBIOS, PCIe, power, temperature, ...

    @property
    def key(self) -> str:
        """The device's key in trials: the UUID; NVML's number if there is none."""
        return known(self.uuid, str(self.index))

    @property
    def label(self) -> str:
        """The device's display name: "GPU 0 (NVIDIA H200)"."""
        return f"GPU {self.index} ({self.name})"

    @property
    def is_cut(self) -> bool:
        """Whether MIG is on, so that the GPU's slices are the devices."""
        return not isinstance(self.mig, Unavailable) and self.mig.enabled

    @property
    def slices(self) -> tuple[MigSlice, ...]:
        """The GPU's MIG slices."""
        return () if isinstance(self.mig, Unavailable) else self.mig.slices
