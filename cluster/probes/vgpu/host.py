"""A GPU that hosts vGPUs, as its host sees it: whether it can, which types it offers, which vGPUs run.

From the vGPU Management SDK guide, chapter 2. Documented, not measured: no host of vGPUs was at hand. GPUs that are
passed through to a guest are not the host's to manage (chapter 2): only their guest sees them.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..nvml.calls import DeviceQuestions, NvmlLike, ask_named
from ..report.absence import Absence, Maybe, Unavailable, known
from .buffers import VgpuNvml
from .hosted import VgpuHost, scheduler_words
from .instances import (
    compatibility_of,
    probe_vgpu_instance,
    probe_vgpu_samples,
    read_host_metadata,
    read_licensable_features,
)
from .types import Creation, GpuInstance, HostLoad, RunningVgpu, probe_vgpu_type, why_creatable
from .values import (
    HostMetadata,
    LicensableFeatures,
    Scheduler,
    VgpuCompatibility,
    VgpuInstance,
    VgpuLoad,
    VgpuType,
    VirtualizationMode,
    virtualization,
)

GPU_INSTANCES_MAX = 16
"""Room for the GPU instances of one profile; no GPU cuts more than 8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuHostReport:
    """The vGPUs of one physical GPU, and its types by NVML's ids."""

    supported: tuple[int, ...]
    creatable: Maybe[tuple[int, ...]]
    types: tuple[VgpuType, ...]
    why_creatable: dict[
        str, Creation
    ]  # by type id, as text: the guide's rule, corrected where the driver's list differs
    active: Maybe[tuple[VgpuInstance, ...]]
    metadata: Maybe[HostMetadata]
    licences: Maybe[LicensableFeatures]
    scheduler: Maybe[Scheduler]
    # By a running vGPU's instance, as text, and the UUID of each other GPU here that hosts vGPUs: may it move there?
    migrations: dict[str, dict[str, Maybe[VgpuCompatibility]]] = field(default_factory=dict)

    def seen_from(self, node: str) -> VgpuHost:
        """Return it as its guests are joined with; ``node`` is its machine's name."""
        most = {found.type_id: found.instances_max for found in self.types}
        scheduler = self.scheduler if isinstance(self.scheduler, Unavailable) else scheduler_words(self.scheduler)
        return VgpuHost(node, scheduler, tuple(_load_of(vgpu, most) for vgpu in known(self.active, ())))


def _load_of(vgpu: VgpuInstance, most: Mapping[int, Maybe[int]]) -> VgpuLoad:
    use, unknown = vgpu.use, Unavailable(Absence.NOT_FOUND, "the vGPU's type is not among those that the GPU supports")
    return VgpuLoad(
        instance=vgpu.instance,
        decoder_percent=use if isinstance(use, Unavailable) else use.decoder_percent,
        encoder_percent=use if isinstance(use, Unavailable) else use.encoder_percent,
        licensed=vgpu.licensed,
        accounting=vgpu.accounting_enabled,
        uuid=vgpu.uuid,
        machine=vgpu.vm_id if isinstance(vgpu.vm_id, Unavailable) else vgpu.vm_id.value,
        most=vgpu.type_id if isinstance(vgpu.type_id, Unavailable) else most.get(vgpu.type_id, unknown),
        gpu_instance=vgpu.gpu_instance,
    )


def with_migrations(
    nvml: NvmlLike, handles: Mapping[str, object], hosts: Mapping[str, VgpuHostReport]
) -> dict[str, VgpuHostReport]:
    """Return a machine's hosts of vGPUs, each with where its vGPUs could go on; both maps are by the GPU's UUID."""
    safe = VgpuNvml(nvml)
    metadata = {
        uuid: ask_named(safe, "nvmlDeviceGetVgpuMetadata", handle) for uuid, handle in handles.items() if uuid in hosts
    }
    return {
        uuid: replace(
            host, migrations=_migrations(safe, host, {each: metadata[each] for each in hosts if each != uuid})
        )
        for uuid, host in hosts.items()
    }


def _migrations(
    nvml: NvmlLike, host: VgpuHostReport, others: Mapping[str, Any]
) -> dict[str, dict[str, Maybe[VgpuCompatibility]]]:
    if not others:
        return {}
    questions = DeviceQuestions(nvml, None)
    found = {}
    for vgpu in known(host.active, ()):
        own = questions.ask_of(vgpu.instance, "nvmlVgpuInstanceGetMetadata", read=lambda answer: answer)
        found[str(vgpu.instance)] = {uuid: compatibility_of(questions, own, gpu) for uuid, gpu in others.items()}
    return found


def can_host_vgpus(mode: Maybe[VirtualizationMode]) -> Unavailable | None:
    """Return why a GPU in this mode hosts no vGPUs, or None where it can (guide 2.1)."""
    if isinstance(mode, Unavailable):
        return mode
    reason = f"the GPU hosts no vGPUs: its virtualization mode is {mode.text}"
    return None if mode is VirtualizationMode.HOST_VGPU else Unavailable(Absence.DOES_NOT_APPLY, reason)


def probe_vgpu_host(nvml: NvmlLike, handle: object) -> Maybe[VgpuHostReport]:
    """Return what NVML reports of the vGPUs of one GPU, or why it hosts none; never raises."""
    questions = DeviceQuestions(VgpuNvml(nvml), handle)
    if absence := can_host_vgpus(questions.ask("nvmlDeviceGetVirtualizationMode", read=virtualization)):
        return absence
    supported = questions.ask("nvmlDeviceGetSupportedVgpus", read=_ids)
    if isinstance(supported, Unavailable):
        return supported
    types = tuple(probe_vgpu_type(questions, type_id) for type_id in supported)
    samples = probe_vgpu_samples(questions)
    handles = questions.ask("nvmlDeviceGetActiveVgpus", read=_ids)
    active = (
        handles
        if isinstance(handles, Unavailable)
        else tuple(probe_vgpu_instance(questions, instance, samples) for instance in handles)
    )
    creatable = questions.ask("nvmlDeviceGetCreatableVgpus", read=_ids)
    load = _load(questions, types, supported, known(active, ()))
    return VgpuHostReport(
        supported=supported,
        creatable=creatable,
        types=types,
        why_creatable={
            str(each.type_id): _with_driver(why_creatable(each, load), each.type_id, creatable) for each in types
        },
        active=active,
        metadata=(
            samples.metadata if isinstance(samples.metadata, Unavailable) else read_host_metadata(samples.metadata)
        ),
        licences=questions.ask("nvmlDeviceGetGridLicensableFeatures", read=read_licensable_features),
        # Not in the guide's tables: later drivers tell the host what its guests need to read their percentages (3.2).
        scheduler=questions.ask("nvmlDeviceGetVgpuSchedulerState", read=lambda found: Scheduler(found.schedulerPolicy)),
    )


def _ids(found: list[int]) -> tuple[int, ...]:
    return tuple(int(number) for number in found)


def _load(
    questions: DeviceQuestions,
    types: tuple[VgpuType, ...],
    supported: tuple[int, ...],
    active: tuple[VgpuInstance, ...],
) -> HostLoad:
    mig_enabled = questions.ask("nvmlDeviceGetMigMode", read=lambda modes: bool(modes[0]))
    sizes = {found.type_id: found.framebuffer_bytes for found in types}
    unknown = Unavailable(Absence.NOT_FOUND, "the vGPU's type is not among those that the GPU supports")
    return HostLoad(
        mig_enabled=known(mig_enabled, otherwise=False),
        supported=supported,
        running=tuple(
            RunningVgpu(
                known(vgpu.type_id, -1),
                unknown if isinstance(vgpu.type_id, Unavailable) else sizes.get(vgpu.type_id, unknown),
                None if isinstance(vgpu.gpu_instance, Unavailable) else vgpu.gpu_instance,
            )
            for vgpu in active
        ),
        gpu_instances=_gpu_instances(questions, types) if known(mig_enabled, otherwise=False) else (),
    )


def _gpu_instances(questions: DeviceQuestions, types: tuple[VgpuType, ...]) -> Maybe[tuple[GpuInstance, ...]]:
    found: list[GpuInstance] = []
    for profile in sorted({each.gpu_instance_profile for each in types}, key=str):
        if isinstance(profile, Unavailable):
            continue
        instances = _instances_of(questions, profile)
        if isinstance(instances, Unavailable):
            return instances
        found += [GpuInstance(gpu_instance, profile) for gpu_instance in instances]
    return tuple(found)


def _instances_of(questions: DeviceQuestions, profile: int) -> Maybe[tuple[int, ...]]:
    handles = (ctypes.c_void_p * GPU_INSTANCES_MAX)()
    count = ctypes.c_uint(GPU_INSTANCES_MAX)
    answer = questions.ask("nvmlDeviceGetGpuInstances", profile, handles, ctypes.byref(count), read=bool)
    if isinstance(answer, Unavailable):
        return answer
    asked = (
        questions.ask_of(ctypes.c_void_p(handle), "nvmlGpuInstanceGetInfo", read=lambda info: int(info.id))
        for handle in handles[: count.value]
    )
    return tuple(found for found in asked if not isinstance(found, Unavailable))


def _with_driver(ruled: Creation, type_id: int, creatable: Maybe[tuple[int, ...]]) -> Creation:
    if isinstance(creatable, Unavailable) or ruled.creatable == (type_id in creatable):
        return ruled
    said = "lists the type as creatable" if type_id in creatable else "does not list the type as creatable"
    return Creation(not ruled.creatable, f"{ruled.reason}, but the driver {said}")
