"""All GPUs of a machine: probed once, and polled for health."""

from .hardware import MIB, MigProfileFacts, VgpuTypeEntry, load_hardware
from .live_health import DeviceHealth

__all__ = ["MIB", "DeviceHealth", "MigProfileFacts", "VgpuTypeEntry", "load_hardware"]
