"""Encodes a whole audio track at once, because a seam between separately encoded parts would be audible."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, cast

import av
import av.error
import numpy as np
from av.audio.codeccontext import AudioCodecContext
from av.audio.fifo import AudioFifo
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.codec.context import Flags
from av.stream import Discard
from numpy.typing import NDArray

from ...errors import EncoderFailed, InputUnreadable, Unsupported
from ..device.work import Work, WorkContext
from ..limits import NO_LIMITS
from ..media.opening import demux, open_source
from ..media.stores import Shipment, place_of
from .conform import Conformer
from .downmix import encoded_layout
from .loudness import Loudness, LoudnessMeter
from .sample_line import SampleLine
from .speakers import MIXED, STATED, encoder_order, speakers

if TYPE_CHECKING:
    from av.audio.stream import AudioStream
    from av.packet import Packet
    from av.stream import Stream


_ENCODERS = {"aac": "aac", "opus": "libopus"}
_BITS_PER_CHANNEL = {"aac": 80_000, "opus": 64_000}
_FORMATS = {"aac": "fltp", "opus": "flt"}
_RATES = {
    "aac": (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 64000, 88200, 96000),
    "opus": (48000,),
}
_PLANES_PYAV_COUNTS = 7
_HALF = Fraction(1, 2)
_GIVEN_PACKETS = 16  # how many packets are handed over at a time


@dataclass(frozen=True, eq=False, kw_only=True)
class EncodedTrack:
    """An encoded audio track, or a part of one. Players skip the padding at both ends."""

    codec: str
    extradata: bytes
    sample_rate: int
    layout: str
    sample_format: str
    frame_samples: int
    bit_rate_bps: int
    time_base: Fraction  # the duration of one sample
    pts: NDArray[np.int64]  # packet times on the source's clock; the first is ``initial_padding`` before the track
    durations: NDArray[np.int64]
    sizes_bytes: NDArray[np.int64]
    payload: NDArray[np.uint8]
    initial_padding: int  # in samples
    trailing_padding: int  # in samples
    damaged_packets: int  # packets that were replaced by silence
    clock_resets: int
    loudness: Loudness | None = None  # the measured loudness, if a target was requested
    formats: tuple[tuple[str, int], ...] = ()  # layouts and rates of the source, without repeats, in order

    def packets(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield every packet as (pts, duration, payload)."""
        end = 0
        for pts, duration, size in zip(
            self.pts.tolist(), self.durations.tolist(), self.sizes_bytes.tolist(), strict=True
        ):
            begin, end = end, end + size
            yield pts, duration, self.payload[begin:end].tobytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeAudio(Work[EncodedTrack]):
    """Decode one audio track and encode it as ``codec`` (aac or opus) without seams, even if the format changes."""

    source: str
    stream_index: int
    codec: str
    start_s: Fraction | None = None  # where to cut, exact to the sample, on the source's clock
    end_s: Fraction | None = None
    bit_rate_bps: int | None = None  # None means 80 kbit/s per channel for AAC, 64 kbit/s for Opus
    channels: int | None = None  # mix all channels to 1 or 2; None keeps the channels
    loudness_lufs: Fraction | None = (
        None  # target loudness, for which the track is decoded twice; None keeps the loudness
    )
    later: tuple[tuple[str, int], ...] = ()  # (layout, rate) of later parts, which the output must also fit
    stated: tuple[str, ...] = ()  # layouts that the container can state; empty if it can state all
    version: Hashable | None = None  # as in ``DecodeRange``
    shipment: Shipment | None = None  # as in ``DecodeRange``

    def run(self, context: WorkContext, give: Callable[[EncodedTrack], None] | None = None) -> EncodedTrack:
        """Run in the calling thread.

        ``give`` gets the packets as they are made; the result then has the remaining packets. All of them together are
        those of a run without ``give``.

        Raises:
            InputError: the source cannot be opened, or nothing of the track can be decoded.
            Unsupported: there is no encoder for the codec, or for this number of channels.
            EncoderFailed: the encoder refused a frame.
            Cancelled: the work was cancelled.
        """
        if self.codec not in _ENCODERS:
            message = f"there is no audio encoder for {self.codec}"
            raise Unsupported(message, f"Use one of {', '.join(sorted(_ENCODERS))}.")
        loudness = None if self.loudness_lufs is None else self._measured(context, self.loudness_lufs)
        encode: _Encode | None = None
        first: AudioFrame | None = None
        line = SampleLine(self.start_s, self.end_s)
        for frame in self._decoded(line):
            context.advance()
            first = first or frame
            for part in line.place(frame):
                encode = encode or self._encoder(part, loudness)
                encode.push(part)
            if give is not None and encode is not None and encode.packets >= _GIVEN_PACKETS:
                give(encode.take(line))
        if encode is None and first is not None:  # the part ends before the track begins
            encode = self._encoder(first, loudness)
        if encode is None or line.begin is None:
            message = f"audio track {self.stream_index} of {self.source} cannot be decoded"
            raise InputUnreadable(message, "Leave the track out with --audio-track, or use --audio none.")
        return encode.finish(line)

    def _parts(self, context: WorkContext, line: SampleLine) -> Iterator[AudioFrame]:
        for frame in self._decoded(line):
            context.advance()
            yield from line.place(frame)

    def _decoded(self, line: SampleLine) -> Iterator[AudioFrame]:
        source, _ = place_of(self.source, self.version, self.shipment)
        return _decoded(source, self.stream_index, line)

    def _encoder(self, first: AudioFrame, loudness: Loudness | None) -> "_Encode":
        layout, rate = self._target(first)
        return _Encode(self.codec, layout, rate, self.bit_rate_bps, loudness)

    def _target(self, first: AudioFrame) -> tuple[str, int]:
        """Return the wanted layout and rate of a track that begins with this frame."""
        layouts = {first.layout.name, *(layout for layout, _ in self.later)}
        stated = self.stated or STATED[self.codec]
        layout = encoded_layout(layouts, stated) if self.channels is None else MIXED[self.channels]
        return layout, max(first.sample_rate, *(rate for _, rate in self.later), 0)

    def _measured(self, context: WorkContext, target_lufs: Fraction) -> Loudness | None:
        """Return the loudness of the mixed track; None if nothing of the track can be decoded."""
        meter: LoudnessMeter | None = None
        conformer: Conformer | None = None
        for part in self._parts(context, SampleLine(self.start_s, self.end_s)):
            if meter is None or conformer is None:
                layout, rate = self._target(part)
                meter, conformer = LoudnessMeter(layout, rate), Conformer("dbl", layout, rate)
            for ready in conformer.take(part):
                meter.push(ready)
        if meter is None or conformer is None:
            return None
        for ready in conformer.finish():
            meter.push(ready)
        return meter.finish(target_lufs)


def _decoded(source: str, stream_index: int, line: SampleLine) -> Iterator[AudioFrame]:
    with open_source(source, limits=NO_LIMITS) as container:
        stream = container.streams[stream_index]
        decoder = stream.codec_context
        if not isinstance(decoder, AudioCodecContext):
            return
        for other in container.streams:
            if other is not stream:
                other.discard = Discard.all
        decoder.thread_count = 1
        packets = demux(container, stream)
        with suppress(av.error.FFmpegError):  # a truncated container ends here; _decode maps decoder errors
            for packet in packets:
                yield from _decode(decoder, packet, line)
        yield from _decode(decoder, None, line)


def _decode(decoder: AudioCodecContext, packet: "Packet[Stream] | None", line: SampleLine) -> Iterator[AudioFrame]:
    try:
        for frame in decoder.decode(cast("Packet[AudioStream] | None", packet)):
            yield reachable(frame)
    except EOFError:
        return
    except av.error.FFmpegError:
        line.damaged_packets += 1


def reachable(frame: AudioFrame) -> AudioFrame:
    """Return a frame whose samples PyAV can read: frames with eight or more planes are interleaved.

    PyAV 18 counts planes up to a null pointer. FFmpeg's array of eight pointers has no null pointer if it is full, so
    PyAV would read past the end of the array.
    """
    if not frame.format.is_planar or frame.layout.nb_channels <= _PLANES_PYAV_COUNTS:
        return frame
    packed = AudioResampler(format=frame.format.packed.name, layout=frame.layout, rate=frame.sample_rate)
    found = packed.resample(frame)[0]
    found.pts, found.time_base = frame.pts, frame.time_base
    return found


class _Encode:
    """An encoder and the steps that precede it; samples are counted from 0."""

    def __init__(self, codec: str, layout: str, rate: int, bit_rate_bps: int | None, loudness: Loudness | None) -> None:
        self._loudness = loudness
        self.codec = codec
        self.layout = layout
        self.rate = encoded_rate(codec, rate)
        self.bit_rate_bps = bit_rate_bps or _BITS_PER_CHANNEL[codec] * len(speakers(layout))
        self._pushed = 0
        self._pts: list[int] = []
        self._payloads: list[bytes] = []
        self._encoder = self._open()
        self.frame_samples = self._encoder.frame_size
        self._conformer = Conformer(
            _FORMATS[codec],
            layout,
            self.rate,
            order=encoder_order(codec, layout),
            gain_db=Fraction(0) if loudness is None else loudness.gain_db,
        )
        self._fifo = AudioFifo()

    def _open(self) -> AudioCodecContext:
        encoder: AudioCodecContext = av.CodecContext.create(_ENCODERS[self.codec], "w")  # type: ignore[assignment]
        encoder.sample_rate, encoder.layout, encoder.format = self.rate, self.layout, _FORMATS[self.codec]
        encoder.bit_rate = self.bit_rate_bps
        encoder.time_base = Fraction(1, self.rate)
        encoder.flags |= int(Flags.global_header) | int(Flags.bitexact)
        try:
            encoder.open()
        except (av.error.FFmpegError, ValueError) as error:
            message = f"the {self.codec} encoder refuses {self.layout} at {self.rate} Hz: {error}"
            raise EncoderFailed(message, "Use --audio copy, or another container.") from error
        return encoder

    def push(self, frame: AudioFrame) -> None:
        """Encode the next samples."""
        for ready in self._conformer.take(frame):
            self._queue(ready)

    def _queue(self, frame: AudioFrame) -> None:
        self._fifo.write(frame)
        while self._fifo.samples >= self.frame_samples:
            self._encode(self._fifo.read(self.frame_samples))

    def _encode(self, frame: AudioFrame | None) -> None:
        if frame is not None:
            frame.pts, frame.time_base = self._pushed, Fraction(1, self.rate)
            self._pushed += frame.samples
        try:
            packets = self._encoder.encode(frame)
        except (av.error.FFmpegError, ValueError) as error:
            message = f"the {self.codec} encoder refused a frame at sample {self._pushed}: {error}"
            raise EncoderFailed(message) from error
        for packet in packets:
            self._pts.append(int(packet.pts or 0))
            self._payloads.append(bytes(packet))

    def finish(self, line: SampleLine) -> EncodedTrack:
        """Encode the remaining samples and return the track."""
        for ready in self._conformer.finish():
            self._queue(ready)
        if self._fifo.samples:
            self._encode(self._fifo.read(self._fifo.samples))
        self._encode(None)
        last = self._pts[-1] if self._pts else 0
        trailing = max(0, last + self.frame_samples - self._pushed) if self._pts else 0
        return self._taken(line, len(self._pts), trailing)

    @property
    def packets(self) -> int:
        """How many packets were made and not yet taken."""
        return len(self._pts)

    def take(self, line: SampleLine) -> EncodedTrack:
        """Take all packets except the last one, whose duration is not known yet; at least two must be there."""
        return self._taken(line, len(self._pts) - 1, 0)

    def _taken(self, line: SampleLine, count: int, trailing: int) -> EncodedTrack:
        pts = np.array(self._pts[:count], dtype=np.int64)
        durations = np.full(count, self.frame_samples, dtype=np.int64)
        steps = np.diff(self._pts[: count + 1])
        durations[: len(steps)] = steps
        payloads, self._payloads, self._pts = self._payloads[:count], self._payloads[count:], self._pts[count:]
        return EncodedTrack(
            codec=self.codec,
            extradata=self._encoder.extradata or b"",
            sample_rate=self.rate,
            layout=self.layout,
            sample_format=_FORMATS[self.codec],
            frame_samples=self.frame_samples,
            bit_rate_bps=self.bit_rate_bps,
            time_base=Fraction(1, self.rate),
            pts=pts + floor(line.begin_s * self.rate + _HALF),
            durations=durations,
            sizes_bytes=np.array([len(payload) for payload in payloads], dtype=np.int64),
            payload=np.frombuffer(b"".join(payloads), dtype=np.uint8),
            initial_padding=max(0, -int(pts[0])) if len(pts) else 0,
            trailing_padding=trailing,
            damaged_packets=line.damaged_packets,
            clock_resets=line.clock_resets,
            loudness=self._loudness,
            formats=tuple(self._conformer.formats),
        )


def bit_rates(codec: str, channels: int, sample_rate: int) -> tuple[int, int]:
    """Return the lowest and the highest bitrate of a codec for all ``channels`` of a track together.

    Below AAC's lowest bitrate, FFmpeg's encoder exceeds the requested rate (it needs 14.5 kbit/s per channel at 48 kHz,
    measured); AAC's highest is 6144 bits per channel and frame (ISO/IEC 14496-3, 4.5.3.1). Opus has 6 kbit/s or more
    (RFC 6716, 2.1.1), and libopus at most 256 kbit/s per channel.
    """
    if codec == "opus":
        return 6_000 * channels, 256_000 * channels
    return 16_000 * channels, 6 * encoded_rate(codec, sample_rate) * channels


def encoded_rate(codec: str, sample_rate: int) -> int:
    """Return the sample rate to encode: the source's, or the codec's next higher rate, or the codec's highest."""
    return next((rate for rate in _RATES[codec] if rate >= sample_rate), _RATES[codec][-1])
