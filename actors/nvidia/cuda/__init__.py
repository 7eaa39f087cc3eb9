"""CUDA contexts, streams, memory and kernels."""

from .buffer_pool import BufferPool
from .context import Cuda, Stream

__all__ = ["BufferPool", "Cuda", "Stream"]
