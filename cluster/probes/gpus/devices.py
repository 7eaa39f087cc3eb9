"""Reports this machine's driver and devices from NVML.

Each probe opens and closes the library, so that a replaced driver is noticed.
"""

from dataclasses import dataclass, replace
from typing import Any

from ..cuda.tables import cuda_version
from ..nvml.calls import CodeAnswered, DeviceQuestions, NvmlLike, ask_named, ask_with_code, read_text, return_codes
from ..nvml.events import watch_events
from ..nvml.facts import WORDS, ask_virtualization, probe_facts
from ..nvml.mig import probe_mig, probe_profiles, read_memory, whole_gpu_engines
from ..nvml.use import probe_health, probe_use
from ..report.absence import Absence, Maybe, Unavailable, known
from ..report.device_kinds import DeviceKind
from ..report.device_report import DeviceReport
from ..report.gpu_identity import GUEST
from ..vgpu.guest import GUEST_VIEWS, guest_absence
from ..vgpu.licence import ask_licences

VIDEO_CLOCK = 3
NOT_SUPPORTED = 3

ARCHITECTURES = {number: name for number, name in enumerate(WORDS["architecture"]) if name}
_NO_GUEST = Unavailable(Absence.DOES_NOT_APPLY, "this machine is not a vGPU guest")
_IGPU_NAMES = ("orin", "thor", "xavier", "tegra")


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReport:
    """A machine's driver and devices, from NVML."""

    driver_version: Maybe[str]
    cuda_driver_version: Maybe[str]  # the newest CUDA version that the loaded driver supports ("13.0")
    library_problem: Unavailable | None  # why NVML could not be used
    fix: str  # the fix if NVML could not be used; "" if unknown
    devices: tuple[DeviceReport, ...]


def probe_nvml(nvml: NvmlLike) -> NvmlReport:
    """Query everything about this machine from NVML; never raises."""
    opened, code = ask_with_code(nvml, "nvmlInit")
    if isinstance(opened, Unavailable):
        return NvmlReport(
            driver_version=opened,
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
            cuda_driver_version=cuda if isinstance(cuda, Unavailable) else cuda_version(cuda),
            library_problem=count if isinstance(count, Unavailable) else None,
            fix=_fix_of(code),
            devices=() if isinstance(count, Unavailable) else _probe_devices(nvml, int(count)),
        )
    finally:
        ask_named(nvml, "nvmlShutdown")


def _fix_of(code: int) -> str:
    return return_codes()[code].fix if code in return_codes() else ""


def _probe_devices(nvml: NvmlLike, count: int) -> tuple[DeviceReport, ...]:
    handles = [ask_named(nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    reached = {str(index): handle for index, handle in enumerate(handles) if not isinstance(handle, Unavailable)}
    with watch_events(nvml, reached) as watch:
        devices = [_probe_device(nvml, index, handle) for index, handle in enumerate(handles)]
        events = watch.poll()
    xids = [tuple(event.xid for event in events if event.device == str(index)) for index in range(count)]
    return tuple(
        replace(device, health=replace(device.health, xids=seen)) for device, seen in zip(devices, xids, strict=True)
    )


def questions_for(nvml: NvmlLike, handle: Maybe[Any], virtualization: Maybe[str] = "") -> DeviceQuestions:
    """Return an object that queries a device.

    Without a handle, every query returns why there is none. A vGPU gets no queries that mean nothing on a vGPU.
    """
    if isinstance(handle, Unavailable):
        questions = DeviceQuestions(nvml, None, lambda _: handle)
        questions.lost = handle.reason
        return questions
    return DeviceQuestions(nvml, handle, guest_absence) if virtualization == GUEST else DeviceQuestions(nvml, handle)


def _probe_device(nvml: NvmlLike, index: int, handle: Maybe[Any]) -> DeviceReport:
    virtualization = ask_virtualization(questions_for(nvml, handle))
    questions = questions_for(nvml, handle, virtualization)
    # Profiles seen in a guest would describe the physical GPU.
    profiles = () if virtualization == GUEST else probe_profiles(questions)
    name: Maybe[str] = questions.ask("nvmlDeviceGetName", read=read_text)
    facts = probe_facts(questions)
    kind = _kind(virtualization, name, facts.get("bus_type"))
    return DeviceReport(
        index=index,
        kind=kind,
        uuid=questions.ask("nvmlDeviceGetUUID", read=read_text),
        uuid_is_stable=not kind.is_guest,
        pci_bus_id=questions.ask("nvmlDeviceGetPciInfo", read=lambda info: read_text(info.busId)),
        name=known(name, f"GPU {index}"),
        architecture=questions.ask("nvmlDeviceGetArchitecture", read=_architecture),
        compute_capability=questions.ask(
            "nvmlDeviceGetCudaComputeCapability", read=lambda pair: f"{int(pair[0])}.{int(pair[1])}"
        ),
        memory=questions.ask("nvmlDeviceGetMemoryInfo", read=read_memory),
        max_video_clock_mhz=questions.ask("nvmlDeviceGetMaxClockInfo", VIDEO_CLOCK, read=int),
        virtualization=virtualization,
        engines=whole_gpu_engines(profiles),
        use=probe_use(questions),
        mig=probe_mig(questions, profiles),
        licences=ask_licences(questions) if virtualization in GUEST_VIEWS else _NO_GUEST,
        facts=facts,
        # Health comes last, so that it includes faults that other queries found.
        health=probe_health(questions),
    )


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
