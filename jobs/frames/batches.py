"""Batches: the frames of a selection in tensors.

The frames of a batch are read in ascending order, because only the whole batch is handed out. On the host,
blocking reads write each frame to its place in the tensor as soon as it is decoded, and release it. In an event loop,
and on a device, all frames of a batch are collected first.
"""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import aclosing, closing, suppress
from typing import TYPE_CHECKING, Any, Protocol, Self

from ...actors.surfaces.frames import Frame
from ...actors.tensors.frame_batch import FrameBatch, ShownFrame, batch_of
from ...actors.tensors.host_tensor import HostTensorMaker
from ...actors.tensors.tensor_format import TensorFormat
from ...actors.tensors.tensor_maker import TensorMaker
from ...cluster.machine import cores
from ...errors import UsageError
from ..board.threads import in_thread
from .window import FramesEnd

if TYPE_CHECKING:
    from .source import FrameSource


class ChosenFrames(Protocol):
    """The part of ``FrameSelection`` that batches use."""

    def __iter__(self) -> Generator[Frame]: ...

    def __aiter__(self) -> AsyncGenerator[Frame]: ...

    def opened(self) -> "FrameSource":
        """Return the film's source."""

    def positions(self) -> Sequence[int]:
        """Return the positions of the chosen frames in the film."""

    def reordered(self, order: Callable[[Sequence[int]], Sequence[int]]) -> Self:
        """Return the selection of the same frames in another order; see ``FrameSelection.reordered``."""


class FrameBatches:
    """A selection's frames in tensors of ``frames`` frames, which are where the frames are; the last may have fewer.

        for batch in film.batches(16, TensorFormat(size=(224, 224))): ...

    The batches may be read many times, until the film is closed. Each tensor is written into ``out``, if given.
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
        return (len(self._selection.positions()) + self._frames - 1) // self._frames

    def __bool__(self) -> bool:
        """Return True even if there are no batches; ``len`` gives their number."""
        return True

    def __iter__(self) -> Generator[FrameBatch]:
        """Iterate, blocking for each batch. Raises UsageError in an event loop, and the errors of decoding."""
        return self._made(iter(self._selection.reordered(self._order)))

    async def __aiter__(self) -> AsyncIterator[FrameBatch]:
        """Iterate in an event loop. If you stop early, close the iterator (``contextlib.aclosing``)."""
        source = await in_thread(self._selection.opened)
        with closing(tensor_maker(source)) as maker:
            async with aclosing(self._groups()) as groups:
                async for group in groups:
                    yield await in_thread(self._batch, maker, group)

    def _made(self, frames: Generator[Frame]) -> Generator[FrameBatch]:
        with closing(tensor_maker(self._selection.opened())) as maker, closing(frames), suppress(FramesEnd):
            for places in self._places():
                yield self._batch(maker, _Group(frames, places))
            next(frames, None)  # ends the read

    async def _groups(self) -> AsyncGenerator["_Group"]:
        async with aclosing(aiter(self._selection.reordered(self._order))) as frames:
            for places in self._places():
                group: deque[Frame] = deque()
                while len(group) < len(places):
                    frame = await anext(frames, None)
                    if frame is None:  # the film was closed
                        return
                    group.append(frame)
                yield _Group(iter(group.popleft, None), places)
            await anext(frames, None)  # ends the read

    def _order(self, positions: Sequence[int]) -> list[int]:
        """Return the places of a selection in reading order."""
        return [place for places in self._split(positions) for place in places]

    def _split(self, positions: Sequence[int]) -> Iterator[list[int]]:
        """Yield for each batch the places of its frames in the selection, by ascending position."""
        for begin in range(0, len(positions), self._frames):
            end = min(begin + self._frames, len(positions))
            yield sorted(range(begin, end), key=positions.__getitem__)

    def _places(self) -> Iterator[list[int]]:
        """Yield for each batch the places of its frames in the tensor, in reading order."""
        for number, places in enumerate(self._split(self._selection.positions())):
            yield [place - number * self._frames for place in places]

    def _batch(self, maker: TensorMaker, group: "_Group") -> FrameBatch:
        is_last = len(group) < self._frames
        out = self._out[: len(group)] if is_last and self._out is not None else self._out
        data = maker.make(group, self._format, out, group.places)
        return batch_of(data, [group.shown[place] for place in range(len(group))])


class _Group:
    """The next frames of an iteration, with their places in a tensor.

    No frame is kept, so that decoders can reuse the memory. FramesEnd is raised if the film was closed.
    """

    def __init__(self, frames: Iterator[Frame], places: Sequence[int]) -> None:
        self._frames = frames
        self.places = places
        self.shown: dict[int, ShownFrame] = {}

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Frame]:
        for place in self.places:
            frame = next(self._frames, None)
            if frame is None:
                raise FramesEnd
            self.shown[place] = ShownFrame(frame.index, frame.time_s, frame.duration_s)
            yield frame


def tensor_maker(source: "FrameSource") -> TensorMaker:
    """Return a maker of tensors in the memory where a source's frames are. Raises DeviceError."""
    if source.on_device and source.device is not None:
        return source.device.open_tensors()
    return HostTensorMaker(min(source.threads, cores()))
