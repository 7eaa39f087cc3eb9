"""What NVML reports of vGPUs: memory in bytes, utilisation in percent of the physical GPU's capacity.

Source: vGPU Management SDK guide, chapters 2 and 3; NVML API Reference Manual for the structures' fields.
"""

from dataclasses import dataclass
from enum import Enum

from ..report.absence import Absence, Maybe, Unavailable
from ..report.device_report import CodecSession


class VirtualizationMode(Enum):
    """NVML's virtualization mode of a GPU, with NVML's own numbers."""

    NONE = 0  #: bare metal
    PASSTHROUGH = 1  #: the whole GPU belongs to this virtual machine
    VGPU = 2  #: this virtual machine sees a vGPU
    HOST_VGPU = 3  #: this machine hosts vGPUs on it
    HOST_VSGA = 4  #: this machine shares it as a software-mediated graphics device

    @property
    def text(self) -> str:
        """Return the words that ``DeviceReport.virtualization`` holds."""
        return self.name.lower().replace("_", " ")


def virtualization(mode: int) -> Maybe[VirtualizationMode]:
    """Name what ``nvmlDeviceGetVirtualizationMode`` returned; a mode that is newer than this table has no name."""
    try:
        return VirtualizationMode(mode)
    except ValueError:
        return Unavailable(Absence.NOT_SUPPORTED, f"virtualization mode {mode} has no name that we know")


class Scheduler(Enum):
    """How the host shares a GPU's engines out among its vGPUs, by NVML's numbers. A guest cannot ask for it."""

    UNKNOWN = 0
    BEST_EFFORT = 1
    EQUAL_SHARE = 2
    FIXED_SHARE = 3


@dataclass(frozen=True, slots=True)
class VgpuDeviceId:
    """The four PCI numbers of a vGPU type."""

    vendor: int
    device: int
    subvendor: int
    subsystem: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuType:
    """A kind of vGPU (guide 2.3). ``instances_max`` counts how many fit on an empty GPU.

    ``gpu_instance_profile`` is the MIG profile that it takes whole; ``resolution_max`` is in pixels of a display head.
    """

    type_id: int
    vgpu_class: Maybe[str]
    name: Maybe[str]
    device_id: Maybe[VgpuDeviceId]
    framebuffer_bytes: Maybe[int]
    display_heads: Maybe[int]
    resolution_max: Maybe[tuple[int, int]]
    licence: Maybe[str]
    frame_rate_limit_fps: Maybe[int]
    instances_max: Maybe[int]
    gpu_instance_profile: Maybe[int]
    nvlink_peer_to_peer: Maybe[bool]
    gpudirect: Maybe[bool]


@dataclass(frozen=True, slots=True)
class VmId:
    """The virtual machine that a vGPU belongs to; ``kind`` says what the value is: "domain id" or "uuid"."""

    value: str
    kind: str


@dataclass(frozen=True, slots=True)
class SessionStats:
    """All sessions of a vGPU's encoder or frame-buffer capture together; averages are moving ones."""

    sessions_open: int
    average_fps: int
    average_latency_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FbcSession:
    """One frame-buffer capture session. ``kind`` is "system memory", "cuda", "vid", "hardware encoder" or "unknown"."""

    session: int
    pid: int
    instance: int
    display: int
    kind: str
    flags: int
    width_max: int
    height_max: int
    width: int
    height: int
    average_fps: int
    average_latency_us: int


@dataclass(frozen=True, slots=True)
class VgpuUse:
    """What a vGPU takes of the physical GPU's engines, in percent of the whole engine."""

    sm_percent: Maybe[int]
    memory_percent: Maybe[int]
    encoder_percent: Maybe[int]
    decoder_percent: Maybe[int]


@dataclass(frozen=True, slots=True)
class VgpuProcess:
    """What one process of a guest takes of the physical GPU; the pid is the guest's own."""

    pid: int
    name: str
    use: VgpuUse


_NO_MAXIMUM = Unavailable(Absence.NOT_FOUND, "the driver did not say how many processes it remembers at most")
_NO_TYPE = Unavailable(Absence.NOT_FOUND, "the vGPU's type was not asked for")
_NO_NAME = Unavailable(Absence.NOT_FOUND, "it was not asked for")
_NO_INSTANCE = Unavailable(Absence.DOES_NOT_APPLY, "the vGPU has no GPU instance")


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuLoad:
    """A vGPU that runs on this host's GPU: what it takes of the whole engines, and what tells it from others (2.4)."""

    instance: int
    decoder_percent: Maybe[int]
    encoder_percent: Maybe[int]
    licensed: Maybe[bool]
    accounting: Maybe[bool]
    uuid: Maybe[str] = _NO_NAME
    machine: Maybe[str] = _NO_NAME  # the UUID of its virtual machine, or the hypervisor's number of it
    most: Maybe[int] = _NO_TYPE  # how many of its type fit on its GPU
    gpu_instance: Maybe[int] = _NO_INSTANCE  # that of MIG which it has for itself


@dataclass(frozen=True, slots=True)
class AccountingStats:
    """What a process of a vGPU used over its whole life; ``started_us`` is the host's clock since its epoch."""

    gpu_percent: Maybe[int]
    memory_percent: Maybe[int]
    memory_max_bytes: Maybe[int]
    active_ms: int
    started_us: int
    is_running: bool


@dataclass(frozen=True, slots=True)
class VgpuAccounting:
    """The processes that accounting remembers."""

    pids: tuple[int, ...]
    stats: dict[str, Maybe[AccountingStats]]  # by pid, written as text
    processes_max: Maybe[int] = _NO_MAXIMUM  # how many it remembers at most: then the oldest makes room


@dataclass(frozen=True, slots=True, kw_only=True)
class LicensableFeature:
    """A vGPU software product that can be licensed. ``expires_utc`` is "YYYY-MM-DD hh:mm:ss"."""

    code: int
    product: str
    is_licensed: bool
    is_enabled: bool
    licence_info: str
    expires_utc: Maybe[str]


@dataclass(frozen=True, slots=True)
class LicensableFeatures:
    """Whether licensing applies to a device at all, and the products that can be licensed on it."""

    licensing_supported: bool
    features: tuple[LicensableFeature, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuMetadata:
    """A vGPU and its virtual machine as migration sees them. ``guest_is_initialised``: its driver has reported in."""

    version: int
    revision: int
    guest_is_initialised: bool
    guest_driver_version: str
    host_driver_version: str
    virtualization_caps: int
    guest_vgpu_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMetadata:
    """A physical GPU as migration sees it, with the range of vGPU versions that its host takes."""

    version: int
    revision: int
    host_driver_version: str
    virtualization_caps: int
    vgpu_version_min: int
    vgpu_version_max: int


@dataclass(frozen=True, slots=True)
class VgpuCompatibility:
    """From which states of its machine a vGPU can run on a GPU, and what limits it.

    ``states``: "cold", "hibernate", "sleep", "live"; ``limits``: "host driver", "guest driver", "GPU", "other".
    """

    states: tuple[str, ...]
    limits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuInstance:
    """A vGPU that runs on this host's GPU (guide 2.4). ``instance`` is NVML's handle."""

    instance: int
    type_id: Maybe[int]
    vm_id: Maybe[VmId]
    uuid: Maybe[str]
    mdev_uuid: Maybe[str]
    vm_driver_version: Maybe[str]
    framebuffer_used_bytes: Maybe[int]
    fbc_stats: Maybe[SessionStats]
    fbc_sessions: Maybe[tuple[FbcSession, ...]]
    licensed: Maybe[bool]
    frame_rate_limit_fps: Maybe[int]
    encoder_stats: Maybe[SessionStats]
    encoder_sessions: Maybe[tuple[CodecSession, ...]]
    use: Maybe[VgpuUse]
    processes: Maybe[tuple[VgpuProcess, ...]]
    accounting_enabled: Maybe[bool]
    accounting: Maybe[VgpuAccounting]
    metadata: Maybe[VgpuMetadata]
    compatibility: Maybe[VgpuCompatibility]
    gpu_instance: Maybe[int]
