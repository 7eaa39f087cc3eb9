"""How a faked device answers NVML's device queries: identity, use, sessions, health, and the long tail."""

from typing import Any

import pynvml

from ...cluster.probes.report import Engine
from .fake_nvml_state import Answer, FakeNvmlDevice, refuse

__all__ = ["DEVICE_ANSWERS", "check"]

AMPERE, ADA, HOPPER = 7, 8, 9
SAMPLING_PERIOD_US = 167_000
SAMPLED_AT_US = 1_700_000_000_000_000
UNCORRECTED = 1
NO_INSTANCE = 0xFFFFFFFF
CODEC_NUMBERS = {"h264": 0, "hevc": 1, "av1": 2}
AV1_QUERY = 2

# vGPU Management SDK guide, 3.3.2: what a guest's driver answers with NOT_SUPPORTED, later names included.
GUEST_REFUSES = frozenset(
    {
        "nvmlDeviceGetSerial",
        "nvmlDeviceGetBoardPartNumber",
        "nvmlDeviceGetInforomImageVersion",
        "nvmlDeviceGetInforomVersion",
        "nvmlDeviceGetGpuOperationMode",
        "nvmlDeviceGetMaxPcieLinkGeneration",
        "nvmlDeviceGetCurrPcieLinkGeneration",
        "nvmlDeviceGetMaxPcieLinkWidth",
        "nvmlDeviceGetCurrPcieLinkWidth",
        "nvmlDeviceGetBridgeChipInfo",
        "nvmlDeviceGetPcieReplayCounter",
        "nvmlDeviceGetPcieThroughput",
        "nvmlDeviceGetFanSpeed",
        "nvmlDeviceGetSupportedClocksThrottleReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetSupportedClocksEventReasons",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetTemperatureThreshold",
        "nvmlDeviceGetPowerManagementMode",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetPowerManagementLimit",
        "nvmlDeviceGetPowerManagementDefaultLimit",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetPowerManagementLimitConstraints",
        "nvmlDeviceGetEccMode",
        "nvmlDeviceGetMemoryErrorCounter",
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetRetiredPages",
        "nvmlDeviceGetRetiredPagesPendingStatus",
        "nvmlDeviceGetApplicationsClock",
        "nvmlDeviceGetDefaultApplicationsClock",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetAutoBoostedClocksEnabled",
    }
)
# A guest has no MIG and none of the health of the board (documented for ECC, not measured for these).
GUEST_LACKS = frozenset(
    {
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetGpuInstanceProfileInfoV",
        "nvmlDeviceGetGpuInstanceProfileInfo",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetTotalEnergyConsumption",
    }
)
# What a Tegra SoC's NVML answers at all (documented, not measured).
IGPU_ANSWERS = frozenset(
    {
        "nvmlDeviceGetName",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetPciInfo",
        "nvmlDeviceGetIndex",
        "nvmlDeviceGetArchitecture",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetBusType",
        "nvmlDeviceGetVirtualizationMode",
    }
)
# NVML API Reference Manual: no utilisation rates for a GPU in MIG mode.
MIG_REFUSES = frozenset(
    {
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetEncoderUtilization",
        "nvmlDeviceGetDecoderUtilization",
        "nvmlDeviceGetJpgUtilization",
        "nvmlDeviceGetOfaUtilization",
    }
)
GEFORCE_REFUSES = frozenset(
    {
        "nvmlDeviceGetSerial",
        "nvmlDeviceGetBoardPartNumber",
        "nvmlDeviceGetEccMode",
        "nvmlDeviceGetTotalEccErrors",
        "nvmlDeviceGetMemoryErrorCounter",
        "nvmlDeviceGetRetiredPages",
        "nvmlDeviceGetRetiredPagesPendingStatus",
        "nvmlDeviceGetRemappedRows",
        "nvmlDeviceGetMigMode",
        "nvmlDeviceGetApplicationsClock",
        "nvmlDeviceGetDefaultApplicationsClock",
    }
)
# What no device of today has: GPU operation modes (Kepler), bridge chips, auto boost, and Windows' driver models.
NOBODY_ANSWERS = frozenset(
    {
        "nvmlDeviceGetGpuOperationMode",
        "nvmlDeviceGetBridgeChipInfo",
        "nvmlDeviceGetAutoBoostedClocksEnabled",
        "nvmlDeviceGetDriverModel",
    }
)


def refusal(device: FakeNvmlDevice, function: str) -> int:
    """Return the code with which a device of this kind refuses a function whatever is asked, 0 where it answers."""
    refuses = (
        (device.is_guest, function in GUEST_REFUSES | GUEST_LACKS),
        (device.is_igpu, function not in IGPU_ANSWERS),
        (device.is_geforce, function in GEFORCE_REFUSES),
        (device.simulated.mig_enabled, function in MIG_REFUSES),
        (True, function in NOBODY_ANSWERS),
    )
    return pynvml.NVML_ERROR_NOT_SUPPORTED if any(applies and refused for applies, refused in refuses) else 0


def check(device: FakeNvmlDevice, function: str, *, of_a_part: bool = False) -> None:
    """Refuse a question to a device that is lost, has a fault there, or (asked as a whole) does not answer it."""
    if device.lost_code:
        refuse(device.lost_code)
    if function in device.faults:
        refuse(device.faults[function])
    refused = 0 if of_a_part else refusal(device, function)
    if refused:
        refuse(refused)


def _value(value: object) -> Answer:
    return lambda *_: value


def _percent(attribute: str) -> Answer:
    return lambda device, *_: [getattr(device, attribute), SAMPLING_PERIOD_US]


def _uuid(device: FakeNvmlDevice) -> str:
    return device.simulated.uuid


def _pci(device: FakeNvmlDevice) -> Any:
    bus_id = device.simulated.pci_bus_id
    return pynvml.nvmlPciInfo_t(busId=bus_id.encode(), busIdLegacy=bus_id[-12:].encode())


def _memory(device: FakeNvmlDevice, version: int | None = None) -> Any:
    total, used = device.simulated.memory_bytes, device.used_bytes
    structure = pynvml.c_nvmlMemory_v2_t if version else pynvml.c_nvmlMemory_t
    return structure(total=total, used=used, free=total - used)


def _rates(device: FakeNvmlDevice) -> Any:
    return pynvml.c_nvmlUtilization_t(gpu=device.gpu_percent, memory=device.memory_percent)


def _capacity(device: FakeNvmlDevice, query: int) -> int:
    # Measured on an H200: 100 for H.264 and HEVC although it has no encoder. It proves nothing.
    if query == AV1_QUERY and (device.architecture < ADA or not device.simulated.engines.get(Engine.NVENC)):
        refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return 100


def _encoder_stats(device: FakeNvmlDevice) -> tuple[int, int, int]:
    return encoder_stats(device.sessions)


def encoder_stats(sessions: list[Any]) -> tuple[int, int, int]:
    """Return what NVML says of sessions together: how many, and their average rate and latency."""
    count = len(sessions)
    if not count:
        return 0, 0, 0
    return count, sum(each.fps for each in sessions) // count, sum(each.latency_us for each in sessions) // count


def _encoder_sessions(device: FakeNvmlDevice) -> list[Any]:
    return encoder_sessions(device.sessions)


def encoder_sessions(sessions: list[Any], vgpu_instance: int = 0) -> list[Any]:
    """Return sessions as pynvml's structures."""
    return [
        pynvml.c_nvmlEncoderSession_t(
            sessionId=each.session,
            pid=each.pid,
            vgpuInstance=vgpu_instance,
            codecType=CODEC_NUMBERS[each.codec],
            hResolution=each.width,
            vResolution=each.height,
            averageFps=each.fps,
            encodeLatency=each.latency_us,
        )
        for each in sessions
    ]


def _compute_processes(device: FakeNvmlDevice) -> list[Any]:
    return [
        pynvml.nvmlFriendlyObject(
            {
                "pid": each.pid,
                "usedGpuMemory": each.memory_bytes,
                "gpuInstanceId": NO_INSTANCE,
                "computeInstanceId": NO_INSTANCE,
            }
        )
        for each in device.processes
    ]


def _process_samples(device: FakeNvmlDevice, since_us: int) -> list[Any]:
    if not device.processes or since_us >= SAMPLED_AT_US:
        refuse(pynvml.NVML_ERROR_NOT_FOUND)
    return [
        pynvml.c_nvmlProcessUtilizationSample_t(
            pid=each.pid,
            timeStamp=SAMPLED_AT_US,
            smUtil=each.sm_percent or 0,
            encUtil=each.encoder_percent or 0,
            decUtil=each.decoder_percent or 0,
        )
        for each in device.processes
    ]


def _virtualization(device: FakeNvmlDevice) -> int:
    return 2 if device.is_guest else device.simulated.virtualization


def _brand(device: FakeNvmlDevice) -> int:
    if device.is_guest:
        return int(pynvml.NVML_BRAND_NVIDIA_VWS)
    return int(pynvml.NVML_BRAND_GEFORCE if device.is_geforce else pynvml.NVML_BRAND_NVIDIA)


def _vbios(device: FakeNvmlDevice) -> str:
    return "00.00.00.00.00" if device.is_guest else "96.00.AF.00.01"


def _compute_mode(device: FakeNvmlDevice) -> int:
    return int(pynvml.NVML_COMPUTEMODE_PROHIBITED if device.is_guest else pynvml.NVML_COMPUTEMODE_DEFAULT)


def _max_clock(device: FakeNvmlDevice, clock: int) -> int:
    video = device.simulated.max_video_clock_mhz
    if clock == pynvml.NVML_CLOCK_VIDEO:
        return video if video is not None else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return 1980


def _fan(device: FakeNvmlDevice) -> int:
    # Cards for servers are cooled by the server's fans.
    return 30 if device.is_geforce else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _inforom(device: FakeNvmlDevice, kind: int) -> str:
    if kind == pynvml.NVML_INFOROM_POWER or (device.is_geforce and kind == pynvml.NVML_INFOROM_ECC):
        refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return "2.1"


def _ecc_errors(device: FakeNvmlDevice, error: int, _counter: int) -> int:
    return device.ecc_uncorrected if error == UNCORRECTED else 0


def _retired_pages(device: FakeNvmlDevice, _cause: int) -> list[int]:
    # From Ampere on, rows are remapped instead.
    return [] if device.architecture < AMPERE else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _retirement_pending(device: FakeNvmlDevice) -> int:
    return 0 if device.architecture < AMPERE else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _remapped_rows(device: FakeNvmlDevice) -> tuple[int, int, int, int]:
    return (
        (0, 0, device.remapping_pending, 0)
        if device.architecture >= AMPERE
        else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    )


def _memory_errors(_device: FakeNvmlDevice, _error: int, _counter: int, location: int) -> int:
    known = (pynvml.NVML_MEMORY_LOCATION_DRAM, pynvml.NVML_MEMORY_LOCATION_SRAM)
    return 0 if location in known else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _fields(device: FakeNvmlDevice, wanted: list[int]) -> Any:
    values = (pynvml.c_nvmlFieldValue_t * len(wanted))()
    for value, number in zip(values, wanted, strict=True):
        value.fieldId = number
        value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
        if number == pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION and device.architecture >= HOPPER:
            value.value.uiVal = device.recovery_action
        else:
            value.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
    return values


def _event_types(device: FakeNvmlDevice) -> int:
    return 0 if device.is_igpu else int(pynvml.nvmlEventTypeAll)


DEVICE_ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetUUID": _uuid,
    "nvmlDeviceGetName": lambda device: device.simulated.name,
    "nvmlDeviceGetBrand": _brand,
    "nvmlDeviceGetIndex": lambda device: device.index,
    "nvmlDeviceGetMinorNumber": lambda device: device.index,
    "nvmlDeviceGetPciInfo": _pci,
    "nvmlDeviceGetPciInfo_v3": _pci,
    "nvmlDeviceGetArchitecture": lambda device: device.architecture,
    "nvmlDeviceGetCudaComputeCapability": lambda device: device.capability,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetVirtualizationMode": _virtualization,
    "nvmlDeviceGetUtilizationRates": _rates,
    "nvmlDeviceGetEncoderUtilization": _percent("encoder_percent"),
    "nvmlDeviceGetDecoderUtilization": _percent("decoder_percent"),
    "nvmlDeviceGetJpgUtilization": _percent("jpeg_percent"),
    "nvmlDeviceGetOfaUtilization": _percent("ofa_percent"),
    "nvmlDeviceGetEncoderCapacity": _capacity,
    "nvmlDeviceGetEncoderStats": _encoder_stats,
    "nvmlDeviceGetEncoderSessions": _encoder_sessions,
    "nvmlDeviceGetComputeRunningProcesses": _compute_processes,
    "nvmlDeviceGetComputeRunningProcesses_v3": _compute_processes,
    "nvmlDeviceGetComputeRunningProcesses_v2": _compute_processes,
    "nvmlDeviceGetGraphicsRunningProcesses": lambda _: [],
    "nvmlDeviceGetGraphicsRunningProcesses_v3": lambda _: [],
    "nvmlDeviceGetGraphicsRunningProcesses_v2": lambda _: [],
    "nvmlDeviceGetProcessUtilization": _process_samples,
    "nvmlDeviceGetMaxClockInfo": _max_clock,
    "nvmlDeviceGetClockInfo": _value(1200),
    "nvmlDeviceGetApplicationsClock": _value(1980),
    "nvmlDeviceGetDefaultApplicationsClock": _value(1980),
    "nvmlDeviceGetSerial": _value("1650000000000"),
    "nvmlDeviceGetBoardPartNumber": _value("900-2G500-0000-000"),
    "nvmlDeviceGetVbiosVersion": _vbios,
    "nvmlDeviceGetInforomImageVersion": _value("G520.0212.00.04"),
    "nvmlDeviceGetInforomVersion": _inforom,
    "nvmlDeviceGetGspFirmwareVersion": lambda device: device.node.driver.encode(),
    "nvmlDeviceGetBusType": lambda device: pynvml.NVML_BUS_TYPE_FPCI if device.is_igpu else pynvml.NVML_BUS_TYPE_PCIE,
    "nvmlDeviceGetNumGpuCores": _value(16896),
    "nvmlDeviceGetMemoryBusWidth": _value(6144),
    "nvmlDeviceGetComputeMode": _compute_mode,
    "nvmlDeviceGetPersistenceMode": _value(1),
    "nvmlDeviceGetAccountingMode": _value(0),
    "nvmlDeviceGetDisplayActive": _value(0),
    "nvmlDeviceGetMaxPcieLinkGeneration": _value(5),
    "nvmlDeviceGetCurrPcieLinkGeneration": _value(5),
    "nvmlDeviceGetMaxPcieLinkWidth": _value(16),
    "nvmlDeviceGetCurrPcieLinkWidth": _value(16),
    "nvmlDeviceGetPcieReplayCounter": _value(0),
    "nvmlDeviceGetPcieThroughput": _value(1024),
    "nvmlDeviceGetFanSpeed": _fan,
    "nvmlDeviceGetSupportedClocksThrottleReasons": _value(int(pynvml.nvmlClocksThrottleReasonAll)),
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda device: device.clock_reasons,
    "nvmlDeviceGetSupportedClocksEventReasons": _value(int(pynvml.nvmlClocksEventReasonAll)),
    "nvmlDeviceGetCurrentClocksEventReasons": lambda device: device.clock_reasons,
    "nvmlDeviceGetTemperature": _value(31),
    "nvmlDeviceGetTemperatureV": _value(31),
    "nvmlDeviceGetTemperatureThreshold": _value(90),
    "nvmlDeviceGetPerformanceState": _value(0),
    "nvmlDeviceGetPowerManagementMode": _value(1),
    "nvmlDeviceGetPowerUsage": _value(75_500),
    "nvmlDeviceGetPowerManagementLimit": _value(700_000),
    "nvmlDeviceGetPowerManagementDefaultLimit": _value(700_000),
    "nvmlDeviceGetEnforcedPowerLimit": _value(700_000),
    "nvmlDeviceGetPowerManagementLimitConstraints": lambda _: [200_000, 700_000],
    "nvmlDeviceGetTotalEnergyConsumption": _value(123_456),
    "nvmlDeviceGetEccMode": lambda _: [1, 1],
    "nvmlDeviceGetTotalEccErrors": _ecc_errors,
    "nvmlDeviceGetMemoryErrorCounter": _memory_errors,
    "nvmlDeviceGetRetiredPages": _retired_pages,
    "nvmlDeviceGetRetiredPagesPendingStatus": _retirement_pending,
    "nvmlDeviceGetRemappedRows": _remapped_rows,
    "nvmlDeviceGetFieldValues": _fields,
    "nvmlDeviceGetSupportedEventTypes": _event_types,
    # Refused by every device that is simulated here, see NOBODY_ANSWERS.
    "nvmlDeviceGetGpuOperationMode": _value(None),
    "nvmlDeviceGetBridgeChipInfo": _value(None),
    "nvmlDeviceGetAutoBoostedClocksEnabled": _value(None),
    "nvmlDeviceGetDriverModel": _value(None),
}
"""Function to what answers it; the subject is a ``FakeNvmlDevice``."""
