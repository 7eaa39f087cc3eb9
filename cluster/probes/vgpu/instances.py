"""The vGPUs that run on a host, with every property (vGPU Management SDK guide, 2.4).

Utilisation is in percent of the whole GPU. The NVML API Reference Manual explains fields and codes. A number in which
all bits are set means that there is no value.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from ..nvml.calls import DeviceQuestions, answers, ask_named, asked, read_text
from ..nvml.facts import WORDS, read_structure
from ..nvml.use import read_sessions
from ..report.absence import Absence, Maybe, Unavailable, known
from ..report.device_report import CodecSession
from .types import ask_instances_max

NO_VALUE_32 = 0xFFFFFFFF
NO_VALUE_64 = 0xFFFFFFFFFFFFFFFF
PERCENT_MAX = 100

VM_STATES = {0x1: "cold", 0x2: "hibernate", 0x4: "sleep", 0x8: "live"}
LIMITS = {0x1: "host driver", 0x2: "guest driver", 0x4: "GPU", 0x80000000: "other"}
_NOT_SAMPLED: Final = Unavailable(Absence.NOT_FOUND, "the driver has not sampled this vGPU yet")
_FROM_US: Final = 0  # the start time that requests all samples in the driver
NvmlValues: TypeAlias = dict[str, str | int | float | bool]
"""An NVML structure for display: the values under codecfleet's names."""


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


@dataclass(frozen=True, slots=True)
class AccountingStats:
    """How much a process has used the GPU in its lifetime."""

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


@dataclass(frozen=True, slots=True)
class VgpuCompatibility:
    """Whether a vGPU can move to a GPU: in which states of its virtual machine, and within which limits."""

    states: tuple[str, ...]  # any of "cold", "hibernate", "sleep" and "live"
    limits: tuple[str, ...]  # any of "host driver", "guest driver", "GPU" and "other"


def _read_vm_id(answer: tuple[str, int]) -> VmId:
    value, kind = answer
    return VmId(read_text(value), dict(enumerate(WORDS["vm_id"])).get(kind, f"kind {kind}"))


def _read_vm_driver(version: bytes | str) -> Maybe[str]:
    text, none = read_text(version), Unavailable(Absence.NOT_FOUND, "the guest has not loaded an NVIDIA driver")
    return none if text in ("", "Not Available") else text


def _read_gpu_instance(number: int) -> Maybe[int]:
    none = Unavailable(Absence.DOES_NOT_APPLY, "the vGPU has no GPU instance")  # it shares the GPU by time slices
    return none if number == NO_VALUE_32 else int(number)


def _read_stats(stats: Iterable[int]) -> NvmlValues:
    return dict(zip(("sessions_open", "average_fps", "average_latency_us"), map(int, stats), strict=True))


def _read_fbc_sessions(sessions: Iterable[Any]) -> tuple[NvmlValues, ...]:
    return tuple(read_structure("fbc_session", found) for found in sessions)


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuLoad:
    """A running vGPU, with the values that each poll queries."""

    instance: int  # NVML's handle of the vGPU
    type_id: Maybe[int]
    instances_max: Maybe[int]  # how many vGPUs of this type fit on the GPU
    use: VgpuUse
    uuid: Maybe[str] = asked("nvmlVgpuInstanceGetUUID", read=read_text)
    vm_id: Maybe[VmId] = asked("nvmlVgpuInstanceGetVmID", read=_read_vm_id)
    licensed: Maybe[bool] = asked("nvmlVgpuInstanceGetLicenseStatus", read=bool)
    accounting_enabled: Maybe[bool] = asked("nvmlVgpuInstanceGetAccountingMode", read=bool)
    # the MIG GPU instance of the vGPU
    gpu_instance: Maybe[int] = asked("nvmlVgpuInstanceGetGpuInstanceId", read=_read_gpu_instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuInstance(VgpuLoad):
    """A running vGPU with all its properties."""

    mdev_uuid: Maybe[str] = asked("nvmlVgpuInstanceGetMdevUUID", read=read_text)
    vm_driver_version: Maybe[str] = asked("nvmlVgpuInstanceGetVmDriverVersion", read=_read_vm_driver)
    framebuffer_used_bytes: Maybe[int] = asked("nvmlVgpuInstanceGetFbUsage", read=int)
    # moving averages over all frame buffer capture sessions, in the form of ``encoder_stats``
    fbc_stats: Maybe[NvmlValues] = asked("nvmlVgpuInstanceGetFBCStats", read=partial(read_structure, "fbc_stats"))
    fbc_sessions: Maybe[tuple[NvmlValues, ...]] = asked("nvmlVgpuInstanceGetFBCSessions", read=_read_fbc_sessions)
    frame_rate_limit_fps: Maybe[int] = asked("nvmlVgpuInstanceGetFrameRateLimit", read=int)
    encoder_stats: Maybe[NvmlValues] = asked("nvmlVgpuInstanceGetEncoderStats", read=_read_stats)
    encoder_sessions: Maybe[tuple[CodecSession, ...]] = asked("nvmlVgpuInstanceGetEncoderSessions", read=read_sessions)
    processes: Maybe[tuple[VgpuProcess, ...]]
    accounting: Maybe[VgpuAccounting]
    metadata: Maybe[NvmlValues]
    compatibility: Maybe[VgpuCompatibility]


def running_vgpus(questions: DeviceQuestions) -> tuple[VgpuLoad, ...]:
    """Return the vGPUs that run on a GPU, with few queries; never raises."""
    instances = _ask_instances(questions)
    loads = _loads(questions, known(instances, ()))
    return tuple(answers(VgpuLoad, partial(questions.ask_of, each), **load) for each, load in loads.items())


def probe_vgpus(questions: DeviceQuestions, host_metadata: Any) -> Maybe[tuple[VgpuInstance, ...]]:
    """Query every property of the vGPUs on a GPU, whose metadata in NVML is ``host_metadata``; never raises."""
    instances = _ask_instances(questions)
    if isinstance(instances, Unavailable):
        return instances
    processes = questions.ask("nvmlDeviceGetVgpuProcessUtilization", _FROM_US, read=_read_processes)
    loads = _loads(questions, instances)
    return tuple(_probe_vgpu(questions, each, load, processes, host_metadata) for each, load in loads.items())


def _ask_instances(questions: DeviceQuestions) -> Maybe[tuple[int, ...]]:
    return questions.ask("nvmlDeviceGetActiveVgpus", read=lambda found: tuple(map(int, found)))


def _loads(questions: DeviceQuestions, instances: Iterable[int]) -> dict[int, dict[str, object]]:
    """Return, by vGPU, the fields of ``VgpuLoad`` that are not made by ``asked``."""
    samples = questions.ask("nvmlDeviceGetVgpuUtilization", _FROM_US, read=_read_use)
    found: dict[int, dict[str, object]] = {}
    for instance in instances:
        type_id: Maybe[int] = questions.ask_of(instance, "nvmlVgpuInstanceGetType", read=int)
        most = type_id if isinstance(type_id, Unavailable) else ask_instances_max(questions, type_id)
        absent = samples if isinstance(samples, Unavailable) else _NOT_SAMPLED
        use = known(samples, {}).get(instance, VgpuUse(absent, absent, absent, absent))
        found[instance] = {"instance": instance, "type_id": type_id, "instances_max": most, "use": use}
    return found


def _probe_vgpu(
    questions: DeviceQuestions,
    instance: int,
    load: dict[str, object],
    processes: Maybe[dict[int, tuple[VgpuProcess, ...]]],
    host_metadata: Any,
) -> VgpuInstance:
    metadata = ask_named(questions.nvml, "nvmlVgpuInstanceGetMetadata", instance)
    return answers(
        VgpuInstance,
        partial(questions.ask_of, instance),
        **load,
        processes=processes if isinstance(processes, Unavailable) else processes.get(instance, ()),
        accounting=_accounting(questions, instance),
        metadata=metadata if isinstance(metadata, Unavailable) else read_structure("vgpu_metadata", metadata),
        compatibility=compatibility_of(questions, metadata, host_metadata),
    )


def _accounting(questions: DeviceQuestions, instance: int) -> Maybe[VgpuAccounting]:
    found = ask_named(questions.nvml, "nvmlVgpuInstanceGetAccountingPids", instance)
    if isinstance(found, Unavailable):
        return found
    count, room = found
    pids = tuple(map(int, room[: int(getattr(count, "value", count))]))
    ask = partial(questions.ask_of, instance, "nvmlVgpuInstanceGetAccountingStats")
    return VgpuAccounting(pids, {str(pid): ask(pid, read=_read_accounting) for pid in pids}, len(room) or NO_MAXIMUM)


def compatibility_of(questions: DeviceQuestions, metadata: Any, host_metadata: Any) -> Maybe[VgpuCompatibility]:
    """Return NVML's comparison of a vGPU's metadata with a GPU's or, if one of them is missing, the reason."""
    if isinstance(absent := metadata, Unavailable) or isinstance(absent := host_metadata, Unavailable):
        return absent
    return questions.ask_of(metadata, "nvmlGetVgpuCompatibility", host_metadata, read=_read_compatibility)


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


def _read_compatibility(found: Any) -> VgpuCompatibility:
    states, limits = int(found.vgpuVmCompatibility), int(found.compatibilityLimitCode)
    return VgpuCompatibility(
        tuple(name for bit, name in VM_STATES.items() if states & bit),
        tuple(name for bit, name in LIMITS.items() if limits & bit),
    )
