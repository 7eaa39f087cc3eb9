"""The report on one device: values from NVML and the CUDA driver.

Utilisation is a percentage of the sampling period.
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
    """The current use of a device."""

    gpu_percent: Maybe[int]
    memory_percent: Maybe[int]
    encoder_percent: Maybe[int]
    decoder_percent: Maybe[int]
    encoder_sessions_open: Maybe[int]
    encoder_sessions: Maybe[tuple[CodecSession, ...]]
    processes: Maybe[tuple[DeviceProcess, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The faults that a device and its driver report."""

    ecc_uncorrected: Maybe[int]  # errors since the driver was loaded
    retirement_pending: Maybe[bool]
    remapped_rows_pending: Maybe[bool]
    recovery_action: Maybe[str]  # the driver's advice, for example "none", "reset", "reboot" or "drain"
    xids: tuple[int, ...] = ()  # Xid errors since the watch began
    lost: str = ""  # why the device cannot be used; "" if it can be used


def why_unplaceable(health: Health) -> str:
    """Return why a device may get no new work, as a sentence without a full stop; "" if it may get work.

    The rules are in the NVML API Reference Manual, "Device Queries", and for guests in the vGPU Management SDK guide,
    3.3.2.
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
    """A MIG instance; ``uuid`` is its name in CUDA_VISIBLE_DEVICES."""

    uuid: str
    gpu_instance: int
    compute_instance: Maybe[int]
    profile: str
    memory: Maybe[MemoryUse]
    engines: tuple[EngineCount, ...]


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
    """The MIG mode, slices and profiles of one GPU."""

    enabled: bool
    pending: bool  # whether MIG is on after the next reset
    slices_max: Maybe[int]
    slices: tuple[MigSlice, ...]
    profiles: tuple[MigProfile, ...]
    slices_refused: Unavailable | None = None  # why slices may be missing


@dataclass(frozen=True, slots=True, kw_only=True)
class LicensableFeature:
    """A vGPU software product that can be licensed."""

    code: int
    product: str
    is_licensed: bool
    is_enabled: bool
    licence_info: str
    expires_utc: Maybe[str]  # when the licence ends, as "YYYY-MM-DD hh:mm:ss"


@dataclass(frozen=True, slots=True)
class LicensableFeatures:
    """Whether licensing applies to a device, and for which products the device can be licensed."""

    licensing_supported: bool
    features: tuple[LicensableFeature, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """A GPU, vGPU or iGPU of a node, with its MIG instances."""

    index: int
    kind: DeviceKind
    uuid: Maybe[str]
    # whether the UUID is permanent; a vGPU's UUID is not, so host and PCI bus id identify the vGPU
    uuid_is_stable: bool
    pci_bus_id: Maybe[str]
    name: str
    architecture: Maybe[str]
    compute_capability: Maybe[str]
    memory: Maybe[MemoryUse]
    max_video_clock_mhz: Maybe[int]  # the clock with which documented rates are scaled
    virtualization: Maybe[str]
    engines: tuple[EngineCount, ...]  # known counts only, from the driver or from trials
    use: DeviceUse
    health: Health
    mig: Maybe[MigReport]
    licences: Maybe[LicensableFeatures]  # absent unless this machine is a guest
    # facts for display, such as serial number, VBIOS, PCIe, power and temperature
    facts: dict[str, Maybe[str | int | float | bool]]

    @property
    def key(self) -> str:
        """The device's key in trials: its UUID or, without one, its number in NVML."""
        return known(self.uuid, str(self.index))

    @property
    def label(self) -> str:
        """The device's display name: "GPU 0 (NVIDIA H200)"."""
        return f"GPU {self.index} ({self.name})"

    @property
    def hosts_vgpus(self) -> bool:
        """Whether the GPU hosts vGPUs; its engines then belong to guests."""
        return self.virtualization == "host vgpu"

    @property
    def is_cut(self) -> bool:
        """Whether MIG is on; slices then replace the GPU as devices."""
        return not isinstance(self.mig, Unavailable) and self.mig.enabled

    @property
    def slices(self) -> tuple[MigSlice, ...]:
        """The GPU's MIG slices."""
        return () if isinstance(self.mig, Unavailable) else self.mig.slices

    def sharers_of(self, part: MigSlice) -> int:
        """Return how many compute instances share a slice's GPU instance, including the slice itself."""
        return sum(other.gpu_instance == part.gpu_instance for other in self.slices)
