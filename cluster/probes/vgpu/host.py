"""Reports a GPU that hosts vGPUs: the vGPU types, which types can be created now, and the running vGPUs.

The source is the vGPU Management SDK guide, chapter 2. It was not measured, because no vGPU host was available.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from ..nvml.calls import DeviceQuestions, NvmlLike, ask_named, read_text
from ..report.absence import Absence, Maybe, Unavailable, known
from .buffers import with_safe_vgpu_calls
from .hosted import VgpuHost, scheduler_words
from .instances import (
    NOT_SAMPLED,
    ask_licences,
    compatibility_of,
    probe_vgpu_instance,
    probe_vgpu_samples,
    read_gpu_instance,
    read_host_metadata,
    read_vm_id,
)
from .values import (
    LicensableFeatures,
    NvmlValues,
    Scheduler,
    VgpuCompatibility,
    VgpuInstance,
    VgpuLoad,
    VgpuType,
    VgpuUse,
)

HOST = "host vgpu"
"""The virtualization mode of a GPU that hosts vGPUs (guide 2.1)."""
GPU_INSTANCES_MAX = 16
"""How many GPU instances of a profile the buffer can hold; no GPU has more than 8."""
CAPABILITY_NVLINK_PEER_TO_PEER = 0
CAPABILITY_GPUDIRECT = 1
NO_PROFILE = 0xFFFFFFFF  # INVALID_GPU_INSTANCE_PROFILE_ID (guide 2.3)
_UNKNOWN_TYPE = Unavailable(Absence.NOT_FOUND, "the vGPU's type is not among those that the GPU supports")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuHostReport:
    """The vGPUs and vGPU types of one physical GPU."""

    supported: tuple[int, ...]  # the ids of the vGPU types that the GPU supports
    creatable: Maybe[tuple[int, ...]]  # the ids of the vGPU types that can be created now
    types: tuple[VgpuType, ...]
    # The answer of the guide's rule for each type, unless the driver's list overrides it; keys are type ids as text.
    why_creatable: dict[str, Creation]
    active: Maybe[tuple[VgpuInstance, ...]]  # running vGPUs
    metadata: Maybe[NvmlValues]  # the GPU's metadata, for migration
    licences: Maybe[LicensableFeatures]
    scheduler: Maybe[Scheduler]
    # Whether a running vGPU can move to another GPU of this host. The keys are the vGPU's instance as text, then the
    # GPU's UUID.
    migrations: dict[str, dict[str, Maybe[VgpuCompatibility]]] = field(default_factory=dict)

    def seen_from(self, node: str) -> VgpuHost:
        """Return the values to join with reports of guests; ``node`` is the name of the host's node."""
        most = {found.type_id: found.instances_max for found in self.types}
        vgpus = tuple(_load_of(vgpu, most) for vgpu in known(self.active, ()))
        return VgpuHost(node, scheduler_words(self.scheduler), vgpus)


def _load_of(vgpu: VgpuInstance, most: Mapping[int, Maybe[int]]) -> VgpuLoad:
    use = vgpu.use
    return VgpuLoad(
        instance=vgpu.instance,
        decoder_percent=use if isinstance(use, Unavailable) else use.decoder_percent,
        encoder_percent=use if isinstance(use, Unavailable) else use.encoder_percent,
        licensed=vgpu.licensed,
        accounting=vgpu.accounting_enabled,
        uuid=vgpu.uuid,
        machine=vgpu.vm_id if isinstance(vgpu.vm_id, Unavailable) else vgpu.vm_id.value,
        most=vgpu.type_id if isinstance(vgpu.type_id, Unavailable) else most.get(vgpu.type_id, _UNKNOWN_TYPE),
        gpu_instance=vgpu.gpu_instance,
    )


def with_migrations(
    nvml: NvmlLike, handles: Mapping[str, object], hosts: Mapping[str, VgpuHostReport]
) -> dict[str, VgpuHostReport]:
    """Return copies of ``hosts`` that list the GPUs to which each host's vGPUs could move; keys are GPU UUIDs."""
    questions = DeviceQuestions(with_safe_vgpu_calls(nvml), None)
    gpus = {uuid: ask_named(questions.nvml, "nvmlDeviceGetVgpuMetadata", handles[uuid]) for uuid in hosts}
    found = {}
    for uuid, host in hosts.items():
        others = {each: metadata for each, metadata in gpus.items() if each != uuid}
        running = [vgpu.instance for vgpu in known(host.active, ())] if others else []
        own = {each: ask_named(questions.nvml, "nvmlVgpuInstanceGetMetadata", each) for each in running}
        migrations = {
            str(instance): {each: compatibility_of(questions, metadata, gpu) for each, gpu in others.items()}
            for instance, metadata in own.items()
        }
        found[uuid] = replace(host, migrations=migrations)
    return found


def probe_vgpu_host(nvml: NvmlLike, handle: object) -> Maybe[VgpuHostReport]:
    """Return the report of a GPU in the mode "host vgpu", or why the GPU hosts no vGPUs; never raises."""
    questions = DeviceQuestions(with_safe_vgpu_calls(nvml), handle)
    supported = questions.ask("nvmlDeviceGetSupportedVgpus", read=_ids)
    if isinstance(supported, Unavailable):
        return supported
    types = tuple(probe_vgpu_type(questions, type_id) for type_id in supported)
    samples = probe_vgpu_samples(questions)
    running = questions.ask("nvmlDeviceGetActiveVgpus", read=_ids)
    active = tuple(probe_vgpu_instance(questions, instance, samples) for instance in known(running, ()))
    creatable = questions.ask("nvmlDeviceGetCreatableVgpus", read=_ids)
    load, metadata = _load(questions, types, active), samples.metadata
    return VgpuHostReport(
        supported=supported,
        creatable=creatable,
        types=types,
        why_creatable={
            str(each.type_id): _with_driver(why_creatable(each, load), each.type_id, creatable) for each in types
        },
        active=running if isinstance(running, Unavailable) else active,
        metadata=metadata if isinstance(metadata, Unavailable) else read_host_metadata(metadata),
        licences=ask_licences(questions),
        scheduler=ask_scheduler(questions),
    )


def _ids(found: list[int]) -> tuple[int, ...]:
    return tuple(map(int, found))


def ask_scheduler(questions: DeviceQuestions) -> Maybe[Scheduler]:
    """Query a vGPU host's scheduler (guide 3.2); older drivers do not answer."""
    return questions.ask("nvmlDeviceGetVgpuSchedulerState", read=lambda found: Scheduler(found.schedulerPolicy))


def _load(questions: DeviceQuestions, types: tuple[VgpuType, ...], active: tuple[VgpuInstance, ...]) -> HostLoad:
    mig_enabled = questions.ask("nvmlDeviceGetMigMode", read=lambda modes: bool(modes[0]))
    sizes: dict[object, Maybe[int]] = {found.type_id: found.framebuffer_bytes for found in types}
    return HostLoad(
        running=tuple(sizes.get(vgpu.type_id, _UNKNOWN_TYPE) for vgpu in active),
        gpu_instances=_gpu_instances(questions, types) if known(mig_enabled, otherwise=False) else None,
        taken=frozenset(vgpu.gpu_instance for vgpu in active if not isinstance(vgpu.gpu_instance, Unavailable)),
    )


def _gpu_instances(questions: DeviceQuestions, types: tuple[VgpuType, ...]) -> Maybe[dict[int, int]]:
    found: dict[int, int] = {}
    for profile in sorted({each.gpu_instance_profile for each in types}, key=str):
        if isinstance(profile, Unavailable):
            continue
        handles, count = (ctypes.c_void_p * GPU_INSTANCES_MAX)(), ctypes.c_uint(GPU_INSTANCES_MAX)
        answer = questions.ask("nvmlDeviceGetGpuInstances", profile, handles, ctypes.byref(count), read=bool)
        if isinstance(answer, Unavailable):
            return answer
        for handle in map(ctypes.c_void_p, handles[: count.value]):
            number = questions.ask_of(handle, "nvmlGpuInstanceGetInfo", read=lambda info: int(info.id))
            found |= {} if isinstance(number, Unavailable) else {number: profile}
    return found


def _with_driver(ruled: Creation, type_id: int, creatable: Maybe[tuple[int, ...]]) -> Creation:
    if isinstance(creatable, Unavailable) or ruled.creatable == (type_id in creatable):
        return ruled
    answer = "lists the type as creatable" if type_id in creatable else "does not list the type as creatable"
    return Creation(not ruled.creatable, f"{ruled.reason}, but the driver {answer}")


def running_vgpus(questions: DeviceQuestions) -> tuple[VgpuLoad, ...]:
    """Return the vGPUs that run on a GPU, with few queries; never raises."""
    samples = known(probe_vgpu_samples(questions).use, {})
    return tuple(
        _running(questions, instance, samples)
        for instance in known(questions.ask("nvmlDeviceGetActiveVgpus", read=_ids), ())
    )


def _running(questions: DeviceQuestions, instance: int, samples: Mapping[int, VgpuUse]) -> VgpuLoad:
    ask, use = partial(questions.ask_of, instance), samples.get(instance)
    type_id: Maybe[int] = ask("nvmlVgpuInstanceGetType", read=int)
    return VgpuLoad(
        instance=instance,
        decoder_percent=NOT_SAMPLED if use is None else use.decoder_percent,
        encoder_percent=NOT_SAMPLED if use is None else use.encoder_percent,
        licensed=ask("nvmlVgpuInstanceGetLicenseStatus", read=bool),
        accounting=ask("nvmlVgpuInstanceGetAccountingMode", read=bool),
        uuid=ask("nvmlVgpuInstanceGetUUID", read=read_text),
        machine=ask("nvmlVgpuInstanceGetVmID", read=lambda found: read_vm_id(found).value),
        most=type_id if isinstance(type_id, Unavailable) else _most(questions, type_id),
        gpu_instance=read_gpu_instance(questions, instance),
    )


def creatable_vgpus(questions: DeviceQuestions, running: int) -> dict[str, int]:
    """Return how many more vGPUs of each type can be created, by the name of the type."""
    found = {}
    for type_id in known(questions.ask("nvmlDeviceGetCreatableVgpus", read=_ids), ()):
        name: Maybe[str] = questions.ask_of(type_id, "nvmlVgpuTypeGetName", read=read_text)
        most = known(_most(questions, type_id), 1) - running
        if isinstance(name, str):
            found[name] = max(1, most) if isinstance(_profile(questions, type_id), Unavailable) else 1
    return found


def _read_device_id(pair: tuple[int, int]) -> NvmlValues:
    """Split the two numbers from ``nvmlVgpuTypeGetDeviceID``; the low 16 bits of each number are the vendor."""
    (device, vendor), (subsystem, subvendor) = (divmod(number & 0xFFFFFFFF, 1 << 16) for number in pair)
    return {"vendor": vendor, "device": device, "subvendor": subvendor, "subsystem": subsystem}


def _profile(questions: DeviceQuestions, type_id: int) -> Maybe[int]:
    profile: Maybe[int] = questions.ask_of(type_id, "nvmlVgpuTypeGetGpuInstanceProfileId", read=int)
    if profile == NO_PROFILE:
        return Unavailable(Absence.DOES_NOT_APPLY, "the vGPU type is not backed by a MIG GPU instance")
    return profile


def _most(questions: DeviceQuestions, type_id: int) -> Maybe[int]:
    return questions.ask("nvmlVgpuTypeGetMaxInstances", type_id, read=int)


def probe_vgpu_type(questions: DeviceQuestions, type_id: int) -> VgpuType:
    """Query every property of a vGPU type (guide 2.3); never raises."""
    ask = partial(questions.ask_of, type_id)
    return VgpuType(
        type_id=type_id,
        vgpu_class=ask("nvmlVgpuTypeGetClass", read=read_text),
        name=ask("nvmlVgpuTypeGetName", read=read_text),
        device_id=ask("nvmlVgpuTypeGetDeviceID", read=_read_device_id),
        framebuffer_bytes=ask("nvmlVgpuTypeGetFramebufferSize", read=int),
        display_heads=ask("nvmlVgpuTypeGetNumDisplayHeads", read=int),
        resolution_max=ask("nvmlVgpuTypeGetResolution", read=lambda pair: (int(pair[0]), int(pair[1]))),
        licence=ask("nvmlVgpuTypeGetLicense", read=read_text),
        frame_rate_limit_fps=ask("nvmlVgpuTypeGetFrameRateLimit", read=int),
        instances_max=_most(questions, type_id),
        gpu_instance_profile=_profile(questions, type_id),
        nvlink_peer_to_peer=ask("nvmlVgpuTypeGetCapabilities", CAPABILITY_NVLINK_PEER_TO_PEER, read=bool),
        gpudirect=ask("nvmlVgpuTypeGetCapabilities", CAPABILITY_GPUDIRECT, read=bool),
    )


def why_creatable(wanted: VgpuType, load: HostLoad) -> Creation:
    """Return whether a vGPU type can be created on a GPU with this load, and why (guide 2.2).

    The driver's list (``nvmlDeviceGetCreatableVgpus``) overrides the answer, because newer drivers can mix sizes.
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
        return False, "MIG mode is on, and its GPU instances cannot be listed"
    if not instances:
        return False, "MIG mode is on, and no GPU instance has been created"
    free = {number: profile for number, profile in instances.items() if number not in taken}
    if not free:
        return False, "a vGPU runs on every GPU instance"
    fitting = next((number for number, profile in free.items() if profile == wanted.gpu_instance_profile), None)
    if fitting is None:
        return False, "no free GPU instance has the profile that the type takes"
    return True, f"GPU instance {fitting} has its profile and is free"
