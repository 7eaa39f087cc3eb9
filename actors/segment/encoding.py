"""Encodes one segment: decodes, filters, encodes, and counts pictures in and out."""

import os
import socket
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DeviceError, EngineFailed, EngineUnfit
from ..decode.decoding import DecodeRange
from ..device.interface import WorkerDevice
from ..device.work import Work, WorkContext
from ..encode.libraries import library_version
from ..encode.settings import EncoderSettings
from ..tracing import NO_SPAN, TraceSpan, span
from .decode_path import DecodePath, encode_paths
from .filtering import FilterSettings
from .frame_rate import CountedGrid, KeyframeGrid
from .passes import SegmentPasses, SegmentProgress, Taken
from .rendition import RenditionEncoding, RenditionSettings
from .targeting import EncodedRendition, ReachedQuality, encode_all, share_of
from .walk import SegmentTally, decode_on_first


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
    quality: ReachedQuality | None = None  # None if the request has no target

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
    kept_messages: frozenset[str] = frozenset()  # the kinds of messages to write, of those that ``decode`` reads
    measured: FilterSettings | None = None  # makes the pictures to compare with; None means ``filters``
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

    @property
    def interval(self) -> tuple[int | None, int | None]:
        """The time of the frames, [start, end) in ticks; None is unbounded."""
        return self.start_ticks, self.end_ticks

    @property
    def rendition(self) -> RenditionSettings:
        """How the pictures are made, apart from their decoding."""
        start, end = self.interval
        ticks = self.decode.expected_ticks
        first = 0 if start is None else bisect_left(ticks, start)
        last = len(ticks) if end is None else bisect_left(ticks, end)
        return RenditionSettings(
            segment=self.segment,
            time_base=self.decode.time_base,
            interval=self.interval,
            filters=self.filters,
            encoder=self.encoder,
            numbers=self.numbers,
            keyframes=self.keyframes,
            kept_messages=self.kept_messages,
            cores=self.cores,
            measured=self.measured,
            frames=last - first if self.numbers is None else self.numbers[1] - self.numbers[0],
        )

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
            return _encoded_on(path, fallback, works, context, stack)

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


def _encoded_on(
    path: DecodePath[Any], fallback: str, works: Sequence[EncodeSegment], context: WorkContext, stack: ExitStack
) -> tuple[EncodedSegment, ...]:
    """Encode for each of ``works`` on one path; ``stack`` closes the encoders."""
    first, began_s = works[0], time.perf_counter()
    made = [work.rendition for work in works]
    progress = SegmentProgress(context, share_of(made))
    leads = first.numbers is not None and first.numbers[0] > 0
    passes = SegmentPasses(first.decode, first.interval, path, fallback, progress, leads=leads)
    opened = partial(RenditionEncoding, device=context.device, on_device=path.device is not None)
    renditions = encode_all(made, passes, opened, stack)
    progress.finish(min(len(each.taken.due) for each in renditions))
    # Each rendition counts an equal part of the shared work, so that the sums over all work are right.
    count, encode_s = len(works), sum(each.encode_s for each in renditions)
    # The encoders' times may exceed the wall time, because encoders work at the same time.
    shared_s = max(0.0, time.perf_counter() - began_s - encode_s) / count
    return tuple(
        _result(work, each, passes.decode_s / count, shared_s) for work, each in zip(works, renditions, strict=True)
    )


def _result(work: EncodeSegment, made: EncodedRendition, decode_s: float, shared_s: float) -> EncodedSegment:
    """Return the encoded segment; ``shared_s`` is the time that did not go into encoding."""
    encoding, packets = made.encoding, made.encoding.packets
    return EncodedSegment(
        segment=work.segment,
        pts_ticks=np.array(encoding.pts_ticks(), dtype=np.int64),
        sizes_bytes=np.array([len(p.payload) for p in packets], dtype=np.int64),
        keyframes=np.array([p.is_keyframe for p in packets], dtype=np.bool_),
        payload=np.frombuffer(b"".join(p.payload for p in packets), dtype=np.uint8),
        extradata=encoding.extradata,
        tally=_tally(work, made.taken, decode_s),
        resized=dict(made.taken.resized),
        encode_s=made.encode_s,
        wall_s=shared_s + made.encode_s,
        frames_due=None if work.numbers is None else len(made.taken.due),
        quality=made.quality,
    )


def _tally(work: EncodeSegment, taken: Taken, decode_s: float) -> SegmentTally:
    """Return the walk's counts, with damage if the picture on screen at the segment's start is missing."""
    tally = replace(taken.tally, decode_s=decode_s)
    rate, numbers, entry = work.filters.rate, work.numbers, work.decode.entry
    if rate is None or numbers is None or numbers[0] == 0 or entry is None:
        return tally
    is_late = taken.began_ticks is None or taken.began_ticks > rate.chosen_at(numbers[0])
    return replace(tally, first_damaged_packet=entry.packet) if is_late else tally
