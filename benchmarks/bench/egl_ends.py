"""Both ends of an EGLStream in one process, with test pictures and the errors of calls."""

from collections.abc import Callable
from typing import Any

from av.video.frame import VideoFrame

from codecfleet import EglStream
from codecfleet.actors.nvidia.egl.calls import EglCuda, egl_cuda
from codecfleet.actors.nvidia.egl.consumer import ConsumerSession
from codecfleet.actors.nvidia.egl.layout import EglLayout, layout_of
from codecfleet.actors.nvidia.egl.producer import FrameMemory, ProducerSession
from codecfleet.errors import CodecfleetError

from .failures import CommandFailed

LARGE = layout_of(1920, 1080, "nv12")
SMALL = layout_of(64, 48, "nv12")


class Ends:
    """Both ends of a new stream in this process."""

    def __init__(self, layout: EglLayout = SMALL, memory: FrameMemory = FrameMemory.PITCH, **options: Any) -> None:
        self.calls = egl_cuda()
        self.stream = EglStream(**({"wait_s": 5} | options))
        self.consumer = ConsumerSession(self.calls, self.stream)
        self.producer = ProducerSession(self.calls, self.stream, layout, memory)
        self.layout = layout

    def put(self, value: int) -> bool:
        """Present a picture whose bytes all have one value."""
        return self.producer.present(filled(self.calls, self.layout, value))

    def take(self, timeout_s: float = 1) -> int | None:
        """Acquire and release a frame; return its first byte, or None if no frame came."""
        acquired = self.consumer.acquire(timeout_s)
        if acquired is None:
            return None
        found = self.calls.copied_to_host(acquired.frame, self.consumer.cuda_stream)
        self.consumer.release()
        return int(memoryview(found.planes[0])[0])


def filled(calls: EglCuda, layout: EglLayout, value: int) -> Callable[..., None]:
    """Return a function that fills a frame with one value."""
    picture = VideoFrame(layout.width, layout.height, layout.pix_fmt)
    for plane in picture.planes:
        plane.update(bytes([value]) * plane.buffer_size)
    return calls.filling(layout, picture)


def untouched(places: Any, stream: Any) -> None:
    """Present a frame unchanged."""


def refusal(call: Callable[[], object]) -> str:
    """Return the error of a call; "" if there was none."""
    try:
        call()
    except (CodecfleetError, CommandFailed) as error:
        return f"{type(error).__name__}: {getattr(error, 'message', error)}"
    return ""
