"""Encoding one segment: decode its range, keep the frames inside it, filter, encode, and say what went in and out."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from ..errors import (
    DeviceError,
    DeviceMemory,
    EncoderFailed,
    EngineBusy,
    EngineFailed,
    EngineUnfit,
    SessionLimit,
    WorkError,
)
from .decoding import SOFTWARE, DecodeRange, DecodeTally, PictureHash, PictureT
from .encoder_session import EncodedPacket, EncoderSession
from .encoder_settings import EncoderSettings
from .filtering import LOOK_AHEAD_FRAMES, FilterSettings
from .read_ahead import read_ahead
from .segment_route import PictureChain, SegmentRoute, routes
from .timeline import Mended, is_increasing
from .work import Work, WorkContext

__all__ = ["NAMED_DAMAGED_FRAMES", "SEAM_FRAMES", "EncodeSegment", "EncodedSegment"]

NAMED_DAMAGED_FRAMES = 16
"""How many damaged pictures of a segment are named; all are counted."""
READ_AHEAD_FRAMES = 4
"""Decoded pictures that wait for the encoder: enough that neither waits for the other's every picture."""
SEAM_FRAMES = LOOK_AHEAD_FRAMES
"""How many pictures past a cut both of its sides hash: as many as a filter with memory looks ahead anyway."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EncodedSegment:
    """One encoded segment. Arrays have one entry per packet, in decoding order; times are ticks of the source.

    ``seam_before`` are the first source pictures at or after the segment's start, ``seam_after`` those at or after
    its end; ``first_ticks`` and ``last_ticks`` are the presentation times of the first and last frame taken, and
    ``damaged_ticks`` those of the first ``NAMED_DAMAGED_FRAMES`` of its ``corrupt_frames``.
    ``decoded_by`` is the decoder's name, and ``fallback`` says why it is not the device's, "" where there is nothing
    to say.
    """

    segment: int
    pts_ticks: NDArray[np.int64]
    sizes_bytes: NDArray[np.int64]
    keyframes: NDArray[np.bool_]
    payload: NDArray[np.uint8]
    extradata: bytes
    frames_in: int
    seam_before: tuple[PictureHash, ...]
    seam_after: tuple[PictureHash, ...]
    first_ticks: int | None
    last_ticks: int | None
    failed_packets: int
    corrupt_frames: int
    damaged_ticks: tuple[int, ...]
    first_damaged_packet: int | None
    resized: Mapping[tuple[int, int], int]
    mended: Mended
    decode_s: float
    encode_s: float
    wall_s: float
    decoded_by: str = SOFTWARE.name
    fallback: str = ""

    @property
    def frames_out(self) -> int:
        """How many pictures are in the payload."""
        return len(self.pts_ticks)

    @property
    def damaged(self) -> bool:
        """Whether decoding met damage."""
        return self.first_damaged_packet is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeSegment(Work[EncodedSegment]):
    """Encode the frames of ``decode`` whose time lies in [``start_ticks``, ``end_ticks``); None is unbounded.

    ``insists`` waits for a device's decoder however long it takes, where one is there.
    """

    segment: int
    decode: DecodeRange
    start_ticks: int | None
    end_ticks: int | None
    filters: FilterSettings
    encoder: EncoderSettings
    insists: bool = False

    def run(self, context: WorkContext) -> EncodedSegment:
        """Run in the calling thread.

        Raises:
            InputError: the source cannot be read any more.
            EncoderFailed: the encoder or a filter refused a picture.
            DeviceError: the device is lost, hangs, or cannot encode; what it cannot decode, software does.
            Cancelled: somebody cancelled the work.
        """
        frames_done = context.frames_done
        gave_up: _CannotDecode | None = None
        with closing(routes(context.device, self.encoder, self.filters, insists=self.insists)) as ways:
            for route, reason in ways:
                with closing(route):
                    try:
                        fallback = reason if gave_up is None else gave_up.error.message
                        return _Run(self, context, route, fallback).result()
                    except _CannotDecode as error:
                        # From the beginning: what was encoded so far may rest on pictures that are in doubt.
                        gave_up = error
                        context.start_over(frames_done)
        if gave_up is not None:
            raise gave_up.error
        message = f"no way is open to segment {self.segment}"
        raise WorkError(message, "Please report it, with the input and the options.")

    def holds(self, ticks: int) -> bool:
        """Tell whether a frame presented at ``ticks`` belongs to this segment."""
        return self.is_past_start(ticks) and not self.is_past_end(ticks)

    def is_past_start(self, ticks: int) -> bool:
        """Tell whether ``ticks`` is at or after the segment's start."""
        return self.start_ticks is None or ticks >= self.start_ticks

    def is_past_end(self, ticks: int) -> bool:
        """Tell whether ``ticks`` is at or after the segment's end."""
        return self.end_ticks is not None and ticks >= self.end_ticks


class _CannotDecode(Exception):
    """The device's decoder gave up; another may do it."""

    def __init__(self, error: DeviceError) -> None:
        super().__init__(error.message)
        self.error = error


class _Run(Generic[PictureT]):
    """The state of one run of one segment."""

    def __init__(self, work: EncodeSegment, context: WorkContext, route: SegmentRoute[PictureT], fallback: str) -> None:
        self._work = work
        self._route = route
        self._fallback = fallback
        self._context = context
        self._tally = DecodeTally()
        self._taken: list[int] = []
        self._before: list[PictureHash] = []
        self._after: list[PictureHash] = []
        self._packets: list[EncodedPacket] = []
        self._encode_s = 0.0
        self._base_ticks: int | None = None

    def result(self) -> EncodedSegment:
        began = time.perf_counter()
        chain = self._route.open_chain(self._work.filters, self._work.decode.time_base)
        with self._route.open_encoder(self._work.encoder) as encoder:
            with closing(self._filtered(chain)) as frames:
                for ticks, frame in frames:
                    self._encode(encoder, ticks, frame)
            self._packets += self._timed(encoder.finish)
            extradata = encoder.extradata
        self._check_count()
        return self._packed(extradata, chain.resized, time.perf_counter() - began)

    def _filtered(self, chain: PictureChain[PictureT]) -> Generator[tuple[int, PictureT]]:
        """Yield the filtered frames of the segment alone; its neighbours only pass through filters with memory."""
        for ticks, frame in self._source():
            for moment, picture in chain.push(ticks, frame):
                if self._work.holds(moment):
                    yield moment, picture
        for moment, picture in chain.finish():
            if self._work.holds(moment):
                yield moment, picture

    def _source(self) -> Iterator[tuple[int, PictureT]]:
        """Yield the source frames that filters must see, and hash the pictures at both seams."""
        with_neighbours = self._work.filters.has_memory
        with closing(read_ahead(self._decoded(), READ_AHEAD_FRAMES)) as decoded:
            yield from self._sorted_out(decoded, with_neighbours=with_neighbours)

    def _decoded(self) -> Generator[tuple[int, PictureT]]:
        try:
            yield from self._route.decoded(self._work.decode, self._tally)
        except (DeviceMemory, EngineBusy, EngineFailed, EngineUnfit, SessionLimit) as error:
            raise _CannotDecode(error) from error

    def _sorted_out(
        self, decoded: Iterable[tuple[int, PictureT]], *, with_neighbours: bool
    ) -> Iterator[tuple[int, PictureT]]:
        for ticks, frame in decoded:
            self._context.advance(0)
            if not self._work.is_past_start(ticks):
                if with_neighbours:
                    yield ticks, frame
                continue
            if len(self._before) < SEAM_FRAMES:
                self._before.append(self._route.picture_hash(ticks, frame))
            if self._work.is_past_end(ticks):
                if len(self._after) < SEAM_FRAMES:
                    self._after.append(self._route.picture_hash(ticks, frame))
                    if with_neighbours:
                        yield ticks, frame
                continue
            self._taken.append(ticks)
            yield ticks, frame

    def _encode(self, encoder: EncoderSession[Any], ticks: int, frame: PictureT) -> None:
        # Relative to the segment, so that an encoder never sees how late in the track it works.
        self._base_ticks = ticks if self._base_ticks is None else self._base_ticks
        picture = self._route.timed(frame, ticks - self._base_ticks, self._work.decode.time_base)
        self._packets += self._timed(lambda: encoder.encode(picture))
        self._context.advance()

    def _timed(self, call: Callable[[], list[EncodedPacket]]) -> list[EncodedPacket]:
        began = time.perf_counter()
        packets = call()
        self._encode_s += time.perf_counter() - began
        return packets

    def _check_count(self) -> None:
        given = sorted(self._pts_ticks())
        if given != self._taken:
            message = f"segment {self._work.segment}: {len(self._taken)} frames went in and {len(given)} came out"
            raise EncoderFailed(message, "Try another --preset or --codec, and please report it with the input.")
        if not is_increasing(given):
            message = f"segment {self._work.segment}: two frames share one presentation time"
            raise EncoderFailed(message, "Please report it with the input.")

    def _pts_ticks(self) -> list[int]:
        return [packet.pts_ticks + (self._base_ticks or 0) for packet in self._packets]

    def _packed(self, extradata: bytes, resized: Mapping[tuple[int, int], int], wall_s: float) -> EncodedSegment:
        packets = self._packets
        damaged_ticks = [ticks for ticks in self._tally.damaged_ticks if self._work.holds(ticks)]
        return EncodedSegment(
            segment=self._work.segment,
            pts_ticks=np.array(self._pts_ticks(), dtype=np.int64),
            sizes_bytes=np.array([len(p.payload) for p in packets], dtype=np.int64),
            keyframes=np.array([p.is_keyframe for p in packets], dtype=np.bool_),
            payload=np.frombuffer(b"".join(p.payload for p in packets), dtype=np.uint8),
            extradata=extradata,
            frames_in=len(self._taken),
            seam_before=tuple(self._before),
            seam_after=tuple(self._after),
            first_ticks=self._taken[0] if self._taken else None,
            last_ticks=self._taken[-1] if self._taken else None,
            failed_packets=self._tally.failed_packets,
            corrupt_frames=len(damaged_ticks),
            damaged_ticks=tuple(damaged_ticks[:NAMED_DAMAGED_FRAMES]),
            first_damaged_packet=self._tally.first_damaged_packet,
            resized=dict(resized),
            mended=self._tally.mended,
            decode_s=self._tally.decode_s,
            encode_s=self._encode_s,
            wall_s=wall_s,
            decoded_by=self._route.decoder.name,
            fallback=self._fallback,
        )
