"""EGL interoperability on a Tegra: which CUDA functions there are, and the rules for using them.

From CUDA for Tegra, 4. The EGLStream, EGLImage or EGLSync itself is made by libEGL, which no package of ours binds; so
what is told here is whether CUDA's side could be used.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import ModuleType

from .absence import Absence, Maybe, NotApplicable
from .tegra_buffers import Rule

__all__ = [
    "ACTIVE_FRAMES_MAX",
    "EGL_FUNCTIONS",
    "EGL_NOTES",
    "EGL_PARTNERS",
    "EGL_RULES",
    "REGISTER_IMAGE_FLAGS",
    "EglFunctions",
    "FrameMemory",
    "Role",
    "StreamUse",
    "probe_egl",
    "stream_troubles",
]


class Role(Enum):
    """What CUDA is at an EGLStream, or which other interoperation a function serves."""

    PRODUCER = "producer"
    CONSUMER = "consumer"
    IMAGE = "image"
    SYNC = "sync"


EGL_FUNCTIONS: dict[str, tuple[Role, str]] = {
    "EGLStreamProducerConnect": (Role.PRODUCER, "connect"),
    "EGLStreamProducerPresentFrame": (Role.PRODUCER, "present a frame"),
    "EGLStreamProducerReturnFrame": (Role.PRODUCER, "obtain released frames"),
    "EGLStreamProducerDisconnect": (Role.PRODUCER, "disconnect"),
    "EGLStreamConsumerConnect": (Role.CONSUMER, "connect"),
    # Table 3 prints the driver's as "cuEGLStreamConsumeConnectWithFlags"; the function has the r.
    "EGLStreamConsumerConnectWithFlags": (Role.CONSUMER, "connect"),
    "EGLStreamConsumerAcquireFrame": (Role.CONSUMER, "acquire a frame"),
    "EGLStreamConsumerReleaseFrame": (Role.CONSUMER, "release the consumed frame"),
    "EGLStreamConsumerDisconnect": (Role.CONSUMER, "disconnect"),
    "GraphicsEGLRegisterImage": (Role.IMAGE, "register an EGLImage"),
    "GraphicsResourceGetMappedEglFrame": (Role.IMAGE, "get the frame behind a graphics resource"),
    "EventCreateFromEGLSync": (Role.SYNC, "make an event from an EGLSync"),
}
"""Table 3 of CUDA for Tegra, 4.2.1 and 4.3.3: each exists as ``cu...`` in the driver and ``cuda...`` in the runtime."""

ACTIVE_FRAMES_MAX = 64
"""CUDA presents no more frames than these to a stream that have not come back (4.1.2)."""

REGISTER_IMAGE_FLAGS = 0
"""The only flag that cudaGraphicsEGLRegisterImage() takes (4.2.1)."""


EGL_PARTNERS: dict[str, tuple[Role, ...]] = {
    "CUDA": (Role.PRODUCER, Role.CONSUMER),
    "NvMedia": (Role.PRODUCER, Role.CONSUMER),
    "OpenGL": (Role.PRODUCER, Role.CONSUMER),
    "Argus": (Role.PRODUCER,),
    "Camera": (Role.PRODUCER,),
}
"""Who may be at the other end of a stream, and in which role there (4.1.2, 4.1.3)."""


class FrameMemory(Enum):
    """How a frame lies in memory: cudaEglFrameType."""

    ARRAY = 0
    PITCH = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUse:
    """How an EGLStream is about to be used. Sizes are width x height in pixels."""

    consumer_connected_first: bool = True
    frames_active: int = 1
    frame_size: tuple[int, int] = (1, 1)
    connected_size: tuple[int, int] = (1, 1)
    frame_memory: FrameMemory = FrameMemory.PITCH
    same_gpu: bool = True
    consumer_writes: bool = False
    frame_was_released: bool = False


def _consumer_first(use: StreamUse) -> Rule:
    return Rule(use.consumer_connected_first, "the consumer must connect before the producer")


def _frames_active(use: StreamUse) -> Rule:
    return Rule(use.frames_active <= ACTIVE_FRAMES_MAX, f"CUDA presents at most {ACTIVE_FRAMES_MAX} active frames")


def _frame_size(use: StreamUse) -> Rule:
    return Rule(use.frame_size == use.connected_size, "a frame must have the size that the producer connected with")


def _same_gpu(use: StreamUse) -> Rule:
    holds = use.same_gpu or use.frame_memory is FrameMemory.PITCH
    return Rule(holds, "a frame that is a CUDA array cannot be consumed on another GPU")


def _consumer_reads(use: StreamUse) -> Rule:
    return Rule(not use.consumer_writes, "a consumer may only read frames")


def _frame_is_held(use: StreamUse) -> Rule:
    return Rule(not use.frame_was_released, "a consumer must not use a frame that it has released")


EGL_RULES: dict[str, Callable[[StreamUse], Rule]] = {
    "consumer connects first (4.1.1)": _consumer_first,
    "64 active frames (4.1.2)": _frames_active,
    "frame size (4.1.2)": _frame_size,
    "array frames stay on their GPU (4.1.5)": _same_gpu,
    "consumers read (4.1.3)": _consumer_reads,
    "released frames are gone (4.1.3)": _frame_is_held,
}
"""The rules of EGLStream whose breach CUDA does not report: most end in undefined behaviour."""


def stream_troubles(use: StreamUse) -> tuple[str, ...]:
    """Return what is wrong with using a stream so, each in a sentence without a full stop; nothing where all is well.

    What no check can see is in ``EGL_NOTES``.
    """
    rules = (rule(use) for rule in EGL_RULES.values())
    return tuple(rule.reason for rule in rules if not rule.holds)


EGL_NOTES: dict[str, str] = {
    "4.1.1": "libEGL creates and destroys streams: eglCreateStreamKHR(), eglDestroyStreamKHR()",
    "4.1.2 calls": "only connecting and disconnecting a producer block",
    "4.1.2 return": "returning a frame waits until the consumer has released one",
    "4.1.2 last frame": "the last frame stays in the stream unless EGL_SUPPORT_REUSE_NV is false",
    "4.1.3 calls": "only connecting and disconnecting a consumer block",
    "4.1.3 timeout": "an acquire that times out gives the previous frame again",
    "4.1.3 query": "eglQueryStreamKHR() tells whether a new frame has come",
    "4.1.3 context": "destroying the CUDA context disconnects the stream and ends the connection",
    "4.1.4": "acquiring waits on the GPU for the producer's work, returning for the consumer's",
    "4.1.5": "producer and consumer on different GPUs cost a copy",
    "4.1.6": "streams chain without copies: CUDA may consume from one and produce for the next",
    "4.2": "an EGLImage synchronises nothing: its users must",
    "4.2.1 source": "an EGLImage cannot be made from a CUDA object",
    "4.2.1 frame": "one plane is an array or a pointer, several planes are an array of either",
    "4.3.1": "an EGLSync is a CUDA event, on a Tegra only",
    "4.3.2": "an EGLSync is made from an event right after the event was recorded, never before it is initialised",
    "4.3.3": "an event that was made from an EGLSync takes no record and no elapsed time",
}
"""What no check of ours can see, by section: for whoever writes a session that uses EGL."""


@dataclass(frozen=True, slots=True)
class EglFunctions:
    """Which of CUDA's EGL functions the installed bindings have, by full name."""

    present: tuple[str, ...]
    missing: tuple[str, ...]


def probe_egl(importer: Callable[[str], ModuleType] = importlib.import_module) -> Maybe[EglFunctions]:
    """Say which EGL functions cuda-python binds; never raises. No driver is touched.

    Args:
        importer: how ``cuda.bindings.driver`` and ``cuda.bindings.runtime`` are imported.
    """
    try:
        modules = {"cu": importer("cuda.bindings.driver"), "cuda": importer("cuda.bindings.runtime")}
    except ImportError as error:
        return NotApplicable(Absence.NO_LIBRARY, f"cuda-python is not installed: {error}")
    names = {
        prefix + name: hasattr(module, prefix + name) for prefix, module in modules.items() for name in EGL_FUNCTIONS
    }
    return EglFunctions(
        tuple(name for name, there in names.items() if there), tuple(name for name, there in names.items() if not there)
    )
