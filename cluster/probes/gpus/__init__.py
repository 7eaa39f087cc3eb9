"""Probes all GPUs of a machine once, and polls their health."""

from .hardware import MIB, MigProfileFacts, VgpuTypeEntry, load_hardware
from .live_health import DeviceHealth

__all__ = ["MIB", "DeviceHealth", "MigProfileFacts", "VgpuTypeEntry", "load_hardware"]
