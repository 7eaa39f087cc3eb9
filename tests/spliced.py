"""Tracks whose picture format changes: the packets of several clips in a row."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import av
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from codecfleet.actors.decode.decoding import DecodeTally, OpenTrack, PictureDecoder
from codecfleet.actors.decode.picture_hash import PictureHash, picture_hash
from codecfleet.actors.surfaces.device_frame import PictureNotes
from codecfleet.testing.clips import Clip, make_clip

if TYPE_CHECKING:
    from av.stream import Stream


_GAP_TICKS = 10_000


@dataclass(frozen=True, slots=True)
class TrackPacket:
    """A packet, detached from any file."""

    data: bytes
    pts: int
    is_keyframe: bool


@dataclass(frozen=True, slots=True)
class DecodedPicture:
    """A decoded picture: its packet's number, its samples, their colour description, and NVDEC's notes."""

    number: int | None
    hash: PictureHash
    colours: tuple[int, int, int, int]
    notes: PictureNotes | None = field(default=None, compare=False)


def packets_of(path: Path) -> list[TrackPacket]:
    """Return the packets of a file's first track."""
    with av.open(str(path)) as container:
        packets = [packet for packet in container.demux(container.streams.video[0]) if packet.size]
        return [TrackPacket(bytes(packet), packet.pts or 0, packet.is_keyframe) for packet in packets]


def splice(folder: Path, suffix: str, clips: Sequence[Clip]) -> tuple[Path, list[TrackPacket]]:
    """Return the file of the first clip, and the packets of all clips, with continuous times.

    ``suffix`` names a container whose packets carry the parameter sets, such as ``.ts``.
    """
    paths = [make_clip(folder / f"{number}{suffix}", clip) for number, clip in enumerate(clips)]
    joined: list[TrackPacket] = []
    for packets in map(packets_of, paths):
        last = max((packet.pts for packet in joined), default=-_GAP_TICKS)
        shift = last + _GAP_TICKS - min(packet.pts for packet in packets)
        joined += [TrackPacket(packet.data, packet.pts + shift, packet.is_keyframe) for packet in packets]
    return paths[0], joined


def write_spliced(path: Path, clips: Sequence[Clip], *, declared: tuple[int, int]) -> Path:
    """Write a track that goes from clip to clip, in a container that declares this (width, height).

    All clips have the first one's encoder, and no B-pictures. ``path`` names a container whose packets carry their
    parameter sets, as ``.ts`` and ``.webm`` do for the codecs that they hold.
    """
    with tempfile.TemporaryDirectory() as folder:
        first, packets = splice(Path(folder), path.suffix, clips)
        with av.open(str(first)) as container:
            stream = container.streams.video[0]
            codec, time_base = stream.codec_context.codec.canonical_name, stream.time_base
    width, height = declared
    with av.open(str(path), "w") as output:
        track = output.add_mux_stream(codec, width=width, height=height, time_base=time_base)
        for each in packets:
            packet: Packet[Stream] = Packet(each.data)
            packet.stream, packet.is_keyframe = track, each.is_keyframe
            packet.pts = packet.dts = each.pts
            if time_base is not None:
                packet.time_base = time_base
            output.mux_one(packet)
    return path


def decoded_packets(
    decoder: PictureDecoder[VideoFrame], path: Path, packets: Sequence[TrackPacket]
) -> list[DecodedPicture]:
    """Decode packets that replace those of the track in ``path``."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        stream.codec_context.copy_opaque = True
        decoded = decoder.decode(
            OpenTrack(stream, stream.codec_context), enumerate(_attached(stream, packets)), DecodeTally()
        )
        return [
            DecodedPicture(number, picture_hash(picture.pts or 0, picture), _colours(picture), _notes(picture))
            for number, picture in decoded
        ]


def _attached(stream: VideoStream, packets: Sequence[TrackPacket]) -> "Iterator[Packet[VideoStream]]":
    for each in packets:
        packet = cast("Packet[VideoStream]", Packet(each.data))
        packet.pts = packet.dts = each.pts
        packet.is_keyframe, packet.stream = each.is_keyframe, stream
        if stream.time_base is not None:
            packet.time_base = stream.time_base
        yield packet


def _notes(picture: VideoFrame) -> PictureNotes | None:
    return picture.opaque if isinstance(picture.opaque, PictureNotes) else None


def _colours(picture: VideoFrame) -> tuple[int, int, int, int]:
    return picture.color_range, picture.colorspace, picture.color_primaries, picture.color_trc
