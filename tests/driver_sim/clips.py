"""Clips for the simulator's tests: packets as a decoder gets them, and what software makes of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from hashlib import md5
from pathlib import Path
from typing import cast

import av
import numpy as np
from av.bitstream import BitStreamFilterContext
from av.video.plane import VideoPlane
from numpy.typing import NDArray

from codecfleet.actors.encode.scheduling import ordinary_scheduling

__all__ = ["Clip", "Packet", "encoded", "film_packets", "software_frames"]

WIDTH, HEIGHT = 192, 160


@dataclass(frozen=True, slots=True)
class Packet:
    """One compressed picture, Annex B where the codec knows it, with its PTS in ticks."""

    data: bytes
    pts: int
    is_keyframe: bool


@dataclass(frozen=True, slots=True)
class Clip:
    """Packets in decode order, of a codec under libavcodec's name."""

    codec: str
    packets: tuple[Packet, ...]

    def fed(self, start: int = 0, stop: int | None = None) -> list[tuple[bytes, int]]:
        """Return a part of it as a segment of ``program_decode.py``."""
        return [(packet.data, packet.pts) for packet in self.packets[start:stop]]


def film_packets(path: Path, count: int) -> Clip:
    """Return the first packets of an H.264 film in MP4, with Annex B start codes."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        filters = BitStreamFilterContext("h264_mp4toannexb", stream)
        packets: list[Packet] = []
        for packet in container.demux(stream):
            packets += [_packet(each) for each in filters.filter(packet)]
            if len(packets) >= count:
                break
    return Clip("h264", tuple(packets[:count]))


def encoded(
    encoder: str,
    codec: str,
    frames: int,
    options: dict[str, str],
    pixel_format: str = "yuv420p",
    *,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> Clip:
    """Return a clip of moving noise of that (width, height), encoded by libavcodec."""
    context = cast("av.VideoCodecContext", av.CodecContext.create(encoder, "w"))
    (context.width, context.height), context.pix_fmt = size, pixel_format
    context.time_base, context.framerate = Fraction(1, 25), Fraction(25)
    context.options = options
    with ordinary_scheduling():
        context.open()
    packets = [_packet(packet) for frame in _moving(frames, pixel_format, size) for packet in context.encode(frame)]
    packets += [_packet(packet) for packet in context.encode(None)]
    return Clip(codec, tuple(packets))


def software_frames(clip: Clip) -> list[list[object]]:
    """Return [PTS, MD5 of the samples in NVDEC's layout] of each frame in display order, as libavcodec decodes it."""
    context = cast("av.VideoCodecContext", av.CodecContext.create(clip.codec, "r"))
    context.thread_type = "NONE"
    frames: list[av.VideoFrame] = []
    for each in clip.packets:
        packet = av.Packet(each.data)
        packet.pts = packet.dts = each.pts
        frames += context.decode(packet)
    frames += context.decode(None)
    return [[frame.pts, md5(surface(frame), usedforsecurity=False).hexdigest()] for frame in frames]


def surface(frame: av.VideoFrame) -> bytes:
    """Return a 4:2:0 frame as NV12, or as P016 where it has more than 8 bits: the samples stand at the top."""
    depth = frame.format.components[0].bits
    luma, *chroma = [_samples(plane, number > 0, frame, depth) for number, plane in enumerate(frame.planes)]
    return bytes(luma.tobytes() + np.stack(chroma, axis=-1).tobytes())


def _samples(plane: VideoPlane, is_chroma: bool, frame: av.VideoFrame, depth: int) -> NDArray[np.integer]:  # noqa: FBT001
    rows, columns = [(size + 1) // 2 if is_chroma else size for size in (frame.height, frame.width)]
    if depth == 8:
        return np.frombuffer(bytes(plane), np.uint8).reshape(plane.height, -1)[:rows, :columns]
    return np.frombuffer(bytes(plane), np.uint16).reshape(plane.height, -1)[:rows, :columns] << (16 - depth)


def _packet(packet: "av.Packet[av.VideoStream]") -> Packet:
    return Packet(bytes(packet), packet.pts or 0, packet.is_keyframe)


def _moving(count: int, pixel_format: str, size: tuple[int, int]) -> Iterator[av.VideoFrame]:
    width, height = size
    generator = np.random.default_rng(7)
    noise = generator.integers(0, 255, (height * 2, width * 2, 3), dtype=np.uint8)
    blurred = noise // 4 + np.roll(noise, 1, 0) // 4 + np.roll(noise, 1, 1) // 4 + np.roll(noise, 2, 1) // 4
    for number in range(count):
        shown = blurred[number : number + height, 2 * number : 2 * number + width]
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(shown), format="rgb24").reformat(format=pixel_format)
        frame.pts = number
        yield frame
