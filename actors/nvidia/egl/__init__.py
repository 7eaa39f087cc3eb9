"""EGLStream, EGLImage and EGLSync with CUDA: frames from and for other interfaces and processes."""

from .images import EglImage
from .streams import EglStream

__all__ = ["EglImage", "EglStream"]
