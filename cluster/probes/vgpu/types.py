"""The kinds of vGPU that a GPU can host, and which of them can be created (vGPU Management SDK guide, 2.2 and 2.3)."""

from dataclasses import dataclass
from functools import partial

from ..nvml.calls import DeviceQuestions, answers, asked, read_text
from ..report.absence import Absence, Maybe, Unavailable

CAPABILITY_NVLINK_PEER_TO_PEER = 0
CAPABILITY_GPUDIRECT = 1
NO_PROFILE = 0xFFFFFFFF  # INVALID_GPU_INSTANCE_PROFILE_ID (guide 2.3)


def _read_device_id(pair: tuple[int, int]) -> dict[str, int]:
    """Split the two numbers from ``nvmlVgpuTypeGetDeviceID``; the low 16 bits of each number are the vendor."""
    (device, vendor), (subsystem, subvendor) = (divmod(number & 0xFFFFFFFF, 1 << 16) for number in pair)
    return {"vendor": vendor, "device": device, "subvendor": subvendor, "subsystem": subsystem}


def _read_profile(profile: int) -> Maybe[int]:
    if profile == NO_PROFILE:
        return Unavailable(Absence.DOES_NOT_APPLY, "the vGPU type is not backed by a MIG GPU instance")
    return int(profile)


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuType:
    """A kind of vGPU (guide 2.3)."""

    type_id: int
    vgpu_class: Maybe[str] = asked("nvmlVgpuTypeGetClass", read=read_text)
    name: Maybe[str] = asked("nvmlVgpuTypeGetName", read=read_text)
    device_id: Maybe[dict[str, int]] = asked("nvmlVgpuTypeGetDeviceID", read=_read_device_id)  # four PCI numbers
    framebuffer_bytes: Maybe[int] = asked("nvmlVgpuTypeGetFramebufferSize", read=int)
    display_heads: Maybe[int] = asked("nvmlVgpuTypeGetNumDisplayHeads", read=int)
    # the largest width and height of a display head, in pixels
    resolution_max: Maybe[tuple[int, int]] = asked("nvmlVgpuTypeGetResolution", read=lambda two: tuple(map(int, two)))
    licence: Maybe[str] = asked("nvmlVgpuTypeGetLicense", read=read_text)
    frame_rate_limit_fps: Maybe[int] = asked("nvmlVgpuTypeGetFrameRateLimit", read=int)
    instances_max: Maybe[int]  # how many vGPUs of this type fit on an empty GPU
    # the MIG profile of the GPU instance that the type needs
    gpu_instance_profile: Maybe[int] = asked("nvmlVgpuTypeGetGpuInstanceProfileId", read=_read_profile)
    nvlink_peer_to_peer: Maybe[bool] = asked("nvmlVgpuTypeGetCapabilities", CAPABILITY_NVLINK_PEER_TO_PEER, read=bool)
    gpudirect: Maybe[bool] = asked("nvmlVgpuTypeGetCapabilities", CAPABILITY_GPUDIRECT, read=bool)


def probe_vgpu_type(questions: DeviceQuestions, type_id: int) -> VgpuType:
    """Query every property of a vGPU type; never raises."""
    ask = partial(questions.ask_of, type_id)
    return answers(VgpuType, ask, type_id=type_id, instances_max=ask_instances_max(questions, type_id))


def ask_instances_max(questions: DeviceQuestions, type_id: int) -> Maybe[int]:
    """Query how many vGPUs of a type fit on an empty GPU."""
    return questions.ask("nvmlVgpuTypeGetMaxInstances", type_id, read=int)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLoad:
    """The facts that decide which vGPU types a GPU can create now."""

    running: tuple[Maybe[int], ...] = ()  # the frame buffer of each running vGPU, in bytes
    gpu_instances: Maybe[dict[int, int]] | None = None  # the profile of each MIG GPU instance; None if MIG is off
    taken: frozenset[int] = frozenset()  # GPU instances with a running vGPU


@dataclass(frozen=True, slots=True)
class Creation:
    """Whether a vGPU of one type can be created; ``reason`` is a sentence without a full stop."""

    creatable: bool
    reason: str


def why_creatable(wanted: VgpuType, load: HostLoad) -> Creation:
    """Return whether a vGPU type can be created on a GPU with this load, and why (guide 2.2).

    The caller prefers the driver's list (``nvmlDeviceGetCreatableVgpus``), because newer drivers can mix vGPU sizes.
    """
    if load.gpu_instances is None:
        return Creation(*_on_whole_gpu(wanted, load.running))
    return Creation(*_on_gpu_instances(wanted, load.gpu_instances, load.taken))


def _on_whole_gpu(wanted: VgpuType, running: tuple[Maybe[int], ...]) -> tuple[bool, str]:
    count, most = len(running), wanted.instances_max
    if not running:
        return True, "no vGPU runs on the GPU, so every supported type fits"
    if wanted.framebuffer_bytes not in running or isinstance(wanted.framebuffer_bytes, Unavailable):
        return False, "vGPUs with another amount of frame buffer run on the GPU already"
    if isinstance(most, Unavailable):
        return True, "vGPUs of this size run already; it is unknown how many fit"
    if count >= most:
        return False, f"the GPU is full: it takes {most} vGPUs of this size, and all run"
    return True, f"{count} of {most} vGPUs with the same frame buffer run"


def _on_gpu_instances(wanted: VgpuType, instances: Maybe[dict[int, int]], taken: frozenset[int]) -> tuple[bool, str]:
    if isinstance(wanted.gpu_instance_profile, Unavailable):
        return False, "MIG mode is on, and the type has no GPU instance profile"
    if isinstance(instances, Unavailable):
        return False, "MIG mode is on, and the GPU instances cannot be listed"
    if not instances:
        return False, "MIG mode is on, and no GPU instance has been created"
    free = {number: profile for number, profile in instances.items() if number not in taken}
    if not free:
        return False, "a vGPU runs on every GPU instance"
    fitting = next((number for number, profile in free.items() if profile == wanted.gpu_instance_profile), None)
    if fitting is None:
        return False, "no free GPU instance has the profile that the type takes"
    return True, f"GPU instance {fitting} has the type's profile and is free"
