"""Reports a GPU that hosts vGPUs: the vGPU types, which types can be created now, and the running vGPUs.

Documented in the vGPU Management SDK guide, chapter 2; not measured, because no vGPU host was available.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..nvml.calls import DeviceQuestions, NvmlLike, ask_named
from ..nvml.facts import read_structure
from ..report.absence import Absence, Maybe, Unavailable, known
from ..report.device_report import LicensableFeatures
from .buffers import with_safe_vgpu_calls
from .hosted import SCHEDULERS, VgpuHost
from .instances import NvmlValues, VgpuCompatibility, VgpuInstance, compatibility_of, probe_vgpus
from .licence import ask_licences
from .types import Creation, HostLoad, VgpuType, probe_vgpu_type, why_creatable

HOST = "host vgpu"
"""The virtualization mode of a GPU that hosts vGPUs (guide 2.1)."""
GPU_INSTANCES_MAX = 16
"""How many GPU instances of a profile the buffer can hold; no GPU has more than 8."""
_UNKNOWN_TYPE = Unavailable(Absence.NOT_FOUND, "the vGPU's type is not among those that the GPU supports")


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
    scheduler: Maybe[str]  # one of ``SCHEDULERS``
    # Whether a running vGPU can move to another GPU of this host. The keys are the vGPU's instance as text, then the
    # GPU's UUID.
    migrations: dict[str, dict[str, Maybe[VgpuCompatibility]]] = field(default_factory=dict)

    def seen_from(self, node: str) -> VgpuHost:
        """Return the values to join with reports of guests; ``node`` is the name of the host's node."""
        return VgpuHost(node, self.scheduler, known(self.active, ()))


def with_migrations(
    nvml: NvmlLike, handles: Mapping[str, object], hosts: Mapping[str, VgpuHostReport]
) -> dict[str, VgpuHostReport]:
    """Return copies of ``hosts`` in which ``migrations`` covers moves between these GPUs; keys are GPU UUIDs."""
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
    metadata = ask_named(questions.nvml, "nvmlDeviceGetVgpuMetadata", handle)
    active = probe_vgpus(questions, metadata)
    creatable = questions.ask("nvmlDeviceGetCreatableVgpus", read=_ids)
    load = _load(questions, types, known(active, ()))
    return VgpuHostReport(
        supported=supported,
        creatable=creatable,
        types=types,
        why_creatable={
            str(each.type_id): _with_driver(why_creatable(each, load), each.type_id, creatable) for each in types
        },
        active=active,
        metadata=metadata if isinstance(metadata, Unavailable) else _read_metadata(metadata),
        licences=ask_licences(questions),
        scheduler=ask_scheduler(questions),
    )


def _read_metadata(found: Any) -> NvmlValues:
    """Read the metadata of a host's GPU (``nvmlVgpuPgpuMetadata_t``)."""
    versions = found.hostSupportedVgpuRange
    return {
        **read_structure("host_metadata", found),
        "vgpu_version_min": int(versions.minVersion),
        "vgpu_version_max": int(versions.maxVersion),
    }


def _ids(found: list[int]) -> tuple[int, ...]:
    return tuple(map(int, found))


def ask_scheduler(questions: DeviceQuestions) -> Maybe[str]:
    """Query how a vGPU host divides a GPU's engines (guide 3.2), in words; older drivers do not answer."""
    return questions.ask("nvmlDeviceGetVgpuSchedulerState", read=lambda found: SCHEDULERS[found.schedulerPolicy])


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


def creatable_vgpus(questions: DeviceQuestions, running: int) -> dict[str, int]:
    """Return how many more vGPUs of each type can be created beside ``running`` vGPUs, by the name of the type."""
    creatable = known(questions.ask("nvmlDeviceGetCreatableVgpus", read=_ids), ())
    types = [probe_vgpu_type(questions, type_id) for type_id in creatable]
    # A GPU instance holds one vGPU. Elsewhere at least one more fits, because the driver lists the type.
    return {
        each.name: max(1, known(each.instances_max, 1) - running)
        if isinstance(each.gpu_instance_profile, Unavailable)
        else 1
        for each in types
        if isinstance(each.name, str)
    }
