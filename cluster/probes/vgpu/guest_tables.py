"""What a vGPU does not have, as seen inside its virtual machine: tables only, from the vGPU Management SDK guide."""

from dataclasses import dataclass
from enum import Enum


class GuestReturn(Enum):
    """What NVML gives on a vGPU for a property that does not apply to it."""

    NOT_SUPPORTED = "not supported"  #: the call fails with NVML_ERROR_NOT_SUPPORTED
    MEANINGLESS = "meaningless"  #: the call succeeds; its value says nothing about this device
    UNSTABLE = "unstable"  #: the call succeeds; its value names this device until the vGPU is created again
    WINDOWS_ONLY = "Windows only"  #: the call succeeds in a Windows guest; elsewhere there is no such thing


@dataclass(frozen=True, slots=True)
class GuestProperty:
    """A function that reads a property of a physical GPU, its section, and what comes of it on a vGPU.

    ``meaning`` is one sentence without a full stop that says why.
    """

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
