"""All GPUs of a machine: probed once, and polled for health."""

from .child import read_nvml
from .hardware import MIB, MigProfileFacts, VgpuType, load_hardware
from .live_health import DeviceHealth

__all__ = ["MIB", "DeviceHealth", "MigProfileFacts", "VgpuType", "load_hardware", "read_nvml"]
