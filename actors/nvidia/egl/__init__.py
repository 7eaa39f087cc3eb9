"""EGLStream, EGLImage and EGLSync with CUDA: frames are exchanged with other interfaces and processes."""

from .images import EglImage
from .streams import EglStream

__all__ = ["EglImage", "EglStream"]
