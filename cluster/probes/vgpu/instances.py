"""vGPUs that run on a host's GPU: every property that NVML reports of each, read into our values.

From the vGPU Management SDK guide, 2.4; fields and codes are those of the NVML API Reference Manual. A number with all
its bits set is NVML's way of saying that it has no value.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from ..nvml.calls import DeviceQuestions, read_text
from ..nvml.use import read_sessions
from ..report.absence import Absence, Maybe, Unavailable
from .values import (
    AccountingStats,
    FbcSession,
    HostMetadata,
    LicensableFeature,
    LicensableFeatures,
    SessionStats,
    VgpuAccounting,
    VgpuCompatibility,
    VgpuInstance,
    VgpuMetadata,
    VgpuProcess,
    VgpuUse,
    VmId,
)

T = TypeVar("T")

NO_VALUE_32 = 0xFFFFFFFF
NO_VALUE_64 = 0xFFFFFFFFFFFFFFFF
PERCENT_MAX = 100

VM_ID_KINDS = {0: "domain id", 1: "uuid"}
FBC_KINDS = {1: "system memory", 2: "cuda", 3: "vid", 4: "hardware encoder"}
VM_STATES = {0x1: "cold", 0x2: "hibernate", 0x4: "sleep", 0x8: "live"}
LIMITS = {0x1: "host driver", 0x2: "guest driver", 0x4: "GPU", 0x80000000: "other"}
EXPIRY_VALID = 2
EXPIRY_WORDS = {
    0: "the driver does not say when the licence expires",
    1: "the driver could not read when the licence expires",
    3: "this product has no licence that could expire",
    4: "the licence never expires",
}
_FROM_US: Final = 0
"""On NVML's clock: every sample that it has kept."""


@dataclass(frozen=True, slots=True)
class HostSamples:
    """What NVML reports for all vGPUs of a GPU at once, by instance; ``metadata`` is NVML's structure of the GPU."""

    use: Maybe[dict[int, VgpuUse]]
    processes: Maybe[dict[int, tuple[VgpuProcess, ...]]]
    metadata: Any


def probe_vgpu_samples(questions: DeviceQuestions) -> HostSamples:
    """Ask for what all vGPUs share: all samples of utilisation, and the GPU's metadata; never raises."""
    return HostSamples(
        use=questions.ask("nvmlDeviceGetVgpuUtilization", _FROM_US, read=read_utilisation),
        processes=questions.ask("nvmlDeviceGetVgpuProcessUtilization", _FROM_US, read=read_process_utilisation),
        metadata=questions.ask("nvmlDeviceGetVgpuMetadata", read=lambda found: found),
    )


def probe_vgpu_instance(questions: DeviceQuestions, instance: int, samples: HostSamples) -> VgpuInstance:
    """Ask a ``VgpuNvml`` for every property of one running vGPU (guide 2.4); never raises."""
    ask = partial(questions.ask_of, instance)
    metadata = ask("nvmlVgpuInstanceGetMetadata", read=lambda found: found)
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
        encoder_stats=ask("nvmlVgpuInstanceGetEncoderStats", read=lambda stats: SessionStats(*map(int, stats))),
        encoder_sessions=ask("nvmlVgpuInstanceGetEncoderSessions", read=read_sessions),
        use=_sample(samples.use, instance, None),
        processes=_sample(samples.processes, instance, ()),
        accounting_enabled=ask("nvmlVgpuInstanceGetAccountingMode", read=bool),
        accounting=_accounting(questions, instance),
        metadata=metadata if isinstance(metadata, Unavailable) else read_metadata(metadata),
        compatibility=compatibility_of(questions, metadata, samples.metadata),
        gpu_instance=read_gpu_instance(questions, instance),
    )


def read_gpu_instance(questions: DeviceQuestions, instance: int) -> Maybe[int]:
    """Return the MIG GPU instance that a vGPU has for itself; a time-sliced one has none."""
    found: Maybe[int] = questions.ask_of(instance, "nvmlVgpuInstanceGetGpuInstanceId", read=int)
    if found == NO_VALUE_32:
        return Unavailable(Absence.DOES_NOT_APPLY, "the vGPU has no GPU instance")
    return found


def _sample(samples: Maybe[Mapping[int, T]], instance: int, nothing: T | None) -> Maybe[T]:
    if isinstance(samples, Unavailable):
        return samples
    found = samples.get(instance, nothing)
    if found is None:
        return Unavailable(Absence.NOT_FOUND, "the driver has not sampled this vGPU yet")
    return found


def _accounting(questions: DeviceQuestions, instance: int) -> Maybe[VgpuAccounting]:
    found = questions.ask_of(instance, "nvmlVgpuInstanceGetAccountingPids", read=lambda found: found)
    if isinstance(found, Unavailable):
        return found
    processes_max, pids = found
    ask = partial(questions.ask_of, instance, "nvmlVgpuInstanceGetAccountingStats")
    return VgpuAccounting(pids, {str(pid): ask(pid, read=read_accounting) for pid in pids}, processes_max)


def compatibility_of(questions: DeviceQuestions, metadata: Any, host_metadata: Any) -> Maybe[VgpuCompatibility]:
    """Return whether a vGPU could run on a GPU, by NVML's own structures of both, or why one is not known."""
    if isinstance(absent := metadata, Unavailable) or isinstance(absent := host_metadata, Unavailable):
        return absent
    return questions.ask_of(metadata, "nvmlGetVgpuCompatibility", host_metadata, read=read_compatibility)


def read_vm_id(answer: tuple[str, int]) -> VmId:
    """Return a virtual machine's id with its kind in words."""
    value, kind = answer
    return VmId(read_text(value), VM_ID_KINDS.get(kind, f"kind {kind}"))


def read_vm_driver(version: bytes | str) -> Maybe[str]:
    """Return the guest's driver version; NVML writes "Not Available" until the guest has loaded one."""
    text = read_text(version)
    if text in ("", "Not Available"):
        return Unavailable(Absence.NOT_FOUND, "the guest has not loaded an NVIDIA driver")
    return text


def read_fbc_stats(stats: Any) -> SessionStats:
    """Read ``nvmlFBCStats_t``."""
    return SessionStats(int(stats.sessionsCount), int(stats.averageFPS), int(stats.averageLatency))


def read_fbc_sessions(sessions: Iterable[Any]) -> tuple[FbcSession, ...]:
    """Read ``nvmlFBCSession_t``, one per session: all twelve values of guide 2.4."""
    return tuple(
        FbcSession(
            session=int(found.sessionId),
            pid=int(found.pid),
            instance=int(found.vgpuInstance),
            display=int(found.displayOrdinal),
            kind=FBC_KINDS.get(int(found.sessionType), "unknown"),
            flags=int(found.sessionFlags),
            width_max=int(found.hMaxResolution),
            height_max=int(found.vMaxResolution),
            width=int(found.hResolution),
            height=int(found.vResolution),
            average_fps=int(found.averageFPS),
            average_latency_us=int(found.averageLatency),
        )
        for found in sessions
    )


def read_utilisation(samples: Iterable[Any]) -> dict[int, VgpuUse]:
    """Return the newest sample of each vGPU, by its instance; NVML gives all samples, in no promised order."""
    newest = {sample.vgpuInstance: sample for sample in sorted(samples, key=lambda sample: int(sample.timeStamp))}
    return {int(instance): _use(sample) for instance, sample in newest.items()}


def read_process_utilisation(samples: Iterable[Any]) -> dict[int, tuple[VgpuProcess, ...]]:
    """Return the newest sample of each process, grouped by vGPU instance."""
    ordered = sorted(samples, key=lambda sample: int(sample.timeStamp))
    newest = {(int(sample.vgpuInstance), int(sample.pid)): sample for sample in ordered}
    found: dict[int, list[VgpuProcess]] = {}
    for (instance, pid), sample in sorted(newest.items()):
        found.setdefault(instance, []).append(VgpuProcess(pid, read_text(sample.processName), _use(sample)))
    return {instance: tuple(processes) for instance, processes in found.items()}


def _use(sample: Any) -> VgpuUse:
    return VgpuUse(*(_percent(value) for value in (sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil)))


def _percent(value: Any) -> Maybe[int]:
    # Per vGPU it is a union, read as its unsigned int (documented, not measured: the binding drops the type that NVML
    # names beside it); per process a plain number.
    percent = int(getattr(value, "uiVal", value))
    if percent > PERCENT_MAX:
        return Unavailable(Absence.NOT_FOUND, "the driver has no sample of this engine")
    return percent


def read_accounting(stats: Any) -> AccountingStats:
    """Read ``nvmlAccountingStats_t``; what a GPU cannot account for has all its bits set."""
    return AccountingStats(
        gpu_percent=_accounted(int(stats.gpuUtilization), NO_VALUE_32),
        memory_percent=_accounted(int(stats.memoryUtilization), NO_VALUE_32),
        memory_max_bytes=_accounted(int(stats.maxMemoryUsage), NO_VALUE_64),
        active_ms=int(stats.time),
        started_us=int(stats.startTime),
        is_running=bool(stats.isRunning),
    )


def _accounted(value: int, nothing: int) -> Maybe[int]:
    if value == nothing:
        return Unavailable(Absence.NOT_SUPPORTED, "this GPU does not account for it")
    return value


def read_licensable_features(found: Any) -> LicensableFeatures:
    """Read ``nvmlGridLicensableFeatures_t``: whether licensing applies, and each product with state and expiry."""
    count = min(int(found.licensableFeaturesCount), len(found.gridLicensableFeatures))
    return LicensableFeatures(
        bool(found.isGridLicenseSupported),
        tuple(_feature(feature) for feature in list(found.gridLicensableFeatures)[:count]),
    )


def _feature(feature: Any) -> LicensableFeature:
    return LicensableFeature(
        code=int(feature.featureCode),
        product=read_text(feature.productName),
        is_licensed=bool(feature.featureState),
        is_enabled=bool(feature.featureEnabled),
        licence_info=read_text(feature.licenseInfo),
        expires_utc=_expiry(feature.licenseExpiry),
    )


def _expiry(expiry: Any) -> Maybe[str]:
    status = int(expiry.status)
    if status != EXPIRY_VALID:
        reason = EXPIRY_WORDS.get(status, f"expiry status {status} has no meaning that we know")
        return Unavailable(Absence.NOT_FOUND, reason)
    day = f"{expiry.year:04d}-{expiry.month:02d}-{expiry.day:02d}"
    return f"{day} {expiry.hour:02d}:{expiry.min:02d}:{expiry.sec:02d}"


def read_metadata(found: Any) -> VgpuMetadata:
    """Read ``nvmlVgpuMetadata_t``; its opaque part is for ``nvmlGetVgpuCompatibility`` alone."""
    return VgpuMetadata(
        version=int(found.version),
        revision=int(found.revision),
        guest_is_initialised=bool(found.guestInfoState),
        guest_driver_version=read_text(found.guestDriverVersion),
        host_driver_version=read_text(found.hostDriverVersion),
        virtualization_caps=int(found.vgpuVirtualizationCaps),
        guest_vgpu_version=int(found.guestVgpuVersion),
    )


def read_host_metadata(found: Any) -> HostMetadata:
    """Read ``nvmlVgpuPgpuMetadata_t``; its opaque part is for ``nvmlGetVgpuCompatibility`` alone."""
    return HostMetadata(
        version=int(found.version),
        revision=int(found.revision),
        host_driver_version=read_text(found.hostDriverVersion),
        virtualization_caps=int(found.pgpuVirtualizationCaps),
        vgpu_version_min=int(found.hostSupportedVgpuRange.minVersion),
        vgpu_version_max=int(found.hostSupportedVgpuRange.maxVersion),
    )


def read_compatibility(found: Any) -> VgpuCompatibility:
    """Read ``nvmlVgpuPgpuCompatibility_t``: two sets of bits, in words."""
    states, limits = int(found.vgpuVmCompatibility), int(found.compatibilityLimitCode)
    return VgpuCompatibility(
        tuple(name for bit, name in VM_STATES.items() if states & bit),
        tuple(name for bit, name in LIMITS.items() if limits & bit),
    )
