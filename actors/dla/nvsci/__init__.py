"""NvSci: NVIDIA's buffers and fences outside CUDA, for a standalone DLA."""

from .buffers import ALIGNMENT_BYTES, SciBuffer, SciBuffers
from .library import NvSciFailure
from .syncs import Fence, NvSci, Role, SciSyncs

__all__ = ["ALIGNMENT_BYTES", "Fence", "NvSci", "NvSciFailure", "Role", "SciBuffer", "SciBuffers", "SciSyncs"]
