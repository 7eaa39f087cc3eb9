"""vGPU types of a GPU (vGPU Management SDK guide, 2.3), and why one can or cannot be created now (2.2)."""

from dataclasses import dataclass
from functools import partial

from ..nvml.calls import DeviceQuestions, read_text
from ..report.absence import Absence, Maybe, Unavailable
from .values import VgpuDeviceId, VgpuType

CAPABILITY_NVLINK_PEER_TO_PEER = 0
CAPABILITY_GPUDIRECT = 1
NO_PROFILE = 0xFFFFFFFF


def read_device_id(pair: tuple[int, int]) -> VgpuDeviceId:
    """Split the two numbers of ``nvmlVgpuTypeGetDeviceID``: each holds the vendor in its low 16 bits."""
    device, subsystem = pair
    return VgpuDeviceId(device & 0xFFFF, device >> 16 & 0xFFFF, subsystem & 0xFFFF, subsystem >> 16 & 0xFFFF)


def read_profile(profile: int) -> Maybe[int]:
    """Return a vGPU type's GPU instance profile; INVALID_GPU_INSTANCE_PROFILE_ID is an absence (guide 2.3)."""
    if profile == NO_PROFILE:
        return Unavailable(Absence.DOES_NOT_APPLY, "the vGPU type is not backed by a MIG GPU instance")
    return profile


def probe_vgpu_type(questions: DeviceQuestions, type_id: int) -> VgpuType:
    """Ask for every property of one vGPU type (guide 2.3); never raises."""
    ask = partial(questions.ask_of, type_id)
    return VgpuType(
        type_id=type_id,
        vgpu_class=ask("nvmlVgpuTypeGetClass", read=read_text),
        name=ask("nvmlVgpuTypeGetName", read=read_text),
        device_id=ask("nvmlVgpuTypeGetDeviceID", read=read_device_id),
        framebuffer_bytes=ask("nvmlVgpuTypeGetFramebufferSize", read=int),
        display_heads=ask("nvmlVgpuTypeGetNumDisplayHeads", read=int),
        resolution_max=ask("nvmlVgpuTypeGetResolution", read=lambda pair: (int(pair[0]), int(pair[1]))),
        licence=ask("nvmlVgpuTypeGetLicense", read=read_text),
        frame_rate_limit_fps=ask("nvmlVgpuTypeGetFrameRateLimit", read=int),
        instances_max=questions.ask_of(questions.handle, "nvmlVgpuTypeGetMaxInstances", type_id, read=int),
        gpu_instance_profile=ask("nvmlVgpuTypeGetGpuInstanceProfileId", read=read_profile),
        nvlink_peer_to_peer=ask("nvmlVgpuTypeGetCapabilities", CAPABILITY_NVLINK_PEER_TO_PEER, read=bool),
        gpudirect=ask("nvmlVgpuTypeGetCapabilities", CAPABILITY_GPUDIRECT, read=bool),
    )


@dataclass(frozen=True, slots=True)
class RunningVgpu:
    """A vGPU that runs already. ``gpu_instance`` is the MIG GPU instance that it runs on, where there is one."""

    type_id: int
    framebuffer_bytes: Maybe[int]
    gpu_instance: int | None = None


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """A MIG GPU instance that has been created, and the profile it was created from."""

    gpu_instance: int
    profile: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """What decides which vGPU types can be created: MIG mode, what was cut, what runs."""

    mig_enabled: bool
    supported: tuple[int, ...]
    running: tuple[RunningVgpu, ...] = ()
    gpu_instances: Maybe[tuple[GpuInstance, ...]] = ()


@dataclass(frozen=True, slots=True)
class Creation:
    """Whether a vGPU of a type can be created, and why, in one sentence without a full stop."""

    creatable: bool
    reason: str


def why_creatable(wanted: VgpuType, load: HostLoad) -> Creation:
    """Return whether a vGPU type can be created on a GPU so loaded, and why (guide 2.2).

    NVML's own list (``nvmlDeviceGetCreatableVgpus``) decides: a driver that mixes sizes allows more than these rules.
    """
    if wanted.type_id not in load.supported:
        return Creation(creatable=False, reason="this GPU does not support the type")
    creatable, reason = (_on_gpu_instances if load.mig_enabled else _on_whole_gpu)(wanted, load)
    return Creation(creatable, reason)


def _on_whole_gpu(wanted: VgpuType, load: HostLoad) -> tuple[bool, str]:
    running, most = len(load.running), wanted.instances_max
    if not running:
        return True, "no vGPU runs on the GPU, so every supported type fits"
    sizes = {vgpu.framebuffer_bytes for vgpu in load.running}
    if wanted.framebuffer_bytes not in sizes or isinstance(wanted.framebuffer_bytes, Unavailable):
        return False, "vGPUs with another amount of frame buffer run on the GPU already"
    if isinstance(most, Unavailable):
        return True, "vGPUs of this size run already; nothing says how many fit"
    if running >= most:
        return False, f"the GPU is full: it takes {most} vGPUs of this size, and all run"
    return True, f"{running} of {most} vGPUs with the same frame buffer run"


def _on_gpu_instances(wanted: VgpuType, load: HostLoad) -> tuple[bool, str]:
    if isinstance(wanted.gpu_instance_profile, Unavailable):
        return False, "MIG mode is on, and the type has no GPU instance profile"
    if isinstance(load.gpu_instances, Unavailable):
        return False, "MIG mode is on, and its GPU instances cannot be listed"
    if not load.gpu_instances:
        return False, "MIG mode is on, and no GPU instance has been created"
    taken = {running.gpu_instance for running in load.running}
    free = [found for found in load.gpu_instances if found.gpu_instance not in taken]
    if not free:
        return False, "a vGPU runs on every GPU instance"
    fitting = next((found.gpu_instance for found in free if found.profile == wanted.gpu_instance_profile), None)
    if fitting is None:
        return False, "no free GPU instance has the profile that the type takes"
    return True, f"GPU instance {fitting} has its profile and is free"
