"""Chosen frames of a film, which may be read many times, with or without an event loop."""

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import Final

from ...actors.device.interface import WorkerDevice
from ...actors.media.kept_sources import KEPT
from ...actors.media.location import release
from ...actors.surfaces.frames import Frame
from ...actors.tensors.tensor_format import TensorFormat
from ...errors import CodecfleetError, UsageError
from ..board.threads import in_thread, is_in_loop
from ..source.source import SourceReading
from .batches import FrameBatches
from .group_reader import GroupReader
from .proofs import EntryProofs
from .request import FrameRequest, FramesReport
from .selection import PartFrames
from .source import FrameSource, open_frame_source
from .window import FramesEnd

STEP_FRAMES: Final = 16
"""The most frames that are read at once for a user who steps through a film, frame by frame."""
AHEAD_BYTES: Final = 64 << 20
"""The most memory for the frames read ahead for that user; a single frame may be larger."""


class Film:
    """The state kept between reads of one source: its index and the proofs of its entries. Thread-safe.

    When this object is closed or deleted, it releases the bytes or the file of a ``HeldSource``. With the ``reading``
    of another process, the source is not read again.
    """

    def __init__(
        self, request: FrameRequest, device: Callable[[], WorkerDevice], reading: SourceReading | None = None
    ) -> None:
        self._request = request
        self._device = device
        self._reading = reading
        self._lock = threading.Lock()
        self._opened: tuple[FrameSource, EntryProofs] | None = None
        self._readers: set[GroupReader] = set()
        self._is_closed = False
        self._release = weakref.finalize(self, release, request.source)

    @property
    def source(self) -> FrameSource:
        """The source, opened at the first use, even after ``close``; raises the errors of ``open_frame_source``."""
        return self._open()[0]

    @property
    def times_s(self) -> list[Fraction]:
        """When each frame is shown, in seconds after the source's first picture.

        Raises UsageError: the index has not been read, and an event loop is running here.
        """
        if self._opened is None:
            refuse_in_loop("film.times_s", "Use `await film.count()` first.")
        part = self.source.part
        index = part.ranges.index
        return [(ticks - index.first_ticks) * index.time_base for ticks in part.times[:: part.every].tolist()]

    def reader(
        self,
        numbers: Sequence[int],
        wake: Callable[[], object],
        report: FramesReport,
        *,
        leaves_out: bool = False,
        seen: Callable[[], object] = bool,
    ) -> GroupReader:
        """Return a reader of the frames ``numbers`` of the part; end it with ``end``.

        Raises UsageError: the film is closed.
        """
        source, proofs = self._open()
        report.on_device, report.gpu_refusal = source.on_device, source.gpu_refusal
        report.frames_promised += len(numbers)
        reader = GroupReader(source, proofs, numbers, report, wake, leaves_out=leaves_out, seen=seen)
        with self._lock:
            self._check_open()
            self._readers.add(reader)
        return reader

    def check(self) -> None:
        """Raise UsageError if the film is closed, and InputUnreadable if its file was changed."""
        with self._lock:
            self._check_open()
        self.source.stamp.check_local()

    def _check_open(self) -> None:
        if self._is_closed:
            raise UsageError("these frames are closed", "Call `frames` again.")

    def end(self, reader: GroupReader) -> None:
        """End a reader, and wait until its threads have ended."""
        reader.close()
        with self._lock:
            self._readers.discard(reader)

    def stop(self) -> None:
        """Refuse further reads, and let the running reads end soon. Idempotent."""
        with self._lock:
            self._is_closed = True
            readers = tuple(self._readers)
        for reader in readers:
            reader.stop()

    def close(self) -> None:
        """Stop, wait for the threads to end, and close the idle files. Idempotent."""
        self.stop()
        with self._lock:
            readers = tuple(self._readers)
        for reader in readers:
            self.end(reader)
        KEPT.forget(self._request.absolute_source)
        self._release()

    def _open(self) -> tuple[FrameSource, EntryProofs]:
        with self._lock:
            if self._opened is None:
                source = open_frame_source(self._request, self._device(), self._reading)
                self._opened = source, EntryProofs(source)
            return self._opened


class FrameSelection:
    """Chosen frames of a film, in the order requested; nothing is read before the first frame is needed.

        for frame in film[100:200:10]: ...
        frames = await film.at([7, 3, 7])

    Only groups of pictures with a chosen frame are read. FrameDamaged is raised in place of a frame that cannot be
    decoded. A selection may be read many times, until the film is closed. Decoding threads call ``seen`` after each
    picture; its exceptions end the read.
    """

    def __init__(
        self, film: Film, choose: Callable[[PartFrames], Sequence[int]], seen: Callable[[], object] = bool
    ) -> None:
        self._film = film
        self._choose = choose
        self._seen = seen
        self.report = FramesReport()  #: the totals of all reads of this selection

    def __len__(self) -> int:
        """Return how many frames are chosen. Raises NoSuchFrame, and the errors of opening the film."""
        return len(self.positions())

    def __bool__(self) -> bool:
        """Return True even if no frame is chosen; ``len`` gives the number of frames."""
        return True

    def __iter__(self) -> Generator[Frame]:
        """Iterate, blocking for each frame. Raises UsageError in an event loop."""
        refuse_in_loop("for", "Use `async for`, or `await` the selection.")
        return self._frames()

    def read(self) -> list[Frame]:
        """Return all frames. Raises the same errors as iterating."""
        return list(iter(self))

    def batches(
        self,
        frames: int,
        format: TensorFormat | None = None,  # noqa: A002 - the name in ``ClipDataset`` too
        *,
        out: object = None,
    ) -> FrameBatches:
        """Return the frames in tensors of ``frames`` frames, by default 8-bit R'G'B': (frames, 3, rows, columns)."""
        return FrameBatches(self, frames, format, out)

    def opened(self) -> FrameSource:
        """Return the film's source, opened at the first use; raises the errors of opening it."""
        return self._film.source

    def positions(self) -> Sequence[int]:
        """Return the positions of the chosen frames in the film. Raises the same errors as the length."""
        return self._choose(self._film.source.part)

    def reordered(self, order: Callable[[Sequence[int]], Sequence[int]]) -> "FrameSelection":
        """Return the selection of the same frames in another order, with the same report.

        ``order`` gets the positions, and returns their places in the new order.
        """

        def choose(part: PartFrames) -> list[int]:
            positions = self._choose(part)
            return [positions[place] for place in order(positions)]

        found = FrameSelection(self._film, choose, self._seen)
        found.report = self.report
        return found

    def __await__(self) -> Generator[object, None, list[Frame]]:
        """Return all frames, in an event loop."""
        return self._read().__await__()

    async def __aiter__(self) -> AsyncGenerator[Frame]:
        """Iterate in an event loop. If you stop early, close the iterator (``contextlib.aclosing``)."""
        woken = asyncio.Event()
        reader = await in_thread(self._reader, partial(wake, asyncio.get_running_loop(), woken))
        reader.start()
        try:
            while True:
                woken.clear()
                frame = reader.poll()
                if frame is None:
                    await woken.wait()
                else:
                    yield frame
        except FramesEnd:
            return
        except CodecfleetError:
            await in_thread(self._film.source.stamp.check)  # if the source has changed, that caused the error
            raise
        finally:
            reader.stop()
            await asyncio.shield(in_thread(self._film.end, reader))

    def _frames(self) -> Generator[Frame]:
        reader = self._reader(bool)
        reader.start()
        try:
            while True:
                yield reader.take()
        except FramesEnd:
            return
        except CodecfleetError:
            self._film.source.stamp.check()
            raise
        finally:
            self._film.end(reader)

    async def _read(self) -> list[Frame]:
        return [frame async for frame in self]

    def _reader(self, wake: Callable[[], object]) -> GroupReader:
        source = self._film.source
        source.stamp.check_local()
        numbers = [position * source.request.every for position in self.positions()]
        return self._film.reader(numbers, wake, self.report, seen=self._seen)


class SingleFrames:
    """Reads single frames of a film. On the host, reading the frame after the previous one also reads frames ahead.

    Without that, a user who steps through a film would have a group of pictures decoded for each frame. The first step
    reads 2 frames, and each further read twice as many as the read before. Thread-safe.
    """

    def __init__(self, film: Film) -> None:
        self._film = film
        self._next = -1
        self._step = 1  #: how many frames the last read asked for
        self._ahead: dict[int, Frame] = {}

    def frame(self, index: int) -> Frame:
        """Return a frame; a negative number counts from the end. Raises the same errors as a selection."""
        source = self._film.source
        number = source.part.position(index)
        is_step, self._next = number == self._next, number + 1
        frame = self._ahead.pop(number, None)
        if frame is not None:
            self._film.check()
            return frame
        self._step = min(2 * self._step, STEP_FRAMES) if is_step and not source.on_device else 1
        kept = min(source.frames_held // 2, max(1, AHEAD_BYTES // source.frame_bytes))
        found = self._read(number, min(self._step, 1 + kept))
        frame = found.pop(number)
        self._ahead = found
        return frame

    def clear(self) -> None:
        """Release the frames that were read ahead."""
        self._ahead = {}

    def _read(self, number: int, count: int) -> dict[int, Frame]:
        """Return a frame by its number, and up to ``count`` - 1 frames after it, up to the first that fails."""
        found: dict[int, Frame] = {}
        try:
            for frame in FrameSelection(self._film, lambda part: range(len(part))[number : number + count]):
                found[number + len(found)] = frame
        except CodecfleetError:
            if count == 1:
                raise
        return found or self._read(number, 1)


def refuse_in_loop(word: str, remedy: str) -> None:
    """Raise UsageError if an event loop runs in this thread, because ``word`` would block the loop."""
    if is_in_loop():
        raise UsageError(f"a plain `{word}` blocks, and an event loop is running here", remedy)


def wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    """Set an event of a loop, from any thread."""
    with suppress(RuntimeError):  # the loop is closed, and nobody waits
        loop.call_soon_threadsafe(woken.set)
