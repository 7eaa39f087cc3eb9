"""The audio tracks of a file as ``verify`` reads them: packets, their times, and the decoded sound."""

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING, cast

import av.error
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer

from ...actors.media.opening import open_source
from ...actors.tracks.audio import reachable
from ..source.tracks import skipped_samples
from .streams import audio_tracks, only

if TYPE_CHECKING:
    from av.packet import Packet
    from av.stream import Stream

_PCE, _PCE_BITS, _PCE_LONGEST = 5, 34, 64
"""A program config element's number, where its mixdowns begin, and the bytes that hold it up to its comment."""


@dataclass(slots=True, kw_only=True)
class SoundTrack:
    """One audio track as its packets say; times in seconds after the first video frame."""

    url: str
    number: int
    """Its place among the file's audio tracks."""
    index: int
    zero_s: Fraction
    codec: str
    rate_hz: int
    frame_samples: int
    tick_s: Fraction
    times_s: list[Fraction | None] = field(default_factory=list)
    heard_s: list[Fraction | None] = field(default_factory=list)
    """``times_s``, None too for packets of which nothing is heard: an edit list or the priming hides them."""
    lasts_s: list[Fraction] = field(default_factory=list)
    """How long each packet's sound is; 0 where that is not known."""
    bytes_a_second: Fraction = Fraction(0)
    """Of PCM; 0 of all else."""
    sums: list[int] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    """The payload's bytes ahead of each packet."""
    bytes_total: int = 0
    digest: str = ""
    first_sample_s: Fraction | None = None
    """When the first sample is heard: after the ones the container says to skip."""


def read_tracks(url: str, zero_s: Fraction, chosen: Sequence[int] | None) -> list[SoundTrack]:
    """Return a file's audio tracks, or the ``chosen`` of them; its first frame is shown at ``zero_s``.

    Raises:
        InputError: the file cannot be read.
    """
    with open_source(url) as container:
        streams = audio_tracks(container)
        numbers = range(len(streams)) if chosen is None else [number for number in chosen if number < len(streams)]
        tracks = {streams[number].index: _track(url, number, zero_s, streams[number]) for number in numbers}
        digests = {index: hashlib.sha256() for index in tracks}
        for packet in _readable(container, [streams[number] for number in numbers]):
            track, payload = tracks[packet.stream.index], _payload(bytes(packet), tracks[packet.stream.index].codec)
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
    with suppress(av.error.FFmpegError):  # what cannot be read ends the file
        yield from only(container, *streams)


def _track(url: str, number: int, zero_s: Fraction, stream: AudioStream) -> SoundTrack:
    context = stream.codec_context
    return SoundTrack(
        url=url,
        number=number,
        index=stream.index,
        zero_s=zero_s,
        codec=context.codec.canonical_name,
        rate_hz=context.rate,
        frame_samples=context.frame_size or 0,
        bytes_a_second=_bytes_a_second(context.codec.canonical_name, context.rate * context.layout.nb_channels),
        tick_s=Fraction(stream.time_base or 1),
    )


def _bytes_a_second(codec: str, samples_a_second: int) -> Fraction:
    """Return how many bytes of PCM are a second: its name ends with the bits of a sample, or it is companded."""
    if not codec.startswith("pcm_"):
        return Fraction(0)
    bits = re.search(r"_[a-z]+(\d+)", codec)
    return Fraction(samples_a_second * (int(bits[1]) if bits else 8), 8)


def _lasts_s(packet: "Packet[Stream]", size_bytes: int, track: SoundTrack) -> Fraction:
    """Return how long a packet's sound is: what the codec says counts before the container's next time."""
    if track.bytes_a_second:
        return size_bytes / track.bytes_a_second
    stated_s = (packet.duration or 0) * Fraction(packet.time_base or 1)
    framed_s = Fraction(track.frame_samples, track.rate_hz or 1)
    return min(stated_s, framed_s) if stated_s and framed_s else stated_s or framed_s


def _payload(data: bytes, codec: str) -> bytes:
    """Return a packet's payload without what a container may say instead: of AAC, the ADTS header and the layout."""
    return _without_layout(_without_header(data)) if codec == "aac" else data


def _without_header(data: bytes) -> bytes:
    """Return AAC without its ADTS header (ISO/IEC 13818-7)."""
    adts_bytes = 7
    if len(data) < adts_bytes or data[0] != 0xFF or data[1] & 0xF6 != 0xF0:  # noqa: PLR2004 - syncword
        return data
    stated = (data[3] & 3) << 11 | data[4] << 3 | data[5] >> 5
    # A recording's last frame may be cut short.
    return data[adts_bytes if data[1] & 1 else adts_bytes + 2 :] if stated >= len(data) else data


def _without_layout(data: bytes) -> bytes:
    """Return AAC without a program config element ahead of its sound, which mp4 and Matroska keep in the header."""
    at, bits, size_bits = _PCE_BITS, int.from_bytes(data[:_PCE_LONGEST]), 8 * len(data[:_PCE_LONGEST])

    def field(begin: int, width: int) -> int:
        return bits >> max(size_bits - begin - width, 0) & ((1 << width) - 1)

    if not data or field(0, 3) != _PCE:
        return data
    counts = [field(13, 4), field(17, 4), field(21, 4), field(25, 2), field(27, 3), field(30, 4)]
    for width in (4, 4, 3):  # mixdowns: each a flag, and what follows it
        at += 1 + (width if field(at, 1) else 0)
    at += sum(count * width for count, width in zip(counts, (5, 5, 5, 4, 4, 5), strict=True))
    comment = -(-at // 8)
    return data[comment + 1 + field(8 * comment, 8) :]


def frame_start_s(frame: AudioFrame) -> Fraction:
    """Return when a decoded frame begins, on the file's clock."""
    return (frame.pts or 0) * Fraction(frame.time_base or 1)


def _first_sample_s(url: str, number: int) -> Fraction | None:
    """Return when a track's first sample is heard, on the file's clock; None where it has no packet with a time.

    A packet that fails to decode has its samples too: where they would be heard.
    """
    with open_source(url) as container:
        stream = audio_tracks(container)[number]
        damaged_s: Fraction | None = None
        for packet in chain(_readable(container, [stream]), (None,)):
            try:
                decoded = stream.codec_context.decode(cast("Packet[AudioStream] | None", packet))
            except av.error.FFmpegError:
                if damaged_s is None and packet is not None and packet.pts is not None:
                    hidden_s = Fraction(skipped_samples(packet)[0], stream.codec_context.rate or 1)
                    damaged_s = packet.pts * Fraction(packet.time_base or 1) + hidden_s
                continue
            if (first := next((frame for frame in decoded if frame.samples), None)) is not None:
                heard_s = frame_start_s(reachable(first))
                return heard_s if damaged_s is None else min(heard_s, damaged_s)
    return damaged_s


def decoded_sound(url: str, number: int, failed: Callable[[], None] = lambda: None) -> Iterator[AudioFrame]:
    """Yield the sound of a file's audio track ``number``; ``failed`` is called for each packet that does not decode."""
    with open_source(url) as container:
        stream = audio_tracks(container)[number]
        for packet in chain(_readable(container, [stream]), (None,)):
            try:
                decoded = stream.codec_context.decode(cast("Packet[AudioStream] | None", packet))
            except av.error.FFmpegError:
                failed()
                continue
            yield from (reachable(frame) for frame in decoded if frame.samples)
