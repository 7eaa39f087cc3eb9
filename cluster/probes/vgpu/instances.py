"""Queries every property of the vGPUs that run on a host (vGPU Management SDK guide, 2.4).

The NVML API Reference Manual explains fields and codes. A number in which all bits are set means that there is no
value.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from ..nvml.calls import DeviceQuestions, ask_named, read_text
from ..nvml.facts import WORDS, read_structure
from ..nvml.use import read_sessions
from ..report.absence import Absence, Maybe, Unavailable
from ..report.tables import read_tables
from .values import (
    NO_MAXIMUM,
    AccountingStats,
    LicensableFeature,
    LicensableFeatures,
    NvmlValues,
    VgpuAccounting,
    VgpuCompatibility,
    VgpuInstance,
    VgpuProcess,
    VgpuUse,
    VmId,
)

NO_VALUE_32 = 0xFFFFFFFF
NO_VALUE_64 = 0xFFFFFFFFFFFFFFFF
PERCENT_MAX = 100

VM_STATES = {0x1: "cold", 0x2: "hibernate", 0x4: "sleep", 0x8: "live"}
LIMITS = {0x1: "host driver", 0x2: "guest driver", 0x4: "GPU", 0x80000000: "other"}
EXPIRY_VALID = 2
EXPIRY_WORDS: Final[dict[str, str]] = read_tables("nvml.toml")["expiry"]
NOT_SAMPLED: Final = Unavailable(Absence.NOT_FOUND, "the driver has not sampled this vGPU yet")
_NO_INSTANCE: Final = Unavailable(Absence.DOES_NOT_APPLY, "the vGPU has no GPU instance")
_FROM_US: Final = 0  # the start time that requests all samples in the driver


class HostSamples(NamedTuple):
    """Values that NVML reports for all vGPUs of a GPU in one call."""

    use: Maybe[dict[int, VgpuUse]]  # the use of each vGPU, by instance
    processes: Maybe[dict[int, tuple[VgpuProcess, ...]]]  # the processes of each vGPU, by instance
    metadata: Any  # the metadata of the GPU, as a structure of NVML


def probe_vgpu_samples(questions: DeviceQuestions) -> HostSamples:
    """Query the samples of all vGPUs, and the GPU's metadata; never raises."""
    return HostSamples(
        use=questions.ask("nvmlDeviceGetVgpuUtilization", _FROM_US, read=_read_use),
        processes=questions.ask("nvmlDeviceGetVgpuProcessUtilization", _FROM_US, read=_read_processes),
        metadata=ask_named(questions.nvml, "nvmlDeviceGetVgpuMetadata", questions.handle),
    )


def probe_vgpu_instance(questions: DeviceQuestions, instance: int, samples: HostSamples) -> VgpuInstance:
    """Query every property of a running vGPU (guide 2.4); never raises."""
    ask = partial(questions.ask_of, instance)
    metadata = ask_named(questions.nvml, "nvmlVgpuInstanceGetMetadata", instance)
    use, processes, host_metadata = samples
    return VgpuInstance(
        instance=instance,
        type_id=ask("nvmlVgpuInstanceGetType", read=int),
        vm_id=ask("nvmlVgpuInstanceGetVmID", read=read_vm_id),
        uuid=ask("nvmlVgpuInstanceGetUUID", read=read_text),
        mdev_uuid=ask("nvmlVgpuInstanceGetMdevUUID", read=read_text),
        vm_driver_version=ask("nvmlVgpuInstanceGetVmDriverVersion", read=_read_vm_driver),
        framebuffer_used_bytes=ask("nvmlVgpuInstanceGetFbUsage", read=int),
        fbc_stats=ask("nvmlVgpuInstanceGetFBCStats", read=partial(read_structure, "fbc_stats")),
        fbc_sessions=ask("nvmlVgpuInstanceGetFBCSessions", read=_read_fbc_sessions),
        licensed=ask("nvmlVgpuInstanceGetLicenseStatus", read=bool),
        frame_rate_limit_fps=ask("nvmlVgpuInstanceGetFrameRateLimit", read=int),
        encoder_stats=ask("nvmlVgpuInstanceGetEncoderStats", read=_read_stats),
        encoder_sessions=ask("nvmlVgpuInstanceGetEncoderSessions", read=read_sessions),
        use=use if isinstance(use, Unavailable) else use.get(instance, NOT_SAMPLED),
        processes=processes if isinstance(processes, Unavailable) else processes.get(instance, ()),
        accounting_enabled=ask("nvmlVgpuInstanceGetAccountingMode", read=bool),
        accounting=_accounting(questions, instance),
        metadata=metadata if isinstance(metadata, Unavailable) else read_structure("vgpu_metadata", metadata),
        compatibility=compatibility_of(questions, metadata, host_metadata),
        gpu_instance=read_gpu_instance(questions, instance),
    )


def read_gpu_instance(questions: DeviceQuestions, instance: int) -> Maybe[int]:
    """Return the MIG GPU instance of a vGPU; a time-sliced vGPU has none."""
    found: Maybe[int] = questions.ask_of(instance, "nvmlVgpuInstanceGetGpuInstanceId", read=int)
    return _NO_INSTANCE if found == NO_VALUE_32 else found


def _accounting(questions: DeviceQuestions, instance: int) -> Maybe[VgpuAccounting]:
    found = ask_named(questions.nvml, "nvmlVgpuInstanceGetAccountingPids", instance)
    if isinstance(found, Unavailable):
        return found
    count, room = found
    pids = tuple(map(int, room[: int(getattr(count, "value", count))]))
    ask = partial(questions.ask_of, instance, "nvmlVgpuInstanceGetAccountingStats")
    return VgpuAccounting(pids, {str(pid): ask(pid, read=_read_accounting) for pid in pids}, len(room) or NO_MAXIMUM)


def compatibility_of(questions: DeviceQuestions, metadata: Any, host_metadata: Any) -> Maybe[VgpuCompatibility]:
    """Compare metadata in NVML; return whether a vGPU could run on a GPU or, if metadata is missing, why."""
    if isinstance(absent := metadata, Unavailable) or isinstance(absent := host_metadata, Unavailable):
        return absent
    return questions.ask_of(metadata, "nvmlGetVgpuCompatibility", host_metadata, read=_read_compatibility)


def read_vm_id(answer: tuple[str, int]) -> VmId:
    """Return the id of a virtual machine and the kind of the id."""
    value, kind = answer
    return VmId(read_text(value), dict(enumerate(WORDS["vm_id"])).get(kind, f"kind {kind}"))


def _read_vm_driver(version: bytes | str) -> Maybe[str]:
    text, none = read_text(version), Unavailable(Absence.NOT_FOUND, "the guest has not loaded an NVIDIA driver")
    return none if text in ("", "Not Available") else text


def _read_stats(stats: Iterable[int]) -> NvmlValues:
    return dict(zip(("sessions_open", "average_fps", "average_latency_us"), map(int, stats), strict=True))


def _read_fbc_sessions(sessions: Iterable[Any]) -> tuple[NvmlValues, ...]:
    return tuple(read_structure("fbc_session", found) for found in sessions)


def _by_time(samples: Iterable[Any]) -> list[Any]:
    # NVML returns all samples, in any order.
    return sorted(samples, key=lambda sample: int(sample.timeStamp))


def _read_use(samples: Iterable[Any]) -> dict[int, VgpuUse]:
    return {int(sample.vgpuInstance): _use(sample) for sample in _by_time(samples)}


def _read_processes(samples: Iterable[Any]) -> dict[int, tuple[VgpuProcess, ...]]:
    newest = {(int(sample.vgpuInstance), int(sample.pid)): sample for sample in _by_time(samples)}
    found: dict[int, list[VgpuProcess]] = {}
    for (instance, pid), sample in sorted(newest.items()):
        found.setdefault(instance, []).append(VgpuProcess(pid, read_text(sample.processName), _use(sample)))
    return {instance: tuple(processes) for instance, processes in found.items()}


def _use(sample: Any) -> VgpuUse:
    return VgpuUse(*(_percent(value) for value in (sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil)))


def _percent(value: Any) -> Maybe[int]:
    # The value is a number for a process, and a union for a vGPU. The union is read as an unsigned int, because the
    # binding drops the union's type (documented, not measured).
    percent = int(getattr(value, "uiVal", value))
    if percent > PERCENT_MAX:
        return Unavailable(Absence.NOT_FOUND, "the driver has no sample of this engine")
    return percent


def _read_accounting(stats: Any) -> AccountingStats:
    return AccountingStats(
        gpu_percent=_accounted(int(stats.gpuUtilization), NO_VALUE_32),
        memory_percent=_accounted(int(stats.memoryUtilization), NO_VALUE_32),
        memory_max_bytes=_accounted(int(stats.maxMemoryUsage), NO_VALUE_64),
        active_ms=int(stats.time),
        started_us=int(stats.startTime),
        is_running=bool(stats.isRunning),
    )


def _accounted(value: int, no_value: int) -> Maybe[int]:
    return Unavailable(Absence.NOT_SUPPORTED, "the GPU's accounting does not record it") if value == no_value else value


def ask_licences(questions: DeviceQuestions) -> Maybe[LicensableFeatures]:
    """Query for which vGPU products a device can be licensed."""
    return questions.ask("nvmlDeviceGetGridLicensableFeatures", read=_read_licences)


def _read_licences(found: Any) -> LicensableFeatures:
    features = list(found.gridLicensableFeatures)[: int(found.licensableFeaturesCount)]
    return LicensableFeatures(bool(found.isGridLicenseSupported), tuple(map(_feature, features)))


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
    if (status := int(expiry.status)) != EXPIRY_VALID:
        unknown = f"expiry status {status} is unknown to codecfleet"
        return Unavailable(Absence.NOT_FOUND, EXPIRY_WORDS.get(str(status), unknown))
    day = f"{expiry.year:04d}-{expiry.month:02d}-{expiry.day:02d}"
    return f"{day} {expiry.hour:02d}:{expiry.min:02d}:{expiry.sec:02d}"


def read_host_metadata(found: Any) -> NvmlValues:
    """Read the metadata of a host's GPU (``nvmlVgpuPgpuMetadata_t``)."""
    versions = found.hostSupportedVgpuRange
    return {
        **read_structure("host_metadata", found),
        "vgpu_version_min": int(versions.minVersion),
        "vgpu_version_max": int(versions.maxVersion),
    }


def _read_compatibility(found: Any) -> VgpuCompatibility:
    states, limits = int(found.vgpuVmCompatibility), int(found.compatibilityLimitCode)
    return VgpuCompatibility(
        tuple(name for bit, name in VM_STATES.items() if states & bit),
        tuple(name for bit, name in LIMITS.items() if limits & bit),
    )
