"""Scaling and pixel conversion on the GPU, and copies to the host."""

from .converting import SurfaceConversion, SurfaceConverter
from .packing import PackingKernels

__all__ = ["PackingKernels", "SurfaceConversion", "SurfaceConverter"]
