"""vGPUs that run on a host's GPU: every property that NVML tells of each.

From the vGPU Management SDK guide, 2.4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ..nvml.calls import DeviceQuestions, read_text
from ..nvml.use import read_sessions
from ..report.absence import Absence, Maybe, Unavailable
from .read import (
    read_accounting,
    read_compatibility,
    read_encoder_stats,
    read_fbc_sessions,
    read_fbc_stats,
    read_metadata,
    read_process_utilisation,
    read_utilisation,
    read_vm_driver,
    read_vm_id,
)
from .values import VgpuAccounting, VgpuCompatibility, VgpuInstance, VgpuProcess, VgpuUse

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HostSamples:
    """What NVML tells for all vGPUs of a GPU at once, by instance; ``metadata`` is NVML's own structure of the GPU."""

    use: Maybe[dict[int, VgpuUse]]
    processes: Maybe[dict[int, tuple[VgpuProcess, ...]]]
    metadata: Any


def probe_vgpu_samples(questions: DeviceQuestions, since_us: int = 0) -> HostSamples:
    """Ask for what all vGPUs share: utilisation since a time of NVML's clock, and the GPU's metadata; never raises."""
    return HostSamples(
        use=questions.ask("nvmlDeviceGetVgpuUtilization", since_us, read=read_utilisation),
        processes=questions.ask("nvmlDeviceGetVgpuProcessUtilization", since_us, read=read_process_utilisation),
        metadata=questions.ask("nvmlDeviceGetVgpuMetadata", read=_itself),
    )


def probe_vgpu_instance(questions: DeviceQuestions, instance: int, samples: HostSamples) -> VgpuInstance:
    """Ask for every property of one running vGPU (guide 2.4); never raises.

    ``questions`` must be over a ``VgpuNvml``: the plain binding calls some of these with buffers that do not fit.
    """
    ask = partial(questions.ask_of, instance)
    metadata = ask("nvmlVgpuInstanceGetMetadata", read=_itself)
    return VgpuInstance(
        instance=instance,
        type_id=ask("nvmlVgpuInstanceGetType", read=int),
        vm_id=ask("nvmlVgpuInstanceGetVmID", read=read_vm_id),
        uuid=ask("nvmlVgpuInstanceGetUUID", read=read_text),
        mdev_uuid=ask("nvmlVgpuInstanceGetMdevUUID", read=read_text),
        vm_driver_version=ask("nvmlVgpuInstanceGetVmDriverVersion", read=read_vm_driver),
        framebuffer_used_bytes=ask("nvmlVgpuInstanceGetFbUsage", read=int),
        fbc_stats=ask("nvmlVgpuInstanceGetFBCStats", read=read_fbc_stats),
        fbc_sessions=ask("nvmlVgpuInstanceGetFBCSessions", read=read_fbc_sessions),
        licensed=ask("nvmlVgpuInstanceGetLicenseStatus", read=bool),
        frame_rate_limit_fps=ask("nvmlVgpuInstanceGetFrameRateLimit", read=int),
        encoder_stats=ask("nvmlVgpuInstanceGetEncoderStats", read=read_encoder_stats),
        encoder_sessions=ask("nvmlVgpuInstanceGetEncoderSessions", read=read_sessions),
        use=_sample(samples.use, instance, None),
        processes=_sample(samples.processes, instance, ()),
        accounting_enabled=ask("nvmlVgpuInstanceGetAccountingMode", read=bool),
        accounting=_accounting(questions, instance),
        metadata=metadata if isinstance(metadata, Unavailable) else read_metadata(metadata),
        compatibility=_compatibility(questions, metadata, samples.metadata),
        gpu_instance=ask("nvmlVgpuInstanceGetGpuInstanceId", read=int),
    )


def _itself(value: Any) -> Any:
    return value


def _sample(samples: Maybe[Mapping[int, T]], instance: int, nothing: T | None) -> Maybe[T]:
    if isinstance(samples, Unavailable):
        return samples
    found = samples.get(instance, nothing)
    if found is None:
        return Unavailable(Absence.NOT_FOUND, "the driver has not sampled this vGPU yet")
    return found


def _accounting(questions: DeviceQuestions, instance: int) -> Maybe[VgpuAccounting]:
    pids = questions.ask_of(instance, "nvmlVgpuInstanceGetAccountingPids", read=tuple[int, ...])
    if isinstance(pids, Unavailable):
        return pids
    ask = partial(questions.ask_of, instance, "nvmlVgpuInstanceGetAccountingStats")
    return VgpuAccounting(pids, {str(pid): ask(pid, read=read_accounting) for pid in pids})


def _compatibility(questions: DeviceQuestions, metadata: Any, host_metadata: Any) -> Maybe[VgpuCompatibility]:
    for found in (metadata, host_metadata):
        if isinstance(found, Unavailable):
            return found
    return questions.ask_of(metadata, "nvmlGetVgpuCompatibility", host_metadata, read=read_compatibility)
