"""``present`` puts a caller's pictures into an EGLStream."""

from collections.abc import AsyncIterable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Final, Literal

from numpy.typing import NDArray

from ...actors.device.streams import PictureStream
from ...actors.surfaces.device_tensor import DeviceTensor
from ..board.threads import in_thread
from .device_inputs import host_array
from .encoder import FrameSink
from .inputs import InputReader
from .job import feed

_ANY_RATE: Final = Fraction(25)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentReport:
    """The result of ``present``."""

    frames: int  #: the number of frames presented; a mailbox may have replaced some before the consumer took them
    width: int
    height: int
    pix_fmt: str  #: FFmpeg's name
    consumed: bool  #: whether the consumer stayed to the end


async def present(
    frames: Iterable[object] | AsyncIterable[object],
    stream: PictureStream,
    *,
    memory: Literal["pitch", "array"] = "pitch",
    input_pix_fmt: str | None = None,
    size: tuple[int, int] | None = None,
) -> PresentReport:
    """Present pictures into an EGLStream as its producer, as fast as the consumer or mailbox takes them.

    Wait for the consumer to connect, copy each picture into the stream's memory, wait until the consumer has taken
    every frame, and disconnect. The stream stays open.

    Args:
        frames: pictures as for ``encode``, all of one size and format; their times are not used.
        stream: the stream.
        memory: ``"pitch"`` reaches consumers on any GPU; ``"array"`` reaches only consumers on the same GPU.
        input_pix_fmt: the layout of arrays, as for ``encode``.
        size: (width, height) of raw bytes.

    Raises:
        UsageError: an item is not a picture or does not fit the others, there is no item, or the stream has a producer.
        Unsupported: EGL does not support such frames.
        DeadlineMissed: the consumer did not connect, or took nothing, within the stream's ``wait_s``.
        EngineUnfit: this machine has no EGL, no CUDA, or no streams.
        DeviceError: the driver failed.
    """
    presenter = await in_thread(_Presenter, stream, memory, input_pix_fmt, size)
    await feed(presenter, frames)
    return presenter.report


class _Presenter(FrameSink):
    """Presents pictures until the consumer disconnects."""

    def __init__(self, stream: PictureStream, memory: str, pix_fmt: str | None, size: tuple[int, int] | None) -> None:
        self._producer = stream.open_producer(memory)
        self._reader = InputReader(pix_fmt=pix_fmt, size=size, frame_rate=_ANY_RATE, fetch=self._fetched)
        self._frames = 0
        self.report = PresentReport(frames=0, width=0, height=0, pix_fmt="", consumed=False)

    def add(self, item: object) -> None:
        """Present the next picture, unless the consumer has disconnected."""
        if self.is_over:
            return
        offered = self._reader.read(item)
        if self._producer.present(offered.pixels, offered.streams or ()):
            self._frames += 1
        else:
            self.is_over = True

    def finish(self) -> None:
        """Wait until the consumer has taken all frames, and disconnect."""
        width, height, pix_fmt = self._producer.described()
        consumed = self._producer.drain()
        self._producer.close()
        self.report = PresentReport(frames=self._frames, width=width, height=height, pix_fmt=pix_fmt, consumed=consumed)

    def abandon(self) -> None:
        """Disconnect at once."""
        self._producer.close()

    def _fetched(self, tensor: DeviceTensor) -> NDArray[Any]:
        return host_array(tensor, partial(self._producer.fetch, streams=tensor.streams))
