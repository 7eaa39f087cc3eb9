"""Reports this machine's driver and devices from NVML.

Each probe opens and closes the library, so that a replaced driver is noticed.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..cuda.tables import cuda_version
from ..nvml.calls import CodeAnswered, DeviceQuestions, NvmlLike, ask_named, ask_with_code, read_text, return_codes
from ..nvml.events import watch_events
from ..nvml.facts import WORDS, ask_virtualization, probe_facts
from ..nvml.gpm import WHOLE_GPU, GpmMeasure, begin_gpm
from ..nvml.mig import probe_mig, probe_profiles, read_memory, whole_gpu_engines
from ..nvml.use import probe_health, probe_use
from ..report.absence import Maybe, Unavailable, known
from ..report.device_kinds import DeviceKind
from ..report.device_report import DeviceReport, MigReport
from ..report.engines import EngineCount
from ..report.gpu_identity import GUEST
from ..vgpu.guest import guest_absence

GPM_INTERVAL_S = 0.2
VIDEO_CLOCK = 3
NOT_SUPPORTED = 3

ARCHITECTURES = {number: name for number, name in enumerate(WORDS["architecture"]) if name}
_IGPU_NAMES = ("orin", "thor", "xavier", "tegra")


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReport:
    """A machine's driver and devices, from NVML."""

    driver_version: Maybe[str]
    nvml_version: Maybe[str]
    cuda_driver_version: Maybe[str]  # the newest CUDA version that the loaded driver supports ("13.0")
    library_problem: Unavailable | None  # why NVML could not be used
    fix: str  # the fix if NVML could not be used; "" if unknown
    devices: tuple[DeviceReport, ...]


def probe_nvml(nvml: NvmlLike, *, sleep: Callable[[float], object] = time.sleep) -> NvmlReport:
    """Query everything about this machine from NVML; never raises.

    ``sleep`` waits for ``GPM_INTERVAL_S`` between the two samples of the metrics of each engine.
    """
    opened, code = ask_with_code(nvml, "nvmlInit")
    if isinstance(opened, Unavailable):
        return NvmlReport(
            driver_version=opened,
            nvml_version=opened,
            cuda_driver_version=opened,
            library_problem=opened,
            fix=_fix_of(code),
            devices=(),
        )
    try:
        count, code = ask_with_code(nvml, "nvmlDeviceGetCount")
        cuda = ask_named(nvml, "nvmlSystemGetCudaDriverVersion_v2")
        return NvmlReport(
            driver_version=ask_named(nvml, "nvmlSystemGetDriverVersion"),
            nvml_version=ask_named(nvml, "nvmlSystemGetNVMLVersion"),
            cuda_driver_version=cuda if isinstance(cuda, Unavailable) else cuda_version(cuda),
            library_problem=count if isinstance(count, Unavailable) else None,
            fix=_fix_of(code),
            devices=() if isinstance(count, Unavailable) else _probe_devices(nvml, int(count), sleep),
        )
    finally:
        ask_named(nvml, "nvmlShutdown")


def _fix_of(code: int) -> str:
    return return_codes()[code].fix if code in return_codes() else ""


@dataclass(frozen=True, slots=True)
class _Subject:
    """A device whose engines' metrics were sampled once; the second sample comes in ``_finish``."""

    index: int
    questions: DeviceQuestions
    uuid: Maybe[str]
    virtualization: Maybe[str]
    mig: Maybe[MigReport]
    engines: tuple[EngineCount, ...]
    gpm: GpmMeasure


def _probe_devices(nvml: NvmlLike, count: int, sleep: Callable[[float], object]) -> tuple[DeviceReport, ...]:
    subjects = [_begin(nvml, index) for index in range(count)]
    handles = {each.uuid: each.questions.handle for each in subjects if isinstance(each.uuid, str)}
    seen: dict[str, tuple[int, ...]] = {}
    with watch_events(nvml, handles) as watch:
        if any(each.gpm.needs_time for each in subjects):
            sleep(GPM_INTERVAL_S)
        for event in watch.poll():
            seen[event.uuid] = (*seen.get(event.uuid, ()), event.xid)
    refused = {uuid: watch.failure or watch.unwatched.get(uuid) for uuid in handles}
    return tuple(_finish(each, seen, refused) for each in subjects)


def questions_for(nvml: NvmlLike, handle: Maybe[Any], virtualization: Maybe[str] = "") -> DeviceQuestions:
    """Return the queries of a device.

    Without a handle, no query is answered; for a vGPU, meaningless queries are left out.
    """
    if isinstance(handle, Unavailable):
        questions = DeviceQuestions(nvml, None, lambda _: handle)
        questions.lost = handle.reason
        return questions
    return DeviceQuestions(nvml, handle, guest_absence) if virtualization == GUEST else DeviceQuestions(nvml, handle)


def _begin(nvml: NvmlLike, index: int) -> _Subject:
    handle = ask_named(nvml, "nvmlDeviceGetHandleByIndex", index)
    virtualization = ask_virtualization(first := questions_for(nvml, handle))
    is_guest = virtualization == GUEST
    questions = questions_for(nvml, handle, virtualization) if is_guest else first
    # Profiles seen in a guest would describe the physical GPU.
    profiles = () if is_guest else probe_profiles(questions)
    mig = probe_mig(questions, profiles)
    return _Subject(
        index=index,
        questions=questions,
        uuid=questions.ask("nvmlDeviceGetUUID", read=read_text),
        virtualization=virtualization,
        mig=mig,
        engines=whole_gpu_engines(profiles),
        gpm=begin_gpm(questions, () if isinstance(mig, Unavailable) else mig.slices),
    )


def _finish(
    subject: _Subject, xids: Mapping[str, tuple[int, ...]], refused: Mapping[str, Unavailable | None]
) -> DeviceReport:
    """Query all other values. The keys of ``xids`` and ``refused`` (why Xids cannot be watched) are UUIDs."""
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
        uuid_is_stable=not kind.is_guest,
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
        # Health comes last, so that it includes faults that other queries found.
        health=probe_health(questions, *watched),
    )


def _with_gpm(subject: _Subject) -> tuple[Maybe[MigReport], Maybe[dict[str, float]]]:
    mig = subject.mig
    slices = () if isinstance(mig, Unavailable) else mig.slices
    measured = subject.gpm.finish(slices, subject.engines)
    if not isinstance(mig, Unavailable):
        mig = replace(mig, slices=tuple(replace(each, gpm_percent=measured[each.gpu_instance]) for each in slices))
    return mig, measured[WHOLE_GPU]


def _kind(virtualization: Maybe[str], name: Maybe[str], bus: Maybe[object] | None) -> DeviceKind:
    if virtualization == GUEST:
        return DeviceKind.VGPU
    # Documented, not measured: a Tegra's GPU has the name of its SoC ("Orin (nvgpu)", "NVIDIA Thor"), on an FPCI bus.
    words = name.lower() if isinstance(name, str) else ""
    is_igpu = bus == "FPCI" or any(word in words for word in _IGPU_NAMES)
    return DeviceKind.IGPU if is_igpu else DeviceKind.GPU


def _architecture(number: int) -> str:
    if int(number) not in ARCHITECTURES:
        raise CodeAnswered(NOT_SUPPORTED)
    return ARCHITECTURES[int(number)]
