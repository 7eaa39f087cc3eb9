"""NVML's values for vGPUs (vGPU Management SDK guide, 2 and 3). Utilisation is in percent of the whole GPU."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ..report.absence import Absence, Maybe, Unavailable
from ..report.device_report import CodecSession

NvmlValues: TypeAlias = dict[str, str | int | float | bool]
"""An NVML structure for display: the values under codecfleet's names."""


class Scheduler(Enum):
    """How the host divides the engines of a GPU among vGPUs, with the numbers in NVML."""

    UNKNOWN = 0
    BEST_EFFORT = 1
    EQUAL_SHARE = 2
    FIXED_SHARE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuType:
    """A kind of vGPU (guide 2.3)."""

    type_id: int
    vgpu_class: Maybe[str]
    name: Maybe[str]
    device_id: Maybe[NvmlValues]  # the four PCI numbers: vendor, device, subvendor, subsystem
    framebuffer_bytes: Maybe[int]
    display_heads: Maybe[int]
    resolution_max: Maybe[tuple[int, int]]  # the most pixels of a display head
    licence: Maybe[str]
    frame_rate_limit_fps: Maybe[int]
    instances_max: Maybe[int]  # how many vGPUs of this type fit on an empty GPU
    gpu_instance_profile: Maybe[int]  # the MIG profile of the GPU instance that the type needs
    nvlink_peer_to_peer: Maybe[bool]
    gpudirect: Maybe[bool]


@dataclass(frozen=True, slots=True)
class VmId:
    """The virtual machine of a vGPU; ``kind`` is "domain id" or "uuid"."""

    value: str
    kind: str


@dataclass(frozen=True, slots=True)
class VgpuUse:
    """How much a vGPU uses the engines of the physical GPU, in percent of the whole engine."""

    sm_percent: Maybe[int]
    memory_percent: Maybe[int]
    encoder_percent: Maybe[int]
    decoder_percent: Maybe[int]


@dataclass(frozen=True, slots=True)
class VgpuProcess:
    """How much a guest process uses the physical GPU; the pid is valid in the guest."""

    pid: int
    name: str
    use: VgpuUse


NO_MAXIMUM = Unavailable(Absence.NOT_FOUND, "the driver did not report how many processes its accounting keeps")


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuLoad:
    """How much a running vGPU uses the whole engines, with the ids of the vGPU (2.4)."""

    instance: int
    decoder_percent: Maybe[int]
    encoder_percent: Maybe[int]
    licensed: Maybe[bool]
    accounting: Maybe[bool]
    uuid: Maybe[str]
    machine: Maybe[str]  # the UUID of the virtual machine, or the hypervisor's number for it
    most: Maybe[int]  # how many vGPUs of this type fit on the GPU
    gpu_instance: Maybe[int]  # the MIG GPU instance of the vGPU


@dataclass(frozen=True, slots=True)
class AccountingStats:
    """How much a process used the GPU from start to end."""

    gpu_percent: Maybe[int]
    memory_percent: Maybe[int]
    memory_max_bytes: Maybe[int]
    active_ms: int
    started_us: int  # when the process started, as a time on the host's clock
    is_running: bool


@dataclass(frozen=True, slots=True)
class VgpuAccounting:
    """The processes that the driver's accounting remembers."""

    pids: tuple[int, ...]
    stats: dict[str, Maybe[AccountingStats]]  # the use of each process; keys are process ids as text
    # the most processes that the accounting remembers; older processes are dropped
    processes_max: Maybe[int] = NO_MAXIMUM


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


@dataclass(frozen=True, slots=True)
class VgpuCompatibility:
    """The states of the virtual machine in which a vGPU can move to a GPU, and the limits on the move."""

    states: tuple[str, ...]  # any of "cold", "hibernate", "sleep" and "live"
    limits: tuple[str, ...]  # any of "host driver", "guest driver", "GPU" and "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuInstance:
    """A vGPU that runs on this host (guide 2.4)."""

    instance: int  # NVML's handle of the vGPU
    type_id: Maybe[int]
    vm_id: Maybe[VmId]
    uuid: Maybe[str]
    mdev_uuid: Maybe[str]
    vm_driver_version: Maybe[str]
    framebuffer_used_bytes: Maybe[int]
    # moving averages over all frame buffer capture sessions, in the form of ``encoder_stats``
    fbc_stats: Maybe[NvmlValues]
    fbc_sessions: Maybe[tuple[NvmlValues, ...]]
    licensed: Maybe[bool]
    frame_rate_limit_fps: Maybe[int]
    encoder_stats: Maybe[NvmlValues]
    encoder_sessions: Maybe[tuple[CodecSession, ...]]
    use: Maybe[VgpuUse]
    processes: Maybe[tuple[VgpuProcess, ...]]
    accounting_enabled: Maybe[bool]
    accounting: Maybe[VgpuAccounting]
    metadata: Maybe[NvmlValues]
    compatibility: Maybe[VgpuCompatibility]
    gpu_instance: Maybe[int]
