"""What a vGPU does not have, as seen inside its virtual machine: tables only, from the vGPU Management SDK guide.

Read them through ``vgpu_guest.py``. Each table names its section. Property names are the guide's.
"""

from dataclasses import dataclass
from enum import Enum

__all__ = [
    "GUEST_PROPERTIES",
    "LATER_NAMES",
    "GuestProperty",
    "GuestReturn",
]


class GuestReturn(Enum):
    """What NVML gives on a vGPU for a property that does not apply to it."""

    NOT_SUPPORTED = "not supported"  #: the call fails with NVML_ERROR_NOT_SUPPORTED
    MEANINGLESS = "meaningless"  #: the call succeeds; its value says nothing about this device
    UNSTABLE = "unstable"  #: the call succeeds; its value names this device until the vGPU is made anew
    WINDOWS_ONLY = "Windows only"  #: the call succeeds in a Windows guest; elsewhere there is no such thing


@dataclass(frozen=True, slots=True)
class GuestProperty:
    """One row: a property of a physical GPU, the function that reads it, and what comes of that on a vGPU.

    ``meaning`` is one sentence without a full stop that says why.
    """

    section: str
    name: str
    function: str
    returns: GuestReturn
    meaning: str


def _refused(section: str, meaning: str, *rows: tuple[str, str]) -> tuple[GuestProperty, ...]:
    """Return a table all of whose functions answer NOT_SUPPORTED, for one reason."""
    return tuple(GuestProperty(section, name, function, GuestReturn.NOT_SUPPORTED, meaning) for name, function in rows)


_IDENTIFICATION = (
    *_refused(
        "3.3.2.1",
        "a vGPU has no serial number",
        ("Serial Number", "nvmlDeviceGetSerial"),
    ),
    GuestProperty(
        "3.3.2.1",
        "GPU UUID",
        "nvmlDeviceGetUUID",
        GuestReturn.UNSTABLE,
        "a vGPU gets a random UUID: it selects the device now, and identifies nothing later",
    ),
    # The guide prints this function as "nvmlDevicenvmlDeviceGetVbiosVersion": no such function was ever exported.
    GuestProperty(
        "3.3.2.1",
        "VBIOS Version",
        "nvmlDeviceGetVbiosVersion",
        GuestReturn.MEANINGLESS,
        "the VBIOS version of a vGPU is always zero",
    ),
    *_refused(
        "3.3.2.1",
        "a vGPU is no board, so it has no part number",
        ("GPU Part Number", "nvmlDeviceGetBoardPartNumber"),
    ),
)

_INFOROM = _refused(
    "3.3.2.2",
    "a vGPU does not expose the InfoROM",
    ("Image Version", "nvmlDeviceGetInforomImageVersion"),
    ("OEM Object", "nvmlDeviceGetInforomVersion"),
    ("ECC Object", "nvmlDeviceGetInforomVersion"),
    ("Power Management Object", "nvmlDeviceGetInforomVersion"),
)

_MODES = (
    *_refused(
        "3.3.2.3",
        "a vGPU has no GPU operation modes",
        ("GPU Operation Mode (Current)", "nvmlDeviceGetGpuOperationMode"),
        ("GPU Operation Mode (Pending)", "nvmlDeviceGetGpuOperationMode"),
    ),
    GuestProperty(
        "3.3.2.3",
        "Compute Mode",
        "nvmlDeviceGetComputeMode",
        GuestReturn.MEANINGLESS,
        "a vGPU always says that compute is prohibited, also where it is allowed",
    ),
    GuestProperty(
        "3.3.2.3",
        "Driver Model",
        "nvmlDeviceGetDriverModel",
        GuestReturn.WINDOWS_ONLY,
        "only Windows has driver models, and a vGPU there is always WDDM",
    ),
)

_PCI_EXPRESS = _refused(
    "3.3.2.4",
    "a vGPU does not expose its GPU's PCI Express link",
    ("Generation Max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    ("Generation Current", "nvmlDeviceGetCurrPcieLinkGeneration"),
    ("Link Width Max", "nvmlDeviceGetMaxPcieLinkWidth"),
    ("Link Width Current", "nvmlDeviceGetCurrPcieLinkWidth"),
    ("Bridge Chip Type", "nvmlDeviceGetBridgeChipInfo"),
    ("Bridge Chip Firmware", "nvmlDeviceGetBridgeChipInfo"),
    ("Replays", "nvmlDeviceGetPcieReplayCounter"),
    ("TX Throughput", "nvmlDeviceGetPcieThroughput"),
    ("RX Throughput", "nvmlDeviceGetPcieThroughput"),
)

_ENVIRONMENT = _refused(
    "3.3.2.5",
    "a vGPU does not expose its GPU's fans, temperatures and throttling",
    ("Fan Speed", "nvmlDeviceGetFanSpeed"),
    ("Clocks Throttle Reasons", "nvmlDeviceGetSupportedClocksThrottleReasons"),
    ("Clocks Throttle Reasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
    ("Current Temperature", "nvmlDeviceGetTemperature"),
    ("Current Temperature", "nvmlDeviceGetTemperatureThreshold"),
    ("Shutdown Temperature", "nvmlDeviceGetTemperature"),
    ("Shutdown Temperature", "nvmlDeviceGetTemperatureThreshold"),
    ("Slowdown Temperature", "nvmlDeviceGetTemperature"),
    ("Slowdown Temperature", "nvmlDeviceGetTemperatureThreshold"),
)

_POWER = _refused(
    "3.3.2.6",
    "a vGPU does not expose its GPU's power",
    ("Management Mode", "nvmlDeviceGetPowerManagementMode"),
    ("Draw", "nvmlDeviceGetPowerUsage"),
    ("Limit", "nvmlDeviceGetPowerManagementLimit"),
    ("Default Limit", "nvmlDeviceGetPowerManagementDefaultLimit"),
    ("Enforced Limit", "nvmlDeviceGetEnforcedPowerLimit"),
    ("Min Limit", "nvmlDeviceGetPowerManagementLimitConstraints"),
    ("Max Limit", "nvmlDeviceGetPowerManagementLimitConstraints"),
)

_ECC = _refused(
    "3.3.2.7",
    "ECC is not supported on a vGPU",
    ("Mode", "nvmlDeviceGetEccMode"),
    ("Error Counts", "nvmlDeviceGetMemoryErrorCounter"),
    ("Error Counts", "nvmlDeviceGetTotalEccErrors"),
    ("Retired Pages", "nvmlDeviceGetRetiredPages"),
    ("Retired Pages", "nvmlDeviceGetRetiredPagesPendingStatus"),
)

_CLOCKS = _refused(
    "3.3.2.8",
    "a vGPU does not expose its GPU's clock settings",
    ("Application Clocks", "nvmlDeviceGetApplicationsClock"),
    ("Default Application Clocks", "nvmlDeviceGetDefaultApplicationsClock"),
    ("Max Clocks", "nvmlDeviceGetMaxClockInfo"),
    ("Policy: Auto Boost", "nvmlDeviceGetAutoBoostedClocksEnabled"),
    ("Policy: Auto Boost Default", "nvmlDeviceGetAutoBoostedClocksEnabled"),
)

GUEST_PROPERTIES: tuple[GuestProperty, ...] = (
    *_IDENTIFICATION,
    *_INFOROM,
    *_MODES,
    *_PCI_EXPRESS,
    *_ENVIRONMENT,
    *_POWER,
    *_ECC,
    *_CLOCKS,
)
"""Every row of the tables of vGPU Management SDK guide 3.3.2, in the guide's order."""

LATER_NAMES: dict[str, str] = {
    "nvmlDeviceGetSupportedClocksEventReasons": "nvmlDeviceGetSupportedClocksThrottleReasons",
    "nvmlDeviceGetCurrentClocksEventReasons": "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetTemperatureV": "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureV1": "nvmlDeviceGetTemperature",
    "nvmlDeviceGetFanSpeed_v2": "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetRetiredPages_v2": "nvmlDeviceGetRetiredPages",
    "nvmlDeviceGetDriverModel_v1": "nvmlDeviceGetDriverModel",
    "nvmlDeviceGetDriverModel_v2": "nvmlDeviceGetDriverModel",
    "nvmlDeviceGetCurrentDriverModel": "nvmlDeviceGetDriverModel",
    "nvmlDeviceGetPendingDriverModel": "nvmlDeviceGetDriverModel",
    "nvmlDeviceGetCurrentEccMode": "nvmlDeviceGetEccMode",
    "nvmlDeviceGetPendingEccMode": "nvmlDeviceGetEccMode",
    "nvmlDeviceGetCurrentGpuOperationMode": "nvmlDeviceGetGpuOperationMode",
    "nvmlDeviceGetPendingGpuOperationMode": "nvmlDeviceGetGpuOperationMode",
}
"""Functions that NVML and its Python package added after the guide was written, and the guide's one they stand for."""
