"""Facts that people want to know of a GPU and that placement does not use: a table, and what asks it.

Every device query that the vGPU Management SDK guide names in 3.3.2 is here or in ``health.py``; on a vGPU's
guest they are not asked. Names carry their units. Functions that newer drivers have renamed are asked under both names
(throttle and event reasons, temperature): one of the two may be gone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..report.absence import Maybe
from .calls import CodeAnswered, DeviceQuestions, read_text

FactValue = str | int | float | bool

NOT_SUPPORTED = 3


@dataclass(frozen=True, slots=True)
class Fact:
    """One property: its name, the function, its arguments after the handle, and how to read the answer."""

    name: str
    function: str
    read: Callable[[Any], FactValue]
    arguments: tuple[int, ...] = ()


def probe_facts(questions: DeviceQuestions) -> dict[str, Maybe[FactValue]]:
    """Ask a device for every fact; never raises."""
    return {fact.name: questions.ask(fact.function, *fact.arguments, read=fact.read) for fact in FACTS}


def _item(position: int, read: Callable[[Any], FactValue] = int) -> Callable[[Any], FactValue]:
    return lambda values: read(values[position])


def _choice(names: dict[int, str]) -> Callable[[Any], FactValue]:
    return lambda value: names.get(int(value), f"unknown ({int(value)})")


def _enabled(value: int) -> bool:
    return int(value) == 1


def _watts(milliwatts: int) -> float:
    return int(milliwatts) / 1000


def read_reasons(mask: int) -> str:
    """Name the bits of a mask of clock reasons; "none" for no bit."""
    named = [name for bit, name in CLOCK_REASONS.items() if int(mask) & bit]
    rest = int(mask) & ~sum(CLOCK_REASONS)
    return ", ".join([*named, *([f"0x{rest:x}"] if rest else [])]) or "none"


def _bridge(member: str) -> Callable[[Any], FactValue]:
    def read(hierarchy: Any) -> FactValue:
        if int(hierarchy.bridgeCount) == 0:
            raise CodeAnswered(NOT_SUPPORTED)  # a board without a bridge has no bridge of type 0
        return int(getattr(hierarchy.bridgeChipInfo[0], member))

    return read


CLOCK_REASONS: dict[int, str] = {
    0x1: "idle",
    0x2: "applications clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clocks",
}
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
OPERATION_MODES = {0: "all on", 1: "compute", 2: "low double precision"}
DRIVER_MODELS = {0: "WDDM", 1: "WDM", 2: "MCDM"}
BUS_TYPES = {0: "unknown", 1: "PCI", 2: "PCIe", 3: "FPCI", 4: "AGP"}

_CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
_ERRORS = {"corrected": 0, "uncorrected": 1}
_COUNTERS = {"since_load": 0, "ever": 1}
_LOCATIONS = {"l1_cache": 0, "l2_cache": 1, "device_memory": 2, "register_file": 3, "texture_memory": 4, "sram": 7}

_BRAND_WORDS = (
    "unknown quadro tesla nvs grid geforce titan vapps vpc vcs vws cloudgaming quadrortx nvidiartx nvidia geforcertx"
    " titanrtx"
)
BRANDS = dict(enumerate(_BRAND_WORDS.split()))
"""nvmlBrandType_t, by the words that images have for them in NVIDIA_REQUIRE_CUDA."""

FACTS: tuple[Fact, ...] = (
    Fact("brand", "nvmlDeviceGetBrand", _choice(BRANDS)),
    Fact("serial", "nvmlDeviceGetSerial", read_text),
    Fact("board_part_number", "nvmlDeviceGetBoardPartNumber", read_text),
    Fact("vbios_version", "nvmlDeviceGetVbiosVersion", read_text),
    Fact("inforom_image_version", "nvmlDeviceGetInforomImageVersion", read_text),
    Fact("inforom_oem_version", "nvmlDeviceGetInforomVersion", read_text, (0,)),
    Fact("inforom_ecc_version", "nvmlDeviceGetInforomVersion", read_text, (1,)),
    Fact("inforom_power_version", "nvmlDeviceGetInforomVersion", read_text, (2,)),
    Fact("gsp_firmware_version", "nvmlDeviceGetGspFirmwareVersion", read_text),
    Fact("minor_number", "nvmlDeviceGetMinorNumber", int),
    Fact("bus_type", "nvmlDeviceGetBusType", _choice(BUS_TYPES)),
    Fact("gpu_cores", "nvmlDeviceGetNumGpuCores", int),
    Fact("memory_bus_bits", "nvmlDeviceGetMemoryBusWidth", int),
    Fact("gpu_operation_mode", "nvmlDeviceGetGpuOperationMode", _item(0, _choice(OPERATION_MODES))),
    Fact("gpu_operation_mode_pending", "nvmlDeviceGetGpuOperationMode", _item(1, _choice(OPERATION_MODES))),
    Fact("compute_mode", "nvmlDeviceGetComputeMode", _choice(COMPUTE_MODES)),
    Fact("driver_model", "nvmlDeviceGetDriverModel", _item(0, _choice(DRIVER_MODELS))),
    Fact("driver_model_pending", "nvmlDeviceGetDriverModel", _item(1, _choice(DRIVER_MODELS))),
    Fact("persistence_mode", "nvmlDeviceGetPersistenceMode", _enabled),
    Fact("accounting_mode", "nvmlDeviceGetAccountingMode", _enabled),
    Fact("display_active", "nvmlDeviceGetDisplayActive", _enabled),
    Fact("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", int),
    Fact("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", int),
    Fact("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", int),
    Fact("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", int),
    Fact("bridge_chip_type", "nvmlDeviceGetBridgeChipInfo", _bridge("type")),
    Fact("bridge_chip_firmware", "nvmlDeviceGetBridgeChipInfo", _bridge("fwVersion")),
    Fact("pcie_replays", "nvmlDeviceGetPcieReplayCounter", int),
    Fact("pcie_sent_kb_per_s", "nvmlDeviceGetPcieThroughput", int, (0,)),
    Fact("pcie_received_kb_per_s", "nvmlDeviceGetPcieThroughput", int, (1,)),
    Fact("fan_percent", "nvmlDeviceGetFanSpeed", int),
    Fact("clocks_throttle_reasons_supported", "nvmlDeviceGetSupportedClocksThrottleReasons", read_reasons),
    Fact("clocks_throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", read_reasons),
    Fact("clocks_event_reasons_supported", "nvmlDeviceGetSupportedClocksEventReasons", read_reasons),
    Fact("clocks_event_reasons", "nvmlDeviceGetCurrentClocksEventReasons", read_reasons),
    Fact("temperature_c", "nvmlDeviceGetTemperature", int, (0,)),
    Fact("temperature_sensor_c", "nvmlDeviceGetTemperatureV", int, (0,)),
    Fact("temperature_shutdown_c", "nvmlDeviceGetTemperatureThreshold", int, (0,)),
    Fact("temperature_slowdown_c", "nvmlDeviceGetTemperatureThreshold", int, (1,)),
    Fact("performance_state", "nvmlDeviceGetPerformanceState", int),
    Fact("power_management", "nvmlDeviceGetPowerManagementMode", _enabled),
    Fact("power_w", "nvmlDeviceGetPowerUsage", _watts),
    Fact("power_limit_w", "nvmlDeviceGetPowerManagementLimit", _watts),
    Fact("power_limit_default_w", "nvmlDeviceGetPowerManagementDefaultLimit", _watts),
    Fact("power_limit_enforced_w", "nvmlDeviceGetEnforcedPowerLimit", _watts),
    Fact("power_limit_min_w", "nvmlDeviceGetPowerManagementLimitConstraints", _item(0, _watts)),
    Fact("power_limit_max_w", "nvmlDeviceGetPowerManagementLimitConstraints", _item(1, _watts)),
    Fact("energy_j", "nvmlDeviceGetTotalEnergyConsumption", _watts),  # millijoules to joules
    Fact("ecc_enabled", "nvmlDeviceGetEccMode", _item(0, _enabled)),
    Fact("ecc_enabled_pending", "nvmlDeviceGetEccMode", _item(1, _enabled)),
    *(
        Fact(f"ecc_{error}_{counter}", "nvmlDeviceGetTotalEccErrors", int, (error_type, counter_type))
        for error, error_type in _ERRORS.items()
        for counter, counter_type in _COUNTERS.items()
    ),
    *(
        Fact(f"ecc_{error}_{place}", "nvmlDeviceGetMemoryErrorCounter", int, (error_type, 0, location))
        for error, error_type in _ERRORS.items()
        for place, location in _LOCATIONS.items()
    ),
    Fact("retired_pages_single_bit", "nvmlDeviceGetRetiredPages", len, (0,)),
    Fact("retired_pages_double_bit", "nvmlDeviceGetRetiredPages", len, (1,)),
    Fact("retired_pages_pending", "nvmlDeviceGetRetiredPagesPendingStatus", _enabled),
    Fact("remapped_rows_corrected", "nvmlDeviceGetRemappedRows", _item(0)),
    Fact("remapped_rows_uncorrected", "nvmlDeviceGetRemappedRows", _item(1)),
    Fact("remapped_rows_failed", "nvmlDeviceGetRemappedRows", _item(3, bool)),
    *(
        Fact(f"{prefix}{clock}_mhz", function, int, (number,))
        for prefix, function in (
            ("clock_", "nvmlDeviceGetClockInfo"),
            ("clock_max_", "nvmlDeviceGetMaxClockInfo"),
            ("clock_applications_", "nvmlDeviceGetApplicationsClock"),
            ("clock_applications_default_", "nvmlDeviceGetDefaultApplicationsClock"),
        )
        for clock, number in _CLOCKS.items()
    ),
    Fact("auto_boost", "nvmlDeviceGetAutoBoostedClocksEnabled", _item(0, _enabled)),
    Fact("auto_boost_default", "nvmlDeviceGetAutoBoostedClocksEnabled", _item(1, _enabled)),
)
"""Every fact, in the order of the vGPU Management SDK guide's 3.3.2 tables."""
