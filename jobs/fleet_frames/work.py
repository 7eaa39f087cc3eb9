"""Makes batches of frames on a worker, which keeps the films that it read most recently."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

from numpy.typing import NDArray

from ...actors.device.interface import WorkerDevice
from ...actors.device.work import Work, WorkContext
from ...actors.media.stores import place_of
from ...actors.surfaces.frames import Frame
from ...actors.tensors.frame_batch import FrameBatch, batch_of
from ...actors.tensors.host_tensor import common_size
from ...actors.tensors.tensor_format import TensorFormat
from ...actors.tensors.tensor_memory import host_target
from ...cluster.worker.own_gpu import own_gpu
from ...errors import CodecfleetError, EngineUnfit, InputError, Unsupported, UsageError
from ..frames.batches import tensor_maker
from ..frames.chosen import Film, FrameSelection
from ..frames.request import FrameRequest
from ..frames.source import DEVICE_SHARE, DEVICE_THREADS, FrameSource
from ..source.source import SourceReading

FILMS_KEPT: Final = 16  #: The most films that are kept, each with an index but without a decoder
#: The size of the pictures decoded ahead for one piece; a large GPU decodes more ahead
AHEAD_BYTES: Final = 256 << 20
FRAMES_AT_ONCE: Final = 8  #: How many pictures are in memory while a batch is made
_OF_FRAMES: Final = (InputError, Unsupported, UsageError)  #: Errors that are the same on every worker


class KeptFilms:
    """The films that a process read most recently. Thread-safe."""

    def __init__(self, most: int = FILMS_KEPT) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Film] = OrderedDict()

    def film(self, key: Hashable, make: Callable[[], Film] | None) -> Film | None:
        """Return the film with this key.

        If the film is not kept, ``make`` makes it; if there is no ``make``, the result is None.
        """
        with self._lock:
            found = self._kept.get(key) or (None if make is None else make())
            if found is not None:
                self._kept[key] = found
                self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return found


KEPT_FILMS: Final = KeptFilms()


@dataclass(frozen=True, slots=True)
class MadeBatches:
    """Batches, and the error that prevented further batches."""

    batches: tuple[FrameBatch, ...]
    error: CodecfleetError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeBatches(Work[MadeBatches | None]):
    """Make tensors of ``frames`` frames on the host; the last tensor may have fewer.

    The result is None if this worker does not know the film; then submit the work again, with the film's ``reading``.
    """

    film: str  # the film's name, unique among all clients' films
    request: FrameRequest
    version: Hashable | None  # the source's version, the same on every node; None for any version
    positions: tuple[int, ...]  # the frames' positions in the requested part, in the order requested
    frames: int
    format: TensorFormat
    reading: SourceReading | None = None

    @property
    def file(self) -> str:
        """The source."""
        return self.request.source

    def run(self, context: WorkContext) -> MadeBatches | None:
        """Make the batches in the calling thread. The error of a frame is raised only if no batch precedes it.

        Raises:
            InputError: the source cannot be read here, has changed, or a frame cannot be decoded (FrameDamaged).
            Unsupported: there is no formula for a frame's samples or matrix.
            UsageError: the crop exceeds a frame, or sizes differ.
            DeviceError: the device is lost.
            Cancelled: the work was cancelled.
        """
        film = self._film(context.device)
        if film is None:
            return None
        place_of(self.request.source, self.version, None)
        source, selection = film.source, FrameSelection(film, lambda _: self.positions, context.advance)
        counts = [min(self.frames, len(self.positions) - n) for n in range(0, len(self.positions), self.frames)]
        made: list[FrameBatch] = []
        try:
            with _filling(source, self.format) as fill, closing(iter(selection)) as frames:
                for count in counts:
                    made.append(self._batch(frames, count, fill))  # noqa: PERF401 - an error keeps earlier batches
        except _OF_FRAMES as error:
            if not made:
                raise
            return MadeBatches(tuple(made), error)
        return MadeBatches(tuple(made))

    def _film(self, device: WorkerDevice | None) -> Film | None:
        request, reading = self.request, self.reading
        if device is None or self.constraints.software:
            if request.decoder == "nvdec":
                raise EngineUnfit("this worker has no GPU that decodes", 'Use decoder="auto".')
            request = request.model_copy(update={"decoder": "software", "place": "host"})
        key = self.film, request.decoder
        return KEPT_FILMS.film(key, None if reading is None else lambda: _opened(request, device, reading))

    def _batch(self, frames: Iterator[Frame], count: int, fill: "_Fill") -> FrameBatch:
        """Return the batch of the next ``count`` frames; only a few decoded pictures are in memory at a time."""
        first = next(frames)
        rest = chain((first,), frames)
        target = host_target(None, self.format, self.format.shape(count, common_size((first,), self.format)))
        parts: list[FrameBatch] = []
        for begin in range(0, count, FRAMES_AT_ONCE):
            part = tuple(islice(rest, min(FRAMES_AT_ONCE, count - begin)))
            common_size((first, *part), self.format)
            place = target.array[begin : begin + len(part)]
            fill(part, place)
            parts.append(batch_of(place, part))
        return FrameBatch(
            data=target.given,
            indices=tuple(chain.from_iterable(part.indices for part in parts)),
            times_s=tuple(chain.from_iterable(part.times_s for part in parts)),
            durations_s=tuple(chain.from_iterable(part.durations_s for part in parts)),
        )


def _opened(request: FrameRequest, device: WorkerDevice | None, reading: SourceReading) -> Film:
    """Return a film that uses one piece's share of the memory, since a worker makes several pieces at once."""
    if device is None or request.decoder == "software":
        return Film(request.model_copy(update={"memory_bytes": AHEAD_BYTES}), own_gpu, reading)  # opens no GPU
    memory_bytes = max(AHEAD_BYTES, device.free_bytes() // (DEVICE_SHARE * DEVICE_THREADS))
    return Film(request.model_copy(update={"memory_bytes": memory_bytes}), lambda: device, reading)


_Fill = Callable[[Sequence[Frame], NDArray[Any]], None]


@contextmanager
def _filling(source: FrameSource, format_: TensorFormat) -> Iterator[_Fill]:
    """Yield a function that writes frames from the host or a device into a part of a tensor on the host."""
    device = source.device if source.on_device else None
    with closing(tensor_maker(source)) as maker, ExitStack() as stack:
        mover = None if device is None else stack.enter_context(closing(device.open_mover()))

        def fill(frames: Sequence[Frame], place: NDArray[Any]) -> None:
            if mover is None:
                maker.make(frames, format_, place)
            else:
                made: Any = maker.make(frames, format_)
                place[...] = mover.fetch(made.address, made.nbytes).view(place.dtype).reshape(place.shape)

        yield fill
