"""Encodes one segment: decodes, filters, encodes, and counts pictures in and out."""

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import DeviceError, EncoderFailed, EngineFailed, EngineUnfit
from ..closing import Closing
from ..decode.decoding import DecodeRange, PictureT
from ..device.interface import WorkerDevice
from ..device.work import Work, WorkContext
from ..encode.libraries import library_version
from ..encode.session import EncodedPacket, EncoderSession
from ..encode.settings import EncoderSettings, usable_cores, with_threads
from ..encode.software import SoftwareEncoder
from ..media.timeline import is_increasing
from ..surfaces.device_frame import TimedPicture
from ..tracing import NO_SPAN, TraceSpan, span
from .burn import Burner
from .decode_path import DecodePath, encode_paths
from .filtering import FilterSettings
from .frame_rate import CountedGrid, KeyframeGrid, Pacer
from .walk import SegmentTally, SegmentWalk, decode_on_first

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedSegment:
    """One encoded segment. Arrays have one entry per packet, in decoding order."""

    segment: int
    pts_ticks: NDArray[np.int64]  # ticks of the source, or picture numbers if the track has its own rate
    sizes_bytes: NDArray[np.int64]
    keyframes: NDArray[np.bool_]
    payload: NDArray[np.uint8]
    extradata: bytes
    tally: SegmentTally
    resized: Mapping[tuple[int, int], int]
    encode_s: float
    wall_s: float
    device_fault: str = ""  # the device decoder's error, after which software decoded the segment
    frames_due: int | None = None  # if the track has its own rate: how many pictures are due; 0 if no picture decoded

    @property
    def first_shown(self) -> int | None:
        """The time of the segment's first picture; None if there is no picture."""
        return int(self.pts_ticks.min()) if len(self.pts_ticks) else None

    @property
    def frames_out(self) -> int:
        """How many pictures are in the payload."""
        return len(self.pts_ticks)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeSegment(Work[EncodedSegment]):
    """Encode the frames of ``decode`` whose time is in [``start_ticks``, ``end_ticks``); None is unbounded."""

    segment: int
    decode: DecodeRange
    start_ticks: int | None
    end_ticks: int | None
    filters: FilterSettings
    encoder: EncoderSettings
    numbers: tuple[int, int] | None = None  # if the track has its own rate: the segment's picture numbers, [first, end)
    keyframes: KeyframeGrid | CountedGrid | None = None  # None lets the encoder choose all keyframes but the first
    require_device: bool = False  # whether to wait for a device's decoder, if there is one
    cores: int = 1  # how many cores a software encoder may keep busy
    library: str = ""  # the required version of the encoder's library (others may give other bytes); "" for any
    traceparent: str = ""  # the parent of the work's span

    @property
    def may_wait(self) -> bool:
        """True: the track's encoder is chosen, and cannot change any more."""
        return True

    @property
    def file(self) -> str:
        """The path or address of the source."""
        return self.decode.source

    def run(self, context: WorkContext) -> EncodedSegment:
        """Run in the calling thread.

        Raises:
            InputError: the source cannot be read any more.
            EncoderFailed: the encoder or a filter refused a picture.
            DeviceError: the device is lost, hangs, or cannot encode; software decodes what the device cannot.
            EngineUnfit: this worker has another version of the encoder's library.
            Cancelled: the work was cancelled.
        """
        return encode_each((self,), context)[0]

    def refuse_another_library(self, device: WorkerDevice | None) -> None:
        """Raise ``EngineUnfit`` if this worker has another version of the encoder's library."""
        is_nvenc = self.encoder.nvenc is not None
        if not self.library or (is_nvenc and device is None):
            return
        here = (
            library_version(self.encoder.implementation) if device is None or not is_nvenc else device.encoder_package()
        )
        if here != self.library:
            message = f"{self.encoder.implementation} is {here} here, but the track is encoded with {self.library}"
            raise EngineUnfit(message, "Install the same packages on every node: docs/nodes.md.")


def encode_each(works: Sequence[EncodeSegment], context: WorkContext) -> tuple[EncodedSegment, ...]:
    """Decode a segment once, and encode it for each of ``works``, whose decoding is the same (``decodes_alike``).

    The results are in the order of ``works``. Raises the errors of ``EncodeSegment.run``.
    """
    with ExitStack() as stack:
        spans = [stack.enter_context(_traced(work)) for work in works]
        results = _on_first_path(works, context)
        for traced, result in zip(spans, results, strict=True):
            traced.note(**segment_facts(result))
        return results


@contextmanager
def _traced(work: EncodeSegment) -> Iterator[TraceSpan]:
    if not work.traceparent:
        yield NO_SPAN
        return
    codec = work.encoder.codec.value
    with span("encode work", work.traceparent, job=work.job, segment=work.segment, codec=codec) as traced:
        traced.note(host=socket.gethostname(), process=os.getpid())  # recorded even if the work fails
        yield traced


def segment_facts(result: EncodedSegment) -> dict[str, str | int]:
    """Return a finished segment's attributes for its trace span."""
    return {"frames": result.frames_out, "decoded_by": result.tally.decoded_by}


def _on_first_path(works: Sequence[EncodeSegment], context: WorkContext) -> tuple[EncodedSegment, ...]:
    first = works[0]
    for work in works:
        work.refuse_another_library(context.device)
    frames_done = context.frames_done
    faults: list[str] = []

    def on(path: DecodePath[Any], fallback: str) -> tuple[EncodedSegment, ...]:
        with ExitStack() as stack:
            return _Run(works, context, path, fallback, stack).results()

    def start_over(error: DeviceError) -> None:
        context.start_over(frames_done)
        faults.extend([error.message] if isinstance(error, EngineFailed) else [])

    # Work runs alone to find out whether it harms a device, so such work must use a device.
    require_device = first.require_device or first.constraints.alone
    with encode_paths(
        context.device,
        first.encoder,
        first.filters,
        require_device=require_device,
        software=first.constraints.software,
    ) as paths:
        results = decode_on_first(paths, on, start_over)
    return tuple(replace(result, device_fault=faults[0]) for result in results) if faults else results


class _Run(Generic[PictureT]):
    """One decode of a segment, and the encoding of its pictures for each of ``works``; ``stack`` closes the encoders.

    Used once, by one thread.
    """

    def __init__(
        self,
        works: Sequence[EncodeSegment],
        context: WorkContext,
        path: DecodePath[PictureT],
        fallback: str,
        stack: ExitStack,
    ) -> None:
        first = works[0]
        self._context = context
        self._counted = 0
        self._began_s = time.perf_counter()
        self._renditions = [stack.enter_context(_Rendition(work, path, context.device)) for work in works]
        self._walk: SegmentWalk[PictureT, tuple[_Rendition[PictureT], PictureT]] = SegmentWalk(
            first.decode,
            (first.start_ticks, first.end_ticks),
            path,
            fallback,
            make=partial(_filtered, self._renditions),
            finish=partial(_last_filtered, self._renditions),
            seen=partial(context.advance, 0),
            neighbours=first.filters.has_memory,
            leads=first.numbers is not None and first.numbers[0] > 0,
        )

    def results(self) -> tuple[EncodedSegment, ...]:
        with closing(self._walk.results()) as pictures:
            for ticks, (rendition, picture) in pictures:
                for _ in rendition.take(ticks, picture):
                    self._count()
        for rendition in self._renditions:
            for _ in rendition.take_last():
                self._count()
        # The encoders are drained in turn, so that the threads of all of them stay busy.
        left = self._renditions
        while left:
            left = [rendition for rendition in left if rendition.drain()]
            self._count()
        count, tally = len(self._renditions), self._walk.tally()
        encode_s = sum(rendition.encode_s for rendition in self._renditions)
        # Each rendition counts its part of what was done for all of them, so that the sums of all work are right.
        shared_s = (time.perf_counter() - self._began_s - encode_s) / count
        tally = replace(tally, decode_s=tally.decode_s / count)
        return tuple(rendition.result(tally, self._walk.taken, shared_s) for rendition in self._renditions)

    def _count(self) -> None:
        """Report the pictures that all renditions have done."""
        done = min(rendition.done for rendition in self._renditions)
        self._context.advance(done - self._counted)
        self._counted = done


def _filtered(
    renditions: "Sequence[_Rendition[PictureT]]", ticks: int, picture: PictureT
) -> Iterator[tuple[int, tuple["_Rendition[PictureT]", PictureT]]]:
    # Renditions without filters share the picture. Filters and encoders copy its times when they take it, so each
    # rendition may overwrite the times that an earlier one has set.
    for rendition in renditions:
        for at, made in rendition.chain.push(ticks, picture):
            yield at, (rendition, made)


def _last_filtered(
    renditions: "Sequence[_Rendition[PictureT]]",
) -> Iterator[tuple[int, tuple["_Rendition[PictureT]", PictureT]]]:
    for rendition in renditions:
        for at, made in rendition.chain.finish():
            yield at, (rendition, made)


class _Rendition(Closing, Generic[PictureT]):
    """What one encoding does with a segment's pictures, in order; ``take`` yields after each."""

    def __init__(self, work: EncodeSegment, path: DecodePath[PictureT], device: WorkerDevice | None) -> None:
        self._work = work
        self._path = path
        rate, numbers = work.filters.rate, work.numbers
        self._pacer: Pacer[PictureT] | None = None
        if rate is not None and numbers is not None:
            self._pacer = Pacer(rate, range(*numbers))
        burn, output = work.filters.burn, work.filters.output
        self._burner = None if burn is None else Burner(burn, output)
        self._began_ticks: int | None = None  # if the track has its own rate: the time of the first source picture
        self._packets: list[EncodedPacket] = []
        self.encode_s = 0.0
        self._fed = 0
        self._base_ticks: int | None = None
        self._last_ticks: int | None = None
        self._keyframes: list[int] = []
        self.chain = path.open_chain(work.filters, work.decode.time_base, (work.start_ticks, work.end_ticks))
        try:
            self._encoder = self._opened_encoder(device)
        except BaseException:
            self.chain.close()
            raise
        self._remaining = self._encoder.remaining()

    @property
    def done(self) -> int:
        """Pictures done: half of one when the encoder takes it, which may hold dozens, and half when it returns."""
        return (self._fed + len(self._packets)) // 2

    def close(self) -> None:
        self._encoder.close()
        self.chain.close()

    def take(self, ticks: int, picture: PictureT) -> Iterator[None]:
        """Encode a filtered picture, or the pictures at the track's own rate that are certain now."""
        if self._pacer is None:
            self._encode(ticks, picture)
            yield
            return
        self._began_ticks = ticks if self._began_ticks is None else self._began_ticks
        for number, shown in self._pacer.push(ticks, picture):
            self._encode(number, shown)
            yield

    def take_last(self) -> Iterator[None]:
        """Encode the pictures that show the last source picture."""
        if self._pacer is not None:
            for number, shown in self._pacer.finish():
                self._encode(number, shown)
                yield

    def drain(self) -> bool:
        """Fetch a packet that the encoder still holds; return False after the last."""
        packet = self._timed(partial(next, self._remaining, None))
        self._packets += [] if packet is None else [packet]
        return packet is not None

    def result(self, tally: SegmentTally, taken: list[int], shared_s: float) -> EncodedSegment:
        """Return the encoded segment; ``EncoderFailed`` if pictures or keyframes are missing.

        ``taken`` are the times of the source pictures, ``shared_s`` is the time that did not go into encoding.
        """
        due = self._due(taken)
        self._check_count(due)
        self._check_keyframes()
        packets = self._packets
        return EncodedSegment(
            segment=self._work.segment,
            pts_ticks=np.array(self._pts_ticks(), dtype=np.int64),
            sizes_bytes=np.array([len(p.payload) for p in packets], dtype=np.int64),
            keyframes=np.array([p.is_keyframe for p in packets], dtype=np.bool_),
            payload=np.frombuffer(b"".join(p.payload for p in packets), dtype=np.uint8),
            extradata=self._encoder.extradata,
            tally=self._tally(tally),
            resized=dict(self.chain.resized),
            encode_s=self.encode_s,
            wall_s=shared_s + self.encode_s,
            frames_due=None if self._work.numbers is None else len(due),
        )

    def _opened_encoder(self, device: WorkerDevice | None) -> EncoderSession[Any]:
        settings = self._work.encoder
        if device is None or not settings.on_device:
            return SoftwareEncoder(with_threads(settings, min(self._work.cores, usable_cores())))
        return device.open_encoder(settings, from_host=self._path.device is None)

    def _encode(self, ticks: int, picture: PictureT) -> None:
        frame = self._burnt(ticks, picture)
        # Times are relative to the segment, so that the encoder's output does not depend on the segment's place in the
        # track.
        self._base_ticks = ticks if self._base_ticks is None else self._base_ticks
        if self._path.device is None:
            frame.pts, frame.time_base = ticks - self._base_ticks, self._work.encoder.time_base
        else:
            frame = TimedPicture(frame.frame, ticks - self._base_ticks)
        grid = self._work.keyframes
        keyframe = grid is not None and grid.is_keyframe(ticks, self._last_ticks)
        self._keyframes += [ticks] if keyframe else []
        self._last_ticks = ticks
        self._packets += self._timed(partial(self._encoder.encode, frame, keyframe=keyframe))
        self._fed += 1

    def _burnt(self, ticks: int, frame: Any) -> Any:  # noqa: ANN401 - a picture in host memory if anything is burnt in
        if self._burner is None:
            return frame
        rate, tick_s = self._work.filters.rate, self._work.decode.time_base
        return self._burner.burn((ticks if rate is None else rate.shown_at(ticks)) * tick_s, frame)

    def _timed(self, call: Callable[[], ResultT]) -> ResultT:
        began = time.perf_counter()
        result = call()
        self.encode_s += time.perf_counter() - began
        return result

    def _check_count(self, due: list[int]) -> None:
        given = sorted(self._pts_ticks())
        if given != due:
            message = f"segment {self._work.segment}: {len(due)} frames went in and {len(given)} came out"
            raise EncoderFailed(message, "Try another --preset or --codec, and please report this with the input.")
        if not is_increasing(given):
            message = f"segment {self._work.segment}: two frames share one presentation time"
            raise EncoderFailed(message, "Please report this with the input.")

    def _due(self, taken: list[int]) -> list[int]:
        """Return the times that the packets should have: those of the pictures or, with a rate, the picture numbers."""
        numbers = self._work.numbers
        if numbers is None:
            return taken
        return list(range(*numbers)) if taken or self._began_ticks is not None else []

    def _check_keyframes(self) -> None:
        """Check that the encoder has made exactly the requested keyframes."""
        pairs = zip(self._pts_ticks(), self._packets, strict=True)
        given = sorted(ticks for ticks, packet in pairs if packet.is_keyframe)
        if self._work.keyframes is not None and given != self._keyframes:
            wanted, name = len(self._keyframes), self._work.encoder.implementation
            message = (
                f"segment {self._work.segment}: {name} made {len(given)} keyframes, and not the {wanted} keyframes "
                "that the keyframe interval requires"
            )
            raise EncoderFailed(message, "Leave out --encoder-option and --keyframe-interval, or use another --codec.")

    def _pts_ticks(self) -> list[int]:
        return [packet.pts_ticks + (self._base_ticks or 0) for packet in self._packets]

    def _tally(self, tally: SegmentTally) -> SegmentTally:
        """Return the walk's counts, with damage if the picture on screen at the segment's start is missing."""
        rate, numbers, entry = self._work.filters.rate, self._work.numbers, self._work.decode.entry
        if rate is None or numbers is None or numbers[0] == 0 or entry is None:
            return tally
        is_late = self._began_ticks is None or self._began_ticks > rate.chosen_at(numbers[0])
        return replace(tally, first_damaged_packet=entry.packet) if is_late else tally
