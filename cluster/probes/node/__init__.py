"""Probes a whole machine, and returns one report."""

from ..gpus.nvml_child import read_nvml
from .probe import probe_node
from .report import DeviceTrials, HostReport, NodeReport, SilentNode

__all__ = ["DeviceTrials", "HostReport", "NodeReport", "SilentNode", "probe_node", "read_nvml"]
