"""Reads the audio tracks of a file: packets, their times, and the decoded sound."""

import hashlib
import re
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING, cast

import av.error
import av.filter
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer

from ...actors.media.opening import open_source
from ...actors.tracks.audio import reachable
from ..source.tracks import skipped_samples
from .streams import audio_tracks, only
from .verdict import Check, check, not_applicable

if TYPE_CHECKING:
    from av.packet import Packet
    from av.stream import Stream

# the program config element: its number, the bit at which its mixdowns begin, and its largest size in bytes
_PCE, _PCE_BITS, _PCE_LONGEST = 5, 34, 64

ALLOWED_LU = 1  # the wider tolerance of EBU R 128; FFmpeg's AAC at 80 kbit/s moves one channel by up to 0.6 LU
_GATE_LUFS = -70  # BS.1770's absolute gate


@dataclass(slots=True, kw_only=True)
class SoundTrack:
    """One audio track's packets; times are in seconds after the first video frame."""

    url: str
    number: int  # the track's number among the file's audio tracks
    index: int  # the stream's index
    zero_s: Fraction  # the first video frame's time on the file's clock
    codec: str
    rate_hz: int
    frame_samples: int
    tick_s: Fraction
    times_s: list[Fraction | None] = field(default_factory=list)
    # the times of ``times_s``, but None for hidden packets
    heard_s: list[Fraction | None] = field(default_factory=list)
    lasts_s: list[Fraction] = field(default_factory=list)  # durations of packets; 0 if unknown
    bytes_a_second: Fraction = Fraction(0)  # the data rate of PCM; 0 for other codecs
    sums: list[int] = field(default_factory=list)  # checksums of packets
    begins: list[int] = field(default_factory=list)  # byte offset of each packet in the track's payload
    bytes_total: int = 0
    digest: str = ""  # the digest of the whole payload
    first_sample_s: Fraction | None = None  # when the first sample that players do not skip is heard


def read_tracks(url: str, zero_s: Fraction, chosen: Sequence[int] | None) -> list[SoundTrack]:
    """Return a file's audio tracks, or only the ``chosen`` ones. The first video frame is at ``zero_s``."""
    with open_source(url) as container:
        streams = audio_tracks(container)
        numbers = range(len(streams)) if chosen is None else [number for number in chosen if number < len(streams)]
        tracks = {streams[number].index: _track(url, number, zero_s, streams[number]) for number in numbers}
        digests = {index: hashlib.sha256() for index in tracks}
        for packet in _readable(container, [streams[number] for number in numbers]):
            track, payload = tracks[packet.stream.index], bytes(packet)
            if track.codec == "aac":  # containers may store the ADTS header and the layout outside packets
                payload = _without_layout(_without_header(payload))
            base = Fraction(packet.time_base or 1)
            track.times_s.append(None if packet.pts is None else packet.pts * base - zero_s)
            track.heard_s.append(None if packet.is_discard else track.times_s[-1])
            track.lasts_s.append(_lasts_s(packet, len(payload), track))
            track.sums.append(zlib.crc32(payload))
            track.begins.append(track.bytes_total)
            track.bytes_total += len(payload)
            digests[packet.stream.index].update(payload)
        for index, track in tracks.items():
            track.digest = digests[index].hexdigest()
    for track in tracks.values():
        first_s = _first_sample_s(url, track.number)
        track.first_sample_s = None if first_s is None else first_s - zero_s
    return list(tracks.values())


def _readable(container: InputContainer, streams: Sequence[AudioStream]) -> "Iterator[Packet[Stream]]":
    with suppress(av.error.FFmpegError):  # damage ends the file
        yield from only(container, *streams)


def _track(url: str, number: int, zero_s: Fraction, stream: AudioStream) -> SoundTrack:
    context = stream.codec_context
    codec, bits = context.codec.canonical_name, 0
    if codec.startswith("pcm_"):  # companded formats have 8 bits, but their names state no number
        bits = int(stated[1]) if (stated := re.search(r"_[a-z]+(\d+)", codec)) else 8
    return SoundTrack(
        url=url,
        number=number,
        index=stream.index,
        zero_s=zero_s,
        codec=codec,
        rate_hz=context.rate,
        frame_samples=context.frame_size or 0,
        bytes_a_second=Fraction(context.rate * context.layout.nb_channels * bits, 8),
        tick_s=Fraction(stream.time_base or 1),
    )


def _lasts_s(packet: "Packet[Stream]", size_bytes: int, track: SoundTrack) -> Fraction:
    """Return the duration of a packet's sound, at most one frame of the codec."""
    if track.bytes_a_second:
        return size_bytes / track.bytes_a_second
    stated_s = (packet.duration or 0) * Fraction(packet.time_base or 1)
    framed_s = Fraction(track.frame_samples, track.rate_hz or 1)
    return min(stated_s, framed_s) if stated_s and framed_s else stated_s or framed_s


def _without_header(data: bytes) -> bytes:
    adts_bytes = 7  # ISO/IEC 13818-7
    if len(data) < adts_bytes or data[0] != 0xFF or data[1] & 0xF6 != 0xF0:  # noqa: PLR2004 - syncword
        return data
    stated = (data[3] & 3) << 11 | data[4] << 3 | data[5] >> 5
    # A recording's last frame may be cut short.
    return data[adts_bytes if data[1] & 1 else adts_bytes + 2 :] if stated >= len(data) else data


def _without_layout(data: bytes) -> bytes:
    """Return AAC without a program config element at the start, which mp4 and Matroska keep in the header."""
    at, bits, size_bits = _PCE_BITS, int.from_bytes(data[:_PCE_LONGEST]), 8 * len(data[:_PCE_LONGEST])

    def field(begin: int, width: int) -> int:
        return bits >> max(size_bits - begin - width, 0) & ((1 << width) - 1)

    if not data or field(0, 3) != _PCE:
        return data
    counts = [field(13, 4), field(17, 4), field(21, 4), field(25, 2), field(27, 3), field(30, 4)]
    for width in (4, 4, 3):  # mixdowns: for each, a flag, and a value if the flag is set
        at += 1 + (width if field(at, 1) else 0)
    at += sum(count * width for count, width in zip(counts, (5, 5, 5, 4, 4, 5), strict=True))
    comment = -(-at // 8)
    return data[comment + 1 + field(8 * comment, 8) :]


def frame_start_s(frame: AudioFrame) -> Fraction:
    """Return when a decoded frame begins, on the file's clock."""
    return (frame.pts or 0) * Fraction(frame.time_base or 1)


def _first_sample_s(url: str, number: int) -> Fraction | None:
    """Return when a track's first sample, decodable or not, is heard, on the file's clock; None if it has no time."""
    damaged_s: list[Fraction] = []

    def failed(packet: "Packet[AudioStream] | None") -> None:
        if packet is not None and packet.pts is not None:
            skipped, _ = skipped_samples(cast("Packet[Stream]", packet))
            hidden_s = Fraction(skipped, packet.stream.codec_context.rate or 1)
            damaged_s.append(packet.pts * Fraction(packet.time_base or 1) + hidden_s)

    with closing(decoded_sound(url, number, failed)) as sound:
        first = next(sound, None)
    heard_s = [] if first is None else [frame_start_s(first)]
    return min([*damaged_s[:1], *heard_s], default=None)


def decoded_sound(
    url: str, number: int, failed: "Callable[[Packet[AudioStream] | None], None]" = lambda _: None
) -> Generator[AudioFrame]:
    """Yield the sound of audio track ``number`` of a file; ``failed`` gets each packet that does not decode."""
    with open_source(url) as container:
        stream = audio_tracks(container)[number]
        packets = cast("Iterator[Packet[AudioStream]]", _readable(container, [stream]))
        for packet in chain(packets, (None,)):
            try:
                decoded = stream.codec_context.decode(packet)
            except av.error.FFmpegError:
                failed(packet)
                continue
            yield from (reachable(frame) for frame in decoded if frame.samples)


def check_loudness(name: str, track: SoundTrack, wanted_lufs: float | None) -> Check:
    """Compare an encoded track's loudness with ``wanted_lufs`` from the report; None if it was too quiet to measure."""
    if wanted_lufs is None:
        return not_applicable(f"{name}.loudness", "the track is too quiet to be measured")
    found = integrated_lufs(track.url, track.number)
    said = "silence" if found is None else f"{found:.1f} LUFS"
    passed = found is not None and abs(found - wanted_lufs) <= ALLOWED_LU
    return check(f"{name}.loudness", f"{wanted_lufs:.1f} LUFS within {ALLOWED_LU} LU", said, passed=passed)


def integrated_lufs(url: str, number: int) -> float | None:
    """Return the integrated loudness of an audio track (ITU-R BS.1770); None for silence."""
    graph: av.filter.Graph | None = None
    found = float("nan")
    for frame in decoded_sound(url, number):
        if graph is None:
            graph = _meter(frame)
        try:
            graph.push(frame)
            while True:
                found = float(graph.pull().metadata["lavfi.r128.I"])
        except (av.error.BlockingIOError, av.error.EOFError):
            continue
    return found if isfinite(found) and found > _GATE_LUFS else None


def _meter(frame: AudioFrame) -> av.filter.Graph:
    graph = av.filter.Graph()
    source = {"sample_rate": str(frame.sample_rate), "time_base": f"1/{frame.sample_rate}"}
    source |= {"sample_fmt": frame.format.name, "channel_layout": frame.layout.name}
    meter = graph.add("ebur128", metadata="1", framelog="quiet")
    graph.link_nodes(graph.add("abuffer", **source), meter, graph.add("abuffersink")).configure()
    return graph
