"""The answers of a fake device to queries about identity, use, sessions, health and rarely used facts."""

from typing import Any

import pynvml

from .fake_nvml_state import Answer, FakeNvmlDevice, refuse

AMPERE, HOPPER = 7, 9
SAMPLING_PERIOD_US = 167_000
SAMPLED_AT_US = 1_700_000_000_000_000
UNCORRECTED = 1
NO_INSTANCE = 0xFFFFFFFF
CODEC_NUMBERS = {"h264": 0, "hevc": 1, "av1": 2}


def _queries(names: str) -> frozenset[str]:
    return frozenset(f"nvmlDeviceGet{name}" for name in names.split())


# The functions that a guest's driver does not support (vGPU Management SDK guide, 3.3.2), also under later names.
GUEST_REFUSES = _queries(
    """
    Serial BoardPartNumber InforomImageVersion InforomVersion GpuOperationMode MaxPcieLinkGeneration
    CurrPcieLinkGeneration MaxPcieLinkWidth CurrPcieLinkWidth BridgeChipInfo PcieReplayCounter PcieThroughput
    FanSpeed SupportedClocksThrottleReasons CurrentClocksThrottleReasons SupportedClocksEventReasons
    CurrentClocksEventReasons Temperature TemperatureV TemperatureThreshold PowerManagementMode PowerUsage
    PowerManagementLimit PowerManagementDefaultLimit EnforcedPowerLimit PowerManagementLimitConstraints EccMode
    MemoryErrorCounter TotalEccErrors RetiredPages RetiredPagesPendingStatus ApplicationsClock
    DefaultApplicationsClock MaxClockInfo AutoBoostedClocksEnabled
    """
)
# A guest sees neither MIG nor the health of the board (documented for ECC, not measured for these functions).
GUEST_LACKS = _queries("MigMode GpuInstanceProfileInfoV RemappedRows TotalEnergyConsumption")
# The only functions that NVML supports on a Tegra SoC (documented, not measured).
IGPU_ANSWERS = _queries(
    "Name UUID PciInfo Index Architecture CudaComputeCapability UtilizationRates BusType VirtualizationMode"
)
# A GPU in MIG mode has no utilisation rates (NVML API Reference Manual).
MIG_REFUSES = _queries("UtilizationRates EncoderUtilization DecoderUtilization")
GEFORCE_REFUSES = _queries(
    """
    Serial BoardPartNumber EccMode TotalEccErrors MemoryErrorCounter RetiredPages RetiredPagesPendingStatus
    RemappedRows MigMode ApplicationsClock DefaultApplicationsClock
    """
)
# Features that no current device has: GPU operation modes (Kepler), bridge chips, auto boost, driver models of Windows.
NEVER_ANSWERED = _queries("GpuOperationMode BridgeChipInfo AutoBoostedClocksEnabled DriverModel")


def refusal(device: FakeNvmlDevice, function: str) -> int:
    """Return the code with which every device of this kind refuses a function; 0 if the device answers."""
    refuses = (
        (device.is_guest, function in GUEST_REFUSES | GUEST_LACKS),
        (device.is_igpu, function not in IGPU_ANSWERS),
        (device.is_geforce, function in GEFORCE_REFUSES),
        (device.simulated.mig_enabled, function in MIG_REFUSES),
        (True, function in NEVER_ANSWERED),
    )
    return pynvml.NVML_ERROR_NOT_SUPPORTED if any(applies and refused for applies, refused in refuses) else 0


def check(device: FakeNvmlDevice, function: str, *, of_a_part: bool = False) -> None:
    """Refuse a query if the device is lost, has a fault for the query, or is of a kind that does not answer it."""
    if device.lost_code:
        refuse(device.lost_code)
    if function in device.faults:
        refuse(device.faults[function])
    refused = 0 if of_a_part else refusal(device, function)
    if refused:
        refuse(refused)


def _percent(attribute: str) -> Answer:
    return lambda device, *_: [getattr(device, attribute), SAMPLING_PERIOD_US]


def _pci(device: FakeNvmlDevice) -> Any:
    bus_id = device.simulated.pci_bus_id
    return pynvml.nvmlPciInfo_t(busId=bus_id.encode(), busIdLegacy=bus_id[-12:].encode())


def _memory(device: FakeNvmlDevice, version: int | None = None) -> Any:
    total, used = device.simulated.memory_bytes, device.used_bytes
    structure = pynvml.c_nvmlMemory_v2_t if version else pynvml.c_nvmlMemory_t
    return structure(total=total, used=used, free=total - used)


def encoder_stats(sessions: list[Any]) -> tuple[int, int, int]:
    """Return totals over sessions as NVML does: their number, average rate and latency."""
    count = len(sessions)
    if not count:
        return 0, 0, 0
    return count, sum(each.fps for each in sessions) // count, sum(each.latency_us for each in sessions) // count


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


def _brand(device: FakeNvmlDevice) -> int:
    if device.is_guest:
        return int(pynvml.NVML_BRAND_NVIDIA_VWS)
    return int(pynvml.NVML_BRAND_GEFORCE if device.is_geforce else pynvml.NVML_BRAND_NVIDIA)


def _max_clock(device: FakeNvmlDevice, clock: int) -> int:
    video = device.simulated.max_video_clock_mhz
    if clock == pynvml.NVML_CLOCK_VIDEO:
        return video if video is not None else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return 1980


def _fan(device: FakeNvmlDevice) -> int:
    # Server cards have no fans.
    return 30 if device.is_geforce else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _inforom(device: FakeNvmlDevice, kind: int) -> str:
    if kind == pynvml.NVML_INFOROM_POWER or (device.is_geforce and kind == pynvml.NVML_INFOROM_ECC):
        refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return "2.1"


def _before_ampere(value: object) -> Answer:
    # GPUs since Ampere remap rows instead of retiring pages.
    return lambda device, *_: value if device.architecture < AMPERE else refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)


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


_CONSTANTS: dict[str, object] = {
    "ClockInfo": 1200,
    "ApplicationsClock DefaultApplicationsClock": 1980,
    "Serial": "1650000000000",
    "BoardPartNumber": "900-2G500-0000-000",
    "InforomImageVersion": "G520.0212.00.04",
    "NumGpuCores": 16896,
    "MemoryBusWidth": 6144,
    "PersistenceMode PowerManagementMode": 1,
    "AccountingMode DisplayActive PcieReplayCounter PerformanceState": 0,
    "MaxPcieLinkGeneration CurrPcieLinkGeneration": 5,
    "MaxPcieLinkWidth CurrPcieLinkWidth": 16,
    "PcieThroughput": 1024,
    "SupportedClocksThrottleReasons": int(pynvml.nvmlClocksThrottleReasonAll),
    "SupportedClocksEventReasons": int(pynvml.nvmlClocksEventReasonAll),
    "Temperature TemperatureV": 31,
    "TemperatureThreshold": 90,
    "PowerUsage": 75_500,
    "PowerManagementLimit PowerManagementDefaultLimit EnforcedPowerLimit": 700_000,
    "TotalEnergyConsumption": 123_456,
    "GpuOperationMode BridgeChipInfo AutoBoostedClocksEnabled DriverModel": None,
}
"""Keys are function names without "nvmlDeviceGet". If a value is None, every device refuses the query
(NEVER_ANSWERED)."""


def _constant(value: object) -> Answer:
    return lambda *_: value


DEVICE_ANSWERS: dict[str, Answer] = {
    "nvmlDeviceGetUUID": lambda device: device.simulated.uuid,
    "nvmlDeviceGetName": lambda device: device.simulated.name,
    "nvmlDeviceGetBrand": _brand,
    "nvmlDeviceGetIndex": lambda device: device.index,
    "nvmlDeviceGetMinorNumber": lambda device: device.index,
    "nvmlDeviceGetPciInfo": _pci,
    "nvmlDeviceGetArchitecture": lambda device: device.architecture,
    "nvmlDeviceGetCudaComputeCapability": lambda device: device.capability,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetVirtualizationMode": lambda device: 2 if device.is_guest else device.simulated.virtualization,
    "nvmlDeviceGetUtilizationRates": lambda device: pynvml.c_nvmlUtilization_t(
        device.gpu_percent, device.memory_percent
    ),
    "nvmlDeviceGetEncoderUtilization": _percent("encoder_percent"),
    "nvmlDeviceGetDecoderUtilization": _percent("decoder_percent"),
    "nvmlDeviceGetEncoderStats": lambda device: encoder_stats(device.sessions),
    "nvmlDeviceGetEncoderSessions": lambda device: encoder_sessions(device.sessions),
    "nvmlDeviceGetComputeRunningProcesses_v3": _compute_processes,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": lambda _: [],
    "nvmlDeviceGetProcessUtilization": _process_samples,
    "nvmlDeviceGetMaxClockInfo": _max_clock,
    "nvmlDeviceGetVbiosVersion": lambda device: "00.00.00.00.00" if device.is_guest else "96.00.AF.00.01",
    "nvmlDeviceGetInforomVersion": _inforom,
    "nvmlDeviceGetGspFirmwareVersion": lambda device: device.node.driver.encode(),
    "nvmlDeviceGetBusType": lambda device: pynvml.NVML_BUS_TYPE_FPCI if device.is_igpu else pynvml.NVML_BUS_TYPE_PCIE,
    "nvmlDeviceGetComputeMode": lambda device: (
        pynvml.NVML_COMPUTEMODE_PROHIBITED if device.is_guest else pynvml.NVML_COMPUTEMODE_DEFAULT
    ),
    "nvmlDeviceGetFanSpeed": _fan,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda device: device.clock_reasons,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda device: device.clock_reasons,
    "nvmlDeviceGetPowerManagementLimitConstraints": lambda _: [200_000, 700_000],
    "nvmlDeviceGetEccMode": lambda _: [1, 1],
    "nvmlDeviceGetTotalEccErrors": lambda device, error, _: device.ecc_uncorrected if error == UNCORRECTED else 0,
    "nvmlDeviceGetMemoryErrorCounter": _memory_errors,
    "nvmlDeviceGetRetiredPages": _before_ampere([]),
    "nvmlDeviceGetRetiredPagesPendingStatus": _before_ampere(0),
    "nvmlDeviceGetRemappedRows": _remapped_rows,
    "nvmlDeviceGetFieldValues": _fields,
    "nvmlDeviceGetSupportedEventTypes": lambda device: 0 if device.is_igpu else int(pynvml.nvmlEventTypeAll),
    **{name: _constant(value) for names, value in _CONSTANTS.items() for name in _queries(names)},
}
"""For each NVML function, the answer about a ``FakeNvmlDevice``."""
