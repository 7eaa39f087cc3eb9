"""Queries a GPU through NVML."""

from .calls import can_load_nvml
from .gpm import METRICS

__all__ = ["METRICS", "can_load_nvml"]
