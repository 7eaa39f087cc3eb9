"""Scaling and pixel conversion on the GPU, and copies to the host."""

from .converting import SurfaceConversion, SurfaceConverter

__all__ = ["SurfaceConversion", "SurfaceConverter"]
