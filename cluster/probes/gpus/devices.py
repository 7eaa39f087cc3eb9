"""What NVML says about this machine: its driver, and every device as values.

Each probe opens the library and closes it, so that a driver that was exchanged meanwhile is noticed and not
carried along. The sections are modules of ``probes/nvml``; ``nvml/calls.py`` says what becomes of errors.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..cuda.tables import cuda_version
from ..nvml.calls import CodeAnswered, DeviceQuestions, NvmlLike, Trouble, ask_named, ask_with_code, read_text
from ..nvml.events import watch_events
from ..nvml.facts import probe_facts
from ..nvml.gpm import WHOLE_GPU, GpmMeasure, begin_gpm
from ..nvml.health import probe_health
from ..nvml.mig import probe_mig, probe_profiles, read_memory, whole_gpu_engines
from ..nvml.use import probe_use
from ..report.absence import Absence, Maybe, Unavailable, known
from ..report.device_report import DeviceKind, DeviceReport, MigReport
from ..report.engines import EngineCount
from ..vgpu.guest import guest_absence

GPM_INTERVAL_S = 0.2
VIDEO_CLOCK = 3
NOT_SUPPORTED = 3

_GENERATIONS = "kepler maxwell pascal volta turing ampere ada hopper blackwell"
ARCHITECTURES: dict[int, str] = {**dict(enumerate(_GENERATIONS.split(), 2)), 13: "rubin"}
"""NVML_DEVICE_ARCH_*. GA100 and GA10x are both "ampere" here, though their decoders differ: the compute capability
(8.0 and 8.6) tells them apart."""

VIRTUALIZATION_MODES: dict[int, str] = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host vgpu", 4: "host vsga"}
"""NVML_GPU_VIRTUALIZATION_MODE_*: vGPU Management SDK guide, 2.1 and 3.3.1."""

_VGPU = VIRTUALIZATION_MODES[2]
_IGPU_NAMES = ("orin", "thor", "xavier", "tegra")

_FIXES: dict[int, str] = {
    9: "load NVIDIA's kernel driver (sudo modprobe nvidia), or start this container with --gpus all",
    12: "install NVIDIA's driver, or start this container with --gpus all",
    13: "install a newer NVIDIA driver",
    17: "look for what the system refuses: device files (ls -l /dev/nvidia*), control groups, security modules",
    18: "the driver was upgraded under a loaded kernel module: restart the machine; in a container, restart that first",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReport:
    """What NVML says about a machine.

    ``cuda_driver_version`` is the newest CUDA that the loaded driver library serves ("13.0"). ``library_problem`` says
    why nothing could be asked (no library, driver not loaded, versions that mismatch after an upgrade) and is None
    where all is well; ``fix`` is what a user can do about it, "" where nothing is known.
    """

    driver_version: Maybe[str]
    nvml_version: Maybe[str]
    cuda_driver_version: Maybe[str]
    library_problem: Unavailable | None
    fix: str
    devices: tuple[DeviceReport, ...]


def probe_nvml(
    nvml: NvmlLike,
    *,
    xids: Mapping[str, tuple[int, ...]] | None = None,
    sleep: Callable[[float], object] = time.sleep,
    gpm_interval_s: float = GPM_INTERVAL_S,
) -> NvmlReport:
    """Ask NVML everything about this machine; never raises for what the library or a device answers.

    ``nvml`` is the ``pynvml`` module, or what answers like it. ``xids`` are Xid errors by UUID that were seen before.
    ``sleep`` lets ``gpm_interval_s`` pass between two samples of the per-engine metrics; 0 leaves these out.
    """
    opened, code = ask_with_code(nvml, "nvmlInit")
    if isinstance(opened, Unavailable):
        return _unanswered(opened, code)
    try:
        count, code = ask_with_code(nvml, "nvmlDeviceGetCount")
        if isinstance(count, Unavailable):
            return replace(_unanswered(count, code), **_versions(nvml))
        devices = _probe_devices(nvml, int(count), xids or {}, sleep, gpm_interval_s)
        return NvmlReport(**_versions(nvml), library_problem=None, fix="", devices=devices)
    finally:
        ask_named(nvml, "nvmlShutdown")


def _unanswered(problem: Unavailable, code: int) -> NvmlReport:
    return NvmlReport(
        driver_version=problem,
        nvml_version=problem,
        cuda_driver_version=problem,
        library_problem=problem,
        fix=nvml_remedy(code),
        devices=(),
    )


def nvml_remedy(code: int) -> str:
    """Return what a user does about NVML's code of a start that failed; "" where nothing is known."""
    return _FIXES.get(code, "")


def _versions(nvml: NvmlLike) -> dict[str, Any]:
    cuda = ask_named(nvml, "nvmlSystemGetCudaDriverVersion_v2")
    return {
        "driver_version": ask_named(nvml, "nvmlSystemGetDriverVersion"),
        "nvml_version": ask_named(nvml, "nvmlSystemGetNVMLVersion"),
        "cuda_driver_version": cuda if isinstance(cuda, Unavailable) else cuda_version(cuda),
    }


@dataclass(frozen=True, slots=True)
class _Subject:
    """A device half-way: asked what the measurement over time needs to know."""

    index: int
    questions: DeviceQuestions
    uuid: Maybe[str]
    virtualization: Maybe[str]
    mig: Maybe[MigReport]
    engines: tuple[EngineCount, ...]
    gpm: GpmMeasure | None


def _probe_devices(
    nvml: NvmlLike,
    count: int,
    xids: Mapping[str, tuple[int, ...]],
    sleep: Callable[[float], object],
    gpm_interval_s: float,
) -> tuple[DeviceReport, ...]:
    subjects = [_begin(nvml, index, gpm_interval_s) for index in range(count)]
    handles = {
        subject.uuid: subject.questions.handle
        for subject in subjects
        if isinstance(subject, _Subject) and isinstance(subject.uuid, str)
    }
    with watch_events(nvml, handles) as watch:
        if any(isinstance(each, _Subject) and each.gpm is not None and each.gpm.needs_time for each in subjects):
            sleep(gpm_interval_s)
        seen = dict(xids)
        for event in watch.poll():
            if event.xid is not None:
                seen[event.uuid] = (*seen.get(event.uuid, ()), event.xid)
    refused = {uuid: watch.failure or watch.unwatched.get(uuid) for uuid in handles}
    return tuple(_finish(each, seen, refused) if isinstance(each, _Subject) else each for each in subjects)


def _begin(nvml: NvmlLike, index: int, gpm_interval_s: float) -> "_Subject | DeviceReport":
    handle, code = ask_with_code(nvml, "nvmlDeviceGetHandleByIndex", index)
    if isinstance(handle, Unavailable):
        return _unreachable(nvml, index, handle, code)
    first = DeviceQuestions(nvml, handle)
    virtualization: Maybe[str] = first.ask(
        "nvmlDeviceGetVirtualizationMode", read=lambda mode: VIRTUALIZATION_MODES.get(int(mode), f"mode {int(mode)}")
    )
    is_guest = virtualization == _VGPU
    questions = DeviceQuestions(nvml, handle, guest_absence) if is_guest else first
    # A guest's share of the engines is the scheduler's to give; profiles would speak of the physical GPU.
    profiles = () if is_guest else probe_profiles(questions)
    mig = probe_mig(questions, profiles)
    instances = [] if isinstance(mig, Unavailable) else sorted({piece.gpu_instance for piece in mig.slices})
    return _Subject(
        index=index,
        questions=questions,
        uuid=questions.ask("nvmlDeviceGetUUID", read=read_text),
        virtualization=virtualization,
        mig=mig,
        engines=whole_gpu_engines(profiles),
        gpm=begin_gpm(questions, instances) if gpm_interval_s > 0 else None,
    )


def _finish(
    subject: _Subject, xids: Mapping[str, tuple[int, ...]], refused: Mapping[str, Unavailable | None]
) -> DeviceReport:
    """Ask for the rest; ``xids``, and why none would be seen (``refused``), are by UUID."""
    questions, uuid = subject.questions, subject.uuid
    watched = ((), uuid) if isinstance(uuid, Unavailable) else (xids.get(uuid, ()), refused.get(uuid))
    mig, whole_gpm = _with_gpm(subject)
    name: Maybe[str] = questions.ask("nvmlDeviceGetName", read=read_text)
    facts = probe_facts(questions)
    kind = _kind(subject.virtualization, name, facts.get("bus_type"))
    return DeviceReport(
        index=subject.index,
        kind=kind,
        uuid=subject.uuid,
        uuid_is_stable=kind is not DeviceKind.VGPU,
        pci_bus_id=questions.ask("nvmlDeviceGetPciInfo", read=lambda info: read_text(info.busId)),
        name=known(name, f"GPU {subject.index}"),
        architecture=questions.ask("nvmlDeviceGetArchitecture", read=_architecture),
        compute_capability=questions.ask(
            "nvmlDeviceGetCudaComputeCapability", read=lambda pair: f"{int(pair[0])}.{int(pair[1])}"
        ),
        memory=questions.ask("nvmlDeviceGetMemoryInfo", read=read_memory),
        max_video_clock_mhz=questions.ask("nvmlDeviceGetMaxClockInfo", VIDEO_CLOCK, read=int),
        virtualization=subject.virtualization,
        engines=subject.engines,
        use=probe_use(questions, whole_gpm),
        mig=mig,
        facts=facts,
        # Last, so that it knows of every answer that meant trouble.
        health=probe_health(questions, *watched),
    )


def _with_gpm(subject: _Subject) -> tuple[Maybe[MigReport], Maybe[dict[str, float]]]:
    """Take the second samples and put what they say into the slices."""
    gpm, mig = subject.gpm, subject.mig
    if gpm is None:
        return mig, Unavailable(Absence.NOT_FOUND, "per-engine use was not measured")
    slices = () if isinstance(mig, Unavailable) else mig.slices
    engines: dict[int | None, tuple[EngineCount, ...]] = {piece.gpu_instance: piece.engines for piece in slices}
    measured = gpm.finish({WHOLE_GPU: subject.engines, **engines})
    if not isinstance(mig, Unavailable):
        mig = replace(mig, slices=tuple(replace(each, gpm_percent=measured[each.gpu_instance]) for each in slices))
    return mig, measured[WHOLE_GPU]


def _kind(virtualization: Maybe[str], name: Maybe[str], bus: Maybe[object] | None) -> DeviceKind:
    if virtualization == _VGPU:
        return DeviceKind.VGPU
    # Documented, not measured: on a Tegra SoC the name is the SoC's ("Orin (nvgpu)", "NVIDIA Thor"), the bus is FPCI.
    words = name.lower() if isinstance(name, str) else ""
    is_igpu = bus == "FPCI" or any(word in words for word in _IGPU_NAMES)
    return DeviceKind.IGPU if is_igpu else DeviceKind.GPU


def _architecture(number: int) -> str:
    if int(number) not in ARCHITECTURES:
        raise CodeAnswered(NOT_SUPPORTED)
    return ARCHITECTURES[int(number)]


def _unreachable(nvml: NvmlLike, index: int, refused: Unavailable, code: int) -> DeviceReport:
    """Report a device that the driver counts and does not give out: every question has the same answer."""
    questions = DeviceQuestions(nvml, None, lambda _: refused)
    trouble = Trouble("nvmlDeviceGetHandleByIndex", code)
    subject = _Subject(index, questions, refused, refused, refused, (), None)
    report = _finish(subject, {}, {})
    return replace(report, health=replace(report.health, lost=trouble.sentence))
