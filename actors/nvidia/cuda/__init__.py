"""CUDA contexts, streams, memory and kernels."""

from .context import Cuda, Stream
from .memory import BufferPool

__all__ = ["BufferPool", "Cuda", "Stream"]
