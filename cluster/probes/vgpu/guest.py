"""A GPU as its virtual machine sees it (vGPU Management SDK guide, chapter 3). Documented, not measured."""

from dataclasses import dataclass
from enum import Enum

from ..nvml.calls import DeviceQuestions, NvmlLike, read_text
from ..report.absence import Absence, Maybe, Unavailable
from .instances import read_licensable_features
from .values import LicensableFeatures, VirtualizationMode, virtualization


class GuestReturn(Enum):
    """What NVML gives on a vGPU for a property that does not apply to it."""

    NOT_SUPPORTED = "not supported"  #: the call fails with NVML_ERROR_NOT_SUPPORTED
    MEANINGLESS = "meaningless"  #: the call succeeds; its value says nothing about this device
    UNSTABLE = "unstable"  #: the call succeeds; its value names this device until the vGPU is created again
    WINDOWS_ONLY = "Windows only"  #: the call succeeds in a Windows guest; elsewhere there is no such thing


@dataclass(frozen=True, slots=True)
class GuestProperty:
    """A function that reads a property of a physical GPU, its section, and what a vGPU returns and why."""

    section: str
    function: str
    returns: GuestReturn
    meaning: str


_PCIE = "a vGPU does not expose its GPU's PCI Express link"
_POWER = "a vGPU does not expose its GPU's power"
_REFUSED, _MEANINGLESS = GuestReturn.NOT_SUPPORTED, GuestReturn.MEANINGLESS
_RANDOM = "a vGPU gets a random UUID: it selects the device now, and identifies nothing later"
_PROHIBITED = "a vGPU always says that compute is prohibited, also where it is allowed"
_WDDM = "only Windows has driver models, and a vGPU there is always WDDM"

# The guide prints the VBIOS' function as "nvmlDevicenvmlDeviceGetVbiosVersion": no such function was ever exported.
GUEST_PROPERTIES: tuple[GuestProperty, ...] = tuple(
    GuestProperty(f"3.3.2.{section}", f"nvmlDeviceGet{name}", returns, meaning)
    for section, returns, meaning, names in (
        (1, _REFUSED, "a vGPU has no serial number", "Serial"),
        (1, GuestReturn.UNSTABLE, _RANDOM, "UUID"),
        (1, _MEANINGLESS, "the VBIOS version of a vGPU is always zero", "VbiosVersion"),
        (1, _REFUSED, "a vGPU is not a board, so it has no part number", "BoardPartNumber"),
        (2, _REFUSED, "a vGPU does not expose the InfoROM", "InforomImageVersion InforomVersion"),
        (3, _REFUSED, "a vGPU has no GPU operation modes", "GpuOperationMode"),
        (3, _MEANINGLESS, _PROHIBITED, "ComputeMode"),
        (3, GuestReturn.WINDOWS_ONLY, _WDDM, "DriverModel"),
        (4, _REFUSED, _PCIE, "MaxPcieLinkGeneration CurrPcieLinkGeneration MaxPcieLinkWidth CurrPcieLinkWidth"),
        (4, _REFUSED, _PCIE, "BridgeChipInfo PcieReplayCounter PcieThroughput"),
        (
            5,
            _REFUSED,
            "a vGPU does not expose its GPU's fans, temperatures and throttling",
            "FanSpeed SupportedClocksThrottleReasons CurrentClocksThrottleReasons Temperature TemperatureThreshold",
        ),
        (6, _REFUSED, _POWER, "PowerManagementMode PowerUsage PowerManagementLimit PowerManagementDefaultLimit"),
        (6, _REFUSED, _POWER, "EnforcedPowerLimit PowerManagementLimitConstraints"),
        (
            7,
            _REFUSED,
            "ECC is not supported on a vGPU",
            "EccMode MemoryErrorCounter TotalEccErrors RetiredPages RetiredPagesPendingStatus",
        ),
        (
            8,
            _REFUSED,
            "a vGPU does not expose its GPU's clock settings",
            "ApplicationsClock DefaultApplicationsClock MaxClockInfo AutoBoostedClocksEnabled",
        ),
    )
    for name in names.split()
)
"""The functions in the tables of vGPU Management SDK guide 3.3.2, in the guide's order."""

LATER_NAMES: dict[str, str] = {
    f"nvmlDeviceGet{later}": f"nvmlDeviceGet{guide}"
    for guide, names in {
        "SupportedClocksThrottleReasons": "SupportedClocksEventReasons",
        "CurrentClocksThrottleReasons": "CurrentClocksEventReasons",
        "Temperature": "TemperatureV TemperatureV1",
        "FanSpeed": "FanSpeed_v2",
        "RetiredPages": "RetiredPages_v2",
        "DriverModel": "DriverModel_v1 DriverModel_v2 CurrentDriverModel PendingDriverModel",
        "EccMode": "CurrentEccMode PendingEccMode",
        "GpuOperationMode": "CurrentGpuOperationMode PendingGpuOperationMode",
    }.items()
    for later in names.split()
}
"""Functions that NVML and its Python package added after the guide was written, and the guide's one they stand for."""

GUEST_ABSENCES: dict[str, Unavailable] = {
    # A UUID that is random is still the one that CUDA_VISIBLE_DEVICES takes today, so it is asked for.
    row.function: Unavailable(Absence.DOES_NOT_APPLY, row.meaning)
    for row in GUEST_PROPERTIES
    if row.returns is not GuestReturn.UNSTABLE
}
"""NVML functions that say nothing on a vGPU, by the guide's name (3.3.2), with the reason."""


def guest_absence(function_name: str) -> Unavailable | None:
    """Return why an NVML function says nothing about a vGPU, or None where its answer counts (guide 3.3.2).

    Ask this before the call: some succeed on a vGPU with a value that misleads (a VBIOS of zero). ``nvmlDeviceGetUUID``
    counts: its random UUID selects the device for as long as it lives.
    """
    return GUEST_ABSENCES.get(LATER_NAMES.get(function_name, function_name))


class GuestView(Enum):
    """How a virtual machine came by its GPU."""

    PASSTHROUGH = "passthrough"  #: the whole GPU: every property applies
    VGPU = "vgpu"  #: a share of one: ``GUEST_ABSENCES`` do not


def passthrough_or_vgpu(mode: Maybe[VirtualizationMode]) -> Maybe[GuestView]:
    """Return whether a GPU is passed through or a vGPU, or why this machine is not its guest (guide 3.3.1)."""
    if isinstance(mode, Unavailable):
        return mode
    reason = f"this machine does not see the GPU as a guest: its virtualization mode is {mode.text}"
    views = {VirtualizationMode.PASSTHROUGH: GuestView.PASSTHROUGH, VirtualizationMode.VGPU: GuestView.VGPU}
    return views.get(mode) or Unavailable(Absence.DOES_NOT_APPLY, reason)


@dataclass(frozen=True, slots=True)
class EngineUse:
    """The engines whose use a guest sees, in percent of the most that it may occupy (guide 3.2).

    That is the whole engine under best effort and equal share, the vGPU's part under fixed share; a guest cannot ask.
    """

    graphics_percent: Maybe[int]
    memory_controller_percent: Maybe[int]
    encoder_percent: Maybe[int]
    decoder_percent: Maybe[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class VgpuGuestReport:
    """A GPU as its guest sees it. ``does_not_apply`` gives the reason for each NVML function that was not asked."""

    view: GuestView
    uuid: Maybe[str]
    uuid_is_stable: bool
    pci_bus_id: Maybe[str]
    use: EngineUse
    licences: Maybe[LicensableFeatures]
    does_not_apply: dict[str, Unavailable]


def probe_vgpu_guest(nvml: NvmlLike, handle: object) -> Maybe[VgpuGuestReport]:
    """Return what a virtual machine can know of its GPU, or why this machine is not the GPU's guest; never raises."""
    questions = DeviceQuestions(nvml, handle)
    view = passthrough_or_vgpu(questions.ask("nvmlDeviceGetVirtualizationMode", read=virtualization))
    if isinstance(view, Unavailable):
        return view
    return VgpuGuestReport(
        view=view,
        uuid=questions.ask("nvmlDeviceGetUUID", read=read_text),
        uuid_is_stable=view is GuestView.PASSTHROUGH,
        pci_bus_id=questions.ask("nvmlDeviceGetPciInfo", read=lambda pci: read_text(pci.busId)),
        use=_use(questions),
        licences=questions.ask("nvmlDeviceGetGridLicensableFeatures", read=read_licensable_features),
        does_not_apply=dict(GUEST_ABSENCES) if view is GuestView.VGPU else {},
    )


def _use(questions: DeviceQuestions) -> EngineUse:
    rates = questions.ask("nvmlDeviceGetUtilizationRates", read=lambda rates: (int(rates.gpu), int(rates.memory)))
    graphics, memory = (rates, rates) if isinstance(rates, Unavailable) else rates
    return EngineUse(
        graphics_percent=graphics,
        memory_controller_percent=memory,
        encoder_percent=questions.ask("nvmlDeviceGetEncoderUtilization", read=lambda pair: int(pair[0])),
        decoder_percent=questions.ask("nvmlDeviceGetDecoderUtilization", read=lambda pair: int(pair[0])),
    )
