"""EGLStream, EGLImage and EGLSync beside CUDA: frames from and for other interfaces and processes."""

from .calls import egl_cuda
from .consumer import Acquired, ConsumerSession
from .images import EglImage
from .layout import EglLayout, layout_of, surface_name
from .producer import FrameMemory, ProducerSession
from .states import EndState
from .streams import EglStream, is_gone

__all__ = [
    "Acquired",
    "ConsumerSession",
    "EglImage",
    "EglLayout",
    "EglStream",
    "EndState",
    "FrameMemory",
    "ProducerSession",
    "egl_cuda",
    "is_gone",
    "layout_of",
    "surface_name",
]
