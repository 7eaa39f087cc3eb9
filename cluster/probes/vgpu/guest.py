"""Reports a GPU as a virtual machine sees it (vGPU Management SDK guide, chapter 3). Documented, not measured."""

from dataclasses import dataclass

from ..nvml.calls import DeviceQuestions
from ..report.absence import Absence, Maybe, Unavailable
from ..report.device_report import DeviceReport
from ..report.gpu_identity import GUEST
from ..report.tables import read_tables
from .instances import ask_licences
from .values import LicensableFeatures

GUEST_VIEWS = ("passthrough", GUEST)
"""The virtualization modes of a GPU in a guest (guide 3.3.1)."""

_TABLES = read_tables("nvml.toml")
GUEST_ABSENCES: dict[str, Unavailable] = {
    f"nvmlDeviceGet{name}": Unavailable(Absence.DOES_NOT_APPLY, reason)
    for reason, names in _TABLES["guest"].items()
    for name in names.split()
}
"""Why NVML functions are meaningless on a vGPU; the keys are the functions' names in the guide (3.3.2)."""
LATER_NAMES: dict[str, str] = {
    f"nvmlDeviceGet{later}": f"nvmlDeviceGet{guide}"
    for guide, names in _TABLES["later_names"].items()
    for later in names.split()
}
"""The function in the guide that each newer function replaces; the keys are the names of the newer functions."""


def guest_absence(function_name: str) -> Unavailable | None:
    """Return why an NVML function is meaningless on a vGPU; None if the function has a meaning (guide 3.3.2)."""
    return GUEST_ABSENCES.get(LATER_NAMES.get(function_name, function_name))


@dataclass(frozen=True, slots=True)
class EngineUse:
    """How busy the engines are, as a guest sees it (guide 3.2); ``hosted.py`` explains the percentages."""

    graphics_percent: Maybe[int]
    memory_controller_percent: Maybe[int]
    encoder_percent: Maybe[int]
    decoder_percent: Maybe[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuGuestReport:
    """A GPU as a guest sees it."""

    view: str  # one of ``GUEST_VIEWS``
    uuid: Maybe[str]
    uuid_is_stable: bool
    pci_bus_id: Maybe[str]
    use: EngineUse
    licences: Maybe[LicensableFeatures]
    does_not_apply: dict[str, Unavailable]  # why NVML functions were not called, by function name


def vgpu_guest_report(device: DeviceReport, questions: DeviceQuestions) -> VgpuGuestReport:
    """Return the report of a GPU in a guest; never raises."""
    is_vgpu, use = device.virtualization == GUEST, device.use
    return VgpuGuestReport(
        view=str(device.virtualization),
        uuid=device.uuid,
        uuid_is_stable=not is_vgpu,
        pci_bus_id=device.pci_bus_id,
        use=EngineUse(use.gpu_percent, use.memory_percent, use.encoder_percent, use.decoder_percent),
        licences=ask_licences(questions),
        does_not_apply=dict(GUEST_ABSENCES) if is_vgpu else {},
    )
