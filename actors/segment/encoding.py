"""Encodes one segment: decodes, filters, encodes, and counts pictures in and out. Also describes a device's encoder."""

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...errors import DeviceError, EncoderFailed, EngineFailed, EngineUnfit
from ..decode.decoding import DecodeRange, PictureT
from ..device.work import Work, WorkContext
from ..encode.libraries import library_version
from ..encode.session import EncodedPacket, EncoderSession
from ..encode.settings import Codec, EncoderSettings, usable_cores, with_threads
from ..encode.software import SoftwareEncoder
from ..media.timeline import is_increasing
from ..settle.nvenc import EncoderCapabilities
from ..surfaces.device_frame import TimedPicture
from ..tracing import span
from .burn import Burner
from .decode_path import DecodePath, encode_paths
from .filtering import FilterSettings
from .frame_rate import CountedGrid, KeyframeGrid
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
        if not self.traceparent:
            return self._run(context)
        codec = self.encoder.codec.value
        with span("encode work", self.traceparent, job=self.job, segment=self.segment, codec=codec) as traced:
            traced.note(host=socket.gethostname(), process=os.getpid())  # recorded even if the work fails
            result = self._run(context)
            traced.note(**segment_facts(result))
            return result

    def _run(self, context: WorkContext) -> EncodedSegment:
        self._refuse_another_library(context)
        frames_done = context.frames_done
        faults: list[str] = []

        def start_over(error: DeviceError) -> None:
            context.start_over(frames_done)
            faults.extend([error.message] if isinstance(error, EngineFailed) else [])

        # Work runs alone to find out whether it harms a device, so such work must use a device.
        require_device = self.require_device or self.constraints.alone
        with encode_paths(
            context.device,
            self.encoder,
            self.filters,
            require_device=require_device,
            software=self.constraints.software,
        ) as paths:
            result = decode_on_first(
                paths, lambda path, fallback: _Run(self, context, path, fallback).result(), start_over
            )
        return replace(result, device_fault=faults[0]) if faults else result

    def _refuse_another_library(self, context: WorkContext) -> None:
        is_nvenc, device = self.encoder.nvenc is not None, context.device
        if not self.library or (is_nvenc and device is None):
            return
        here = (
            library_version(self.encoder.implementation) if device is None or not is_nvenc else device.encoder_package()
        )
        if here != self.library:
            message = f"{self.encoder.implementation} is {here} here, but the track is encoded with {self.library}"
            raise EngineUnfit(message, "Install the same packages on every node: docs/nodes.md.")


def segment_facts(result: EncodedSegment) -> dict[str, str | int]:
    """Return a finished segment's attributes for its trace span."""
    return {"frames": result.frames_out, "decoded_by": result.tally.decoded_by}


class _Run(Generic[PictureT]):
    """The state of one run of one segment."""

    def __init__(self, work: EncodeSegment, context: WorkContext, path: DecodePath[PictureT], fallback: str) -> None:
        self._work = work
        self._context = context
        self._path = path
        interval = work.start_ticks, work.end_ticks
        self._chain = path.open_chain(work.filters, work.decode.time_base, interval)
        self._walk: SegmentWalk[PictureT, PictureT] = SegmentWalk(
            work.decode,
            interval,
            path,
            fallback,
            make=self._chain.push,
            finish=self._chain.finish,
            seen=partial(context.advance, 0),
            neighbours=work.filters.has_memory,
            leads=work.numbers is not None and work.numbers[0] > 0,
        )
        burn, output = work.filters.burn, work.filters.output
        self._burner = None if burn is None else Burner(burn, output)
        self._began_ticks: int | None = None
        self._packets: list[EncodedPacket] = []
        self._encode_s = 0.0
        self._fed = 0
        self._counted = 0
        self._base_ticks: int | None = None
        self._last_ticks: int | None = None
        self._keyframes: list[int] = []

    def result(self) -> EncodedSegment:
        began = time.perf_counter()
        with closing(self._chain), self._open_encoder() as encoder:
            with closing(self._walk.results()) as frames:
                for ticks, frame in self._paced(frames):
                    self._encode(encoder, ticks, self._burnt(ticks, frame))
            self._drain(encoder)
            extradata = encoder.extradata
        self._check_count()
        self._check_keyframes()
        return self._packed(extradata, time.perf_counter() - began)

    def _paced(self, frames: Iterable[tuple[int, PictureT]]) -> Iterator[tuple[int, PictureT]]:
        """Yield the pictures to encode: all of the source, or those at the track's own rate."""
        rate, numbers = self._work.filters.rate, self._work.numbers
        if rate is None or numbers is None:
            yield from frames
            return
        yield from rate.paced(self._from_lead(frames), range(*numbers))

    def _from_lead(self, frames: Iterable[tuple[int, PictureT]]) -> Iterator[tuple[int, PictureT]]:
        for ticks, frame in frames:
            self._began_ticks = ticks if self._began_ticks is None else self._began_ticks
            yield ticks, frame

    def _burnt(self, ticks: int, frame: Any) -> Any:  # noqa: ANN401 - a picture in host memory if anything is burnt in
        if self._burner is None:
            return frame
        rate, tick_s = self._work.filters.rate, self._work.decode.time_base
        return self._burner.burn((ticks if rate is None else rate.shown_at(ticks)) * tick_s, frame)

    def _open_encoder(self) -> EncoderSession[Any]:
        settings, device = self._work.encoder, self._context.device
        if device is None or not settings.on_device:
            return SoftwareEncoder(with_threads(settings, min(self._work.cores, usable_cores())))
        return device.open_encoder(settings, from_host=self._path.device is None)

    def _encode(self, encoder: EncoderSession[Any], ticks: int, frame: Any) -> None:  # noqa: ANN401 - any memory
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
        self._packets += self._timed(partial(encoder.encode, frame, keyframe=keyframe))
        self._fed += 1
        self._advance()

    def _drain(self, encoder: EncoderSession[Any]) -> None:
        packets = encoder.remaining()
        while (packet := self._timed(partial(next, packets, None))) is not None:
            self._packets.append(packet)
            self._advance()

    def _advance(self) -> None:
        """Count half a picture when the encoder, which may hold dozens, takes it, and half when its packet returns."""
        done = (self._fed + len(self._packets)) // 2
        self._context.advance(done - self._counted)
        self._counted = done

    def _timed(self, call: Callable[[], ResultT]) -> ResultT:
        began = time.perf_counter()
        result = call()
        self._encode_s += time.perf_counter() - began
        return result

    def _check_count(self) -> None:
        given, due = sorted(self._pts_ticks()), self._due()
        if given != due:
            message = f"segment {self._work.segment}: {len(due)} frames went in and {len(given)} came out"
            raise EncoderFailed(message, "Try another --preset or --codec, and please report this with the input.")
        if not is_increasing(given):
            message = f"segment {self._work.segment}: two frames share one presentation time"
            raise EncoderFailed(message, "Please report this with the input.")

    def _due(self) -> list[int]:
        """Return the times that the packets should have: those of the pictures or, with a rate, the picture numbers."""
        taken, numbers = self._walk.taken, self._work.numbers
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

    def _packed(self, extradata: bytes, wall_s: float) -> EncodedSegment:
        packets = self._packets
        return EncodedSegment(
            segment=self._work.segment,
            pts_ticks=np.array(self._pts_ticks(), dtype=np.int64),
            sizes_bytes=np.array([len(p.payload) for p in packets], dtype=np.int64),
            keyframes=np.array([p.is_keyframe for p in packets], dtype=np.bool_),
            payload=np.frombuffer(b"".join(p.payload for p in packets), dtype=np.uint8),
            extradata=extradata,
            tally=self._tally(),
            resized=dict(self._chain.resized),
            encode_s=self._encode_s,
            wall_s=wall_s,
            frames_due=None if self._work.numbers is None else len(self._due()),
        )

    def _tally(self) -> SegmentTally:
        """Return the walk's counts, with damage if the picture on screen at the segment's start is missing."""
        tally, rate, numbers = self._walk.tally(), self._work.filters.rate, self._work.numbers
        entry = self._work.decode.entry
        if rate is None or numbers is None or numbers[0] == 0 or entry is None:
            return tally
        is_late = self._began_ticks is None or self._began_ticks > rate.chosen_at(numbers[0])
        return replace(tally, first_damaged_packet=entry.packet) if is_late else tally


@dataclass(frozen=True, slots=True)
class EncoderOffer:
    """A device's encoder: its capabilities, the version of its package, and whether the device converts pictures."""

    capabilities: EncoderCapabilities
    package: str
    converts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeEncoder(Work[EncoderOffer]):
    """Ask the driver for the capabilities of the encoder for ``codec``."""

    codec: Codec

    def run(self, context: WorkContext) -> EncoderOffer:
        """Return the offer; ``EngineUnfit`` if the device has no such encoder, ``DeviceError`` if the driver fails."""
        device = context.device
        if device is None:
            raise EngineUnfit(f"this worker has no GPU to encode {self.codec} on", "Use --encoder software.")
        return EncoderOffer(device.encoder_capabilities(self.codec), device.encoder_package(), device.converts())
