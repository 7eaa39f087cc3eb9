"""Batches: the frames of a selection in tensors."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing, closing
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from ...actors.surfaces.frames import Frame
from ...actors.tensors.frame_batch import FrameBatch, ShownFrame, batch_of
from ...actors.tensors.host_tensor import HostTensorMaker
from ...actors.tensors.tensor_format import TensorFormat
from ...actors.tensors.tensor_maker import TensorMaker
from ...cluster.machine import cores
from ...errors import UsageError
from ..board.threads import in_thread

if TYPE_CHECKING:
    from .source import FrameSource


class ChosenFrames(Protocol):
    """The part of ``FrameSelection`` that batches use."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Generator[Frame]: ...

    def __aiter__(self) -> AsyncGenerator[Frame]: ...

    def opened(self) -> "FrameSource":
        """Return the film's source."""


class FrameBatches:
    """A selection's frames in tensors of ``frames`` frames, where the frames are; the last tensor may have fewer.

        for batch in film.batches(16, TensorFormat(size=(224, 224))): ...

    The batches may be read many times, until the film is closed. With ``out``, each tensor in turn is written into it.
    """

    def __init__(
        self, selection: ChosenFrames, frames: int, format_: TensorFormat | None = None, out: object = None
    ) -> None:
        if frames < 1:
            raise UsageError(f"a batch needs at least one frame: {frames}", "Give 1 or more.")
        self._selection = selection
        self._frames = frames
        self._format = TensorFormat() if format_ is None else format_
        self._out: Any = out

    def __len__(self) -> int:
        """Return the number of batches. Raises the same errors as the selection's length."""
        return (len(self._selection) + self._frames - 1) // self._frames

    def __bool__(self) -> bool:
        """Return True even if there are no batches; ``len`` gives their number."""
        return True

    def __iter__(self) -> Generator[FrameBatch]:
        """Iterate, blocking for each batch. Raises UsageError in an event loop, and the errors of decoding."""
        return self._made(iter(self._selection))

    async def __aiter__(self) -> AsyncIterator[FrameBatch]:
        """Iterate in an event loop. If you stop early, close the iterator (``contextlib.aclosing``)."""
        source = await in_thread(self._selection.opened)
        with closing(tensor_maker(source)) as maker:
            async with aclosing(self._groups()) as groups:
                async for group in groups:
                    yield await in_thread(self._batch, maker, group)

    def _made(self, frames: Generator[Frame]) -> Generator[FrameBatch]:
        with closing(tensor_maker(self._selection.opened())) as maker, closing(frames):
            count = len(self._selection)
            for begin in range(0, count, self._frames):
                yield self._batch(maker, _Group(frames, min(self._frames, count - begin)))
            next(frames, None)  # ends the read

    async def _groups(self) -> AsyncGenerator["_Group"]:
        group: list[Frame] = []
        async with aclosing(aiter(self._selection)) as frames:
            async for frame in frames:
                group.append(frame)
                if len(group) == self._frames:
                    yield _Group(iter(group), len(group))
                    group = []
        if group:
            yield _Group(iter(group), len(group))

    def _batch(self, maker: TensorMaker, group: "_Group") -> FrameBatch:
        is_last = len(group) < self._frames
        out = self._out[: len(group)] if is_last and self._out is not None else self._out
        return batch_of(maker.make(group, self._format, out), group.shown)


class _Group:
    """The next ``count`` frames of an iteration. No frame is kept, so that decoders can reuse the memory."""

    def __init__(self, frames: Iterator[Frame], count: int) -> None:
        self._frames = frames
        self._count = count
        self.shown: list[ShownFrame] = []

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Frame]:
        for frame in islice(self._frames, self._count):
            self.shown.append(ShownFrame(frame.index, frame.time_s, frame.duration_s))
            yield frame


def tensor_maker(source: "FrameSource") -> TensorMaker:
    """Return a maker of tensors in the memory where a source's frames are. Raises DeviceError."""
    if source.on_device and source.device is not None:
        return source.device.open_tensors()
    return HostTensorMaker(min(source.threads, cores()))
