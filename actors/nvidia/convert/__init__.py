"""Scaling and pixel conversion on the GPU, and copies to the host."""

from .device_pictures import PicturePool
from .surface_converter import SurfaceConversion, SurfaceConverter

__all__ = ["PicturePool", "SurfaceConversion", "SurfaceConverter"]
