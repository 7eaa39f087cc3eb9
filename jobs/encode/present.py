"""Pictures that a user has, presented into an EGLStream from this process."""

from collections.abc import AsyncIterable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Final, Literal

import numpy as np
from av.video.frame import VideoFrame
from numpy.typing import NDArray

from ...actors.device.interface import PictureMover
from ...actors.nvidia.egl import EglLayout, EglStream, FrameMemory, ProducerSession, egl_cuda, layout_of, surface_name
from ...actors.surfaces.device_frame import DevicePicture
from ...actors.surfaces.device_tensor import DeviceTensor
from ...actors.surfaces.formats import surface_format
from ...errors import UsageError
from .inputs import InputReader
from .job import feed

_ANY_RATE: Final = Fraction(25)


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentReport:
    """What was presented."""

    frames: int  #: presented; a mailbox may have replaced some before the consumer took them
    width: int  #: of each frame
    height: int
    pix_fmt: str  #: FFmpeg's name of the frames' bytes
    consumed: bool  #: whether the consumer stayed to the end; False: it went away, and frames were left


async def present(
    frames: Iterable[object] | AsyncIterable[object],
    stream: EglStream,
    *,
    memory: Literal["pitch", "array"] = "pitch",
    input_pix_fmt: str | None = None,
    size: tuple[int, int] | None = None,
) -> PresentReport:
    """Present pictures into an EGLStream as its producer, as fast as its consumer or its mailbox takes them.

    It waits for the consumer to connect, copies each picture into memory of its own, and at the end waits until the
    consumer has had every frame. Then it disconnects; the stream stays open.

    Args:
        frames: pictures as ``encode`` takes them, all of one size and format; their times are not used.
        stream: where to.
        memory: ``"pitch"`` reaches consumers on any GPU; ``"array"`` those on the same.
        input_pix_fmt: how arrays are laid out, as of ``encode``.
        size: (width, height) of raw bytes.

    Returns:
        What was presented.

    Raises:
        UsageError: something is not a picture or does not fit the others, there is none, or the stream has a producer.
        Unsupported: EGL has no such frames.
        DeadlineMissed: the consumer did not connect, or took nothing, within the stream's ``wait_s``.
        EngineUnfit: this machine has no EGL, no CUDA, or no streams.
        DeviceError: the driver failed.
    """
    presenter = _Presenter(stream, FrameMemory(memory), input_pix_fmt, size)
    await feed(presenter, frames)
    return presenter.report


class _Presenter:
    """A producer that opens with its first picture. One thread calls all of it but ``cancel``."""

    def __init__(
        self, stream: EglStream, memory: FrameMemory, pix_fmt: str | None, size: tuple[int, int] | None
    ) -> None:
        self._stream = stream
        self._memory = memory
        self._reader = InputReader(pix_fmt=pix_fmt, size=size, frame_rate=_ANY_RATE, fetch=self._fetched)
        self._stack = ExitStack()
        self._mover: PictureMover | None = None
        self._session: ProducerSession | None = None
        self._frames = 0
        self._is_over = False
        self.report = PresentReport(frames=0, width=0, height=0, pix_fmt="", consumed=False)

    def add(self, item: object) -> None:
        """Present the next picture; nothing happens once the consumer is gone."""
        if self._is_over:
            return
        offered = self._reader.read(item)
        if offered.streams:
            self._open_mover().wait_for(offered.streams)
        picture = offered.pixels
        if isinstance(picture, VideoFrame) and surface_format(picture.format.name) is not None:
            picture = self._open_mover().to_device(picture)
        layout = _layout_of(picture)
        session = self._session or self._open(layout)
        if layout != session.layout:
            message = f"frame {self._frames} is {layout}, and the first is {session.layout}"
            raise UsageError(message, "All frames of a stream have one size and one format: convert them first.")
        if session.present(egl_cuda().filling(layout, picture)):
            self._frames += 1
        else:
            self._is_over = True

    def add_all(self, items: Iterable[object]) -> None:
        """Present all pictures there are."""
        for item in items:
            if self._is_over:
                return
            self.add(item)

    def finish(self) -> None:
        """Wait until the consumer has had all of them, and disconnect."""
        session = self._session
        if session is None:
            raise UsageError("there are no frames to present", "Give one at least.")
        consumed = session.drain()
        self._stack.close()
        layout = session.layout
        self.report = PresentReport(
            frames=self._frames, width=layout.width, height=layout.height, pix_fmt=layout.pix_fmt, consumed=consumed
        )

    def cancel(self) -> None:
        """Present no more; callable from any thread."""
        self._is_over = True

    def abandon(self) -> None:
        """Disconnect, whatever the consumer has not had."""
        self._stack.close()

    def _open(self, layout: EglLayout) -> ProducerSession:
        session = ProducerSession(egl_cuda(), self._stream, layout, self._memory)
        self._session = self._stack.enter_context(session)
        return session

    def _open_mover(self) -> PictureMover:
        if self._mover is None:
            self._mover = egl_cuda().mover()
            self._stack.callback(self._mover.close)
        return self._mover

    def _fetched(self, tensor: DeviceTensor) -> NDArray[np.uint8]:
        mover = self._open_mover()
        mover.wait_for(tensor.streams)
        return mover.fetch(tensor.address, prod(tensor.shape) * tensor.item_bytes)


def _layout_of(picture: DevicePicture | VideoFrame) -> EglLayout:
    if isinstance(picture, VideoFrame):
        return layout_of(picture.width, picture.height, picture.format.name)
    frame = picture.frame
    return layout_of(frame.width, frame.height, surface_name(frame.layout, frame.bits))
