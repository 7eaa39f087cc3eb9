"""Scaling, pixel conversion and tensors on the GPU, and copies to the host."""

from .converting import SurfaceConversion, SurfaceConverter
from .packing import PackingKernels
from .tensor_kernel import TensorKernels, TensorLaunch, TensorWork

__all__ = [
    "PackingKernels",
    "SurfaceConversion",
    "SurfaceConverter",
    "TensorKernels",
    "TensorLaunch",
    "TensorWork",
]
