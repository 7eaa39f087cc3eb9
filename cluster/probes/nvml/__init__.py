"""What NVML says of a GPU."""

from .gpm import METRICS

__all__ = ["METRICS"]
