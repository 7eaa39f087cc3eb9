"""``frames``: a source's frames, to iterate over or to choose from; threads decode them."""

import asyncio
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from fractions import Fraction
from functools import partial
from operator import index as whole_number
from os import PathLike
from typing import Final, Self, Unpack, overload

from ...actors.device.interface import WorkerDevice
from ...actors.device.streams import PictureStream
from ...actors.media.location import HeldSource, SourceData, is_local
from ...actors.surfaces.frames import Frame
from ...actors.tensors.tensor_format import TensorFormat
from ...cluster.worker.own_gpu import own_gpu
from ...errors import Unsupported, UsageError
from ..board.threads import in_place_context, in_thread
from ..request.options import build
from ..request.values import location
from .batches import FrameBatches
from .chosen import Film, FrameSelection, SingleFrames, refuse_in_loop, wake
from .group_reader import GroupReader
from .reader import FrameReader
from .request import FrameOptions, FrameRequest, FramesReport
from .selection import FrameChooser, PartFrames
from .stream_reader import StreamReader, stream_request
from .window import FramesEnd

TURN_FRAMES: Final = 16  #: How many ready frames are handed out before other tasks get to run


class FrameStream(FrameChooser[FrameSelection]):
    """The frames of a source: iterate over all of them once, in order, or choose some of them, as often as you like.

        async with codecfleet.frames("film.mkv") as frames:
            async for frame in frames:
                ...
            first, last = await frames.at([0, -1])

    Without an event loop, use ``with`` and ``for``, and ``frames[-1]``, ``frames[10:20]``, ``len(frames)``.

    Decoding starts with the first frame requested. When an iteration ends, fails or is left, its threads end, and
    frames decoded ahead are released. Leaving ``with``, or calling ``aclose``, also ends all selections. Frames handed
    out stay valid. Several tasks may take from one iteration: each frame goes to one of them.
    """

    def __init__(
        self, request: FrameRequest, device: Callable[[], WorkerDevice], stream: PictureStream | None = None
    ) -> None:
        self._request = request
        self._stream = stream
        self._device = device
        self._film = Film(request, device)
        self._single = SingleFrames(self._film)
        self._turn = asyncio.Lock()
        self._woken = asyncio.Event()
        self._reader: FrameReader | GroupReader | StreamReader | None = None
        self._report = FramesReport()
        self._is_closed = False
        self._in_a_row = 0
        self._held: Generator[Frame] | None = None

    @property
    def source(self) -> str:
        """The source with an absolute path."""
        return self._request.absolute_source

    @property
    def report(self) -> FramesReport:
        """What the iteration over all frames has counted up to now."""
        return self._report

    def __iter__(self) -> Iterator[Frame]:
        """Iterate, blocking for each frame. Leaving the loop closes the stream. Raises UsageError in an event loop."""
        refuse_in_loop("for", "Use `async for`.")
        return self._waited() if self._held is None else self._held

    def __enter__(self) -> Self:
        refuse_in_loop("with", "Use `async with`.")
        self._held = self._waited()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_closed = True
        if self._held is not None:
            self._held.close()
        self._film.close()
        self._single.clear()

    def __bool__(self) -> bool:
        """Return True, because a source without pictures is refused."""
        return True

    def __len__(self) -> int:
        """Read the index, and return the number of frames in it. Raises the same errors as the first frame."""
        if self._stream is not None:
            raise TypeError("the number of a stream's frames is unknown")
        refuse_in_loop("len(...)", "Use `await film.count()`.")
        return len(self._film.source.part)

    async def count(self) -> int:
        """Return the number of frames in the index, in an event loop."""
        self._check_film()
        return len((await in_thread(lambda: self._film.source)).part)

    @property
    def times_s(self) -> list[Fraction]:
        """When each frame is shown, in seconds after the source's first picture.

        This reads the index, as ``len`` does.
        """
        self._check_film()
        return self._film.times_s

    @overload
    def __getitem__(self, chosen: int, /) -> Frame: ...
    @overload
    def __getitem__(self, chosen: slice, /) -> FrameSelection: ...
    def __getitem__(self, chosen: int | slice, /) -> Frame | FrameSelection:
        """Return one frame, or the selection of a slice; a negative number counts from the end.

        Raises:
            NoSuchFrame: there is no such frame. NoSuchFrame is also an IndexError.
            FrameDamaged: the frame cannot be decoded.
            UsageError: an event loop is running here.
        """
        if isinstance(chosen, slice):
            return self._select(lambda part: range(len(part))[chosen])
        number = whole_number(chosen)
        refuse_in_loop("film[i]", f"Use `await film.at([{number}])`.")
        self._check_film()
        return self._single.frame(number)

    def batches(
        self,
        frames: int,
        format: TensorFormat | None = None,  # noqa: A002 - the name in ``ClipDataset`` too
        *,
        out: object = None,
    ) -> FrameBatches:
        """Return all frames in tensors of ``frames`` frames; see ``FrameSelection.batches``."""
        return self[:].batches(frames, format, out=out)

    def _select(self, choose: Callable[[PartFrames], Sequence[int]]) -> FrameSelection:
        self._check_film()
        return FrameSelection(self._film, choose)

    def _check_film(self) -> None:
        if self._stream is not None:
            raise Unsupported("a stream's frames come once, in order", "Iterate over them.")

    def _waited(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> Generator[Frame]:
        runner = asyncio.Runner()
        # A short clip on disk is read without threads: starting them would take most of the time. Other sources need
        # threads, because a slow store can be interrupted only from another thread.
        context = in_place_context() if is_local(self._request.source) else copy_context()
        try:
            while (frame := self._ready() or runner.run(anext(self, None), context=context)) is not None:
                yield frame
        finally:
            # No thread can start while the interpreter ends; the end of the process closes the stream.
            if not is_ending():
                with runner:
                    runner.run(self._end_reading(), context=context)

    def _ready(self) -> Frame | None:
        """Return the next frame if it is ready, without running the event loop; otherwise None."""
        if self._reader is None or self._is_closed or self._in_a_row >= TURN_FRAMES:
            return None
        frame = None
        with suppress(Exception):  # ``_next`` then raises the same error, and ends the stream
            frame = self._reader.poll()
        self._in_a_row += frame is not None
        return frame

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Frame:
        """Return the next frame. Raises CodecfleetError: decoding the frame failed, which closes the stream."""
        async with self._turn:
            if self._is_closed:
                raise StopAsyncIteration
            try:
                return await self._next()
            except FramesEnd:
                await self._end()
                raise StopAsyncIteration from None
            except Exception:  # any error ends the stream
                await self._end()
                raise

    async def aclose(self) -> None:
        """Stop decoding. When this returns, the threads have ended and frames decoded ahead are released.

        Idempotent.
        """
        self._film.stop()
        await self._end_reading()
        await asyncio.shield(in_thread(self._film.close))
        self._single.clear()

    async def _end_reading(self) -> None:
        self._is_closed = True
        if self._reader is not None:
            self._reader.stop()
            self._woken.set()
            await asyncio.shield(in_thread(self._reader.close))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def __reduce__(self) -> "tuple[type[FrameStream], tuple[FrameRequest, Callable[[], WorkerDevice]]]":
        """Pickle the source and the options. The copy opens the source again, and begins at the first frame."""
        is_own = isinstance(self._device, partial)
        if self._stream is not None or not is_own or (self._request.context, self._request.stream) != (None, None):
            message = f"the frames of {self._request.source} use a stream, a GPU or a context of this process"
            raise UsageError(message, "Call `frames` in the other process.")
        return type(self), (self._request, self._device)

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # At the interpreter's exit, a thread that no longer runs may hold the reader's lock.
        if not is_ending() and (reader := getattr(self, "_reader", None)) is not None:
            reader.stop()

    async def _next(self) -> Frame:
        if self._reader is None:
            self._reader = await self._open()
            self._report = self._reader.report
            if self._is_closed:
                raise FramesEnd
            self._reader.start()
        if self._in_a_row >= TURN_FRAMES:
            # Frames that are always ready would starve other tasks. A cancellation here loses no frame.
            self._in_a_row = 0
            await asyncio.sleep(0)
        while True:
            self._woken.clear()
            if self._is_closed:
                raise FramesEnd
            frame = self._reader.poll()
            if frame is not None:
                self._in_a_row += 1
                return frame
            await self._woken.wait()

    async def _open(self) -> FrameReader | GroupReader | StreamReader:
        # This is not a bound method, because the threads must not keep the stream alive.
        notify = partial(wake, asyncio.get_running_loop(), self._woken)
        if self._stream is not None:
            return await in_thread(StreamReader, self._stream, self._request, notify)
        source = await in_thread(lambda: self._film.source)
        every = self._request.every
        if every > 1 and not source.part.is_counted:
            return self._film.reader(range(0, len(source.part.times), every), notify, FramesReport(), leaves_out=True)
        return FrameReader(source, notify)

    async def _end(self) -> None:
        await self._end_reading()
        if isinstance(self._reader, FrameReader | GroupReader):
            await in_thread(self._reader.source.stamp.check)  # if the source has changed, that caused any error


def frames(
    source: str | PathLike[str] | SourceData | PictureStream,
    *,
    gpu: WorkerDevice | None = None,
    **options: Unpack[FrameOptions],
) -> FrameStream:
    """Decode a source's frames for analysis and training: the same frames, at the same times, as ``transcode`` takes.

    They are decoded in this process, several segments at once: on this process's own GPU if there is one, otherwise in
    software. Inside a Ray task or actor, that GPU is the one that Ray assigned to the task or actor.

    Args:
        source: path or fsspec URL; the file's bytes, or a binary file that is open for reading and can seek (neither is
            copied, and both must stay unchanged until these frames are closed); or an ``EglStream``, whose consumer
            these frames become when the first is requested (only with the options ``place`` and ``every``).
        gpu: the device to use instead of this process's GPU, for example a fake one in tests.
        **options: what to decode, and into which form.

            - ``place``: where frames are: on the ``"host"`` (default), on the ``"device"``, or ``"auto"``: on the GPU
              if it decodes this source.
            - ``decoder``: ``"auto"`` (default) is NVDEC if it decodes the source exactly, otherwise
              software; ``"software"`` and ``"nvdec"`` each allow only one of them.
            - ``start_s``, ``end_s``: the part [start, end), in seconds after the source's first picture.
            - ``video_track``: counted among the video tracks, from 0.
            - ``every``: take the frames 0, ``every``, 2 ``every`` ... of that part.
            - ``size``: (width, height) of frames; the source's by default.
            - ``pix_fmt``: FFmpeg's pixel format of frames, such as ``rgb24`` on the host; the source's by default.
            - ``threads``: how many segments are decoded at once.
            - ``memory_bytes``: how much may be decoded ahead: 2 GiB on the host, a quarter of the GPU's free memory.
            - ``strict``: raise ``InputDamaged`` when decoding finds damage, instead of counting the damage.
            - ``nvdec``: latency, SEI messages, decode statistics and the largest size; needs ``decoder="nvdec"``.
            - ``device``: the GPU, by its CUDA ordinal in this process or its UUID; the first by default.
            - ``context``: the handle of your CUDA context to work in; by default the device's primary one.
            - ``stream``: the handle of the CUDA stream in which you use frames on the device, if their consumers do not
              state a stream; ``Frame.record_stream`` names another stream for one frame.

    Raises:
        UsageError: options are invalid, or a file is not binary or cannot seek. All other errors come with the first
            frame, or in its place.
    """
    if isinstance(source, PictureStream):
        return FrameStream(stream_request(options), own_gpu, source)
    fields = {"source": HeldSource.of(source) or location("source", source), **options}
    request = build(FrameRequest, fields, str, "docs/frames.md lists the options.")
    return FrameStream(request, partial(own_gpu, request.device, request.context) if gpu is None else lambda: gpu)
