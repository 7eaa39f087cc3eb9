"""Small synthetic clips with chosen timestamps and GOP structure, for tests of exactness.

All parts of every picture differ from the neighbouring pictures, so that tests notice lost, repeated or swapped
pictures.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import av
import numpy as np
from av.filter import Graph
from av.video.frame import PictureType, VideoFrame
from av.video.stream import VideoStream

from ..actors.encode.scheduling import ordinary_scheduling


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """A clip to make. The extension of the file selects the container."""

    times: tuple[int, ...]  # presentation times in ticks of ``time_base``, in increasing order
    time_base: Fraction = Fraction(1, 1000)
    keyframes: frozenset[int] = field(
        default_factory=lambda: frozenset({0})
    )  # the numbers of pictures that are keyframes
    encoder: str = "libx264"
    options: tuple[tuple[str, str], ...] = ()  # options for the FFmpeg encoder
    muxer_options: tuple[tuple[str, str], ...] = ()  # options for the FFmpeg muxer
    width: int = 64
    height: int = 48
    pix_fmt: str = "yuv420p"


def picture(number: int, width: int, height: int) -> VideoFrame:
    """Return picture ``number``: moving bars whose brightness and position depend on the number."""
    across = np.arange(width, dtype=np.int64)[None, :]
    down = np.arange(height, dtype=np.int64)[:, None]
    luma = (across * 3 + down * 2 + number * 11 + ((across // 8 + number) % 3) * 40) % 220 + 16
    planes = np.full((height * 3 // 2, width), 128, dtype=np.uint8)
    planes[:height] = luma.astype(np.uint8)
    planes[height:] = (64 + number * 7 % 128) & 0xFF
    return VideoFrame.from_ndarray(planes, format="yuv420p")


def turned_over(frame: VideoFrame) -> VideoFrame:
    """Return a frame upside down, in the same memory and with negative strides, as FFmpeg's ``vflip`` makes it."""
    graph = Graph()
    source = graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=Fraction(1, 25))
    graph.link_nodes(source, graph.add("vflip"), graph.add("buffersink")).configure()
    graph.push(frame)
    found = graph.pull()
    if not isinstance(found, VideoFrame):
        raise TypeError(found)
    return found


def make_clip(path: Path, clip: Clip) -> Path:
    """Encode ``clip`` into ``path``, and return the path."""
    path.write_bytes(_encoded(clip, path.suffix))
    return path


@lru_cache(maxsize=256)
def _encoded(clip: Clip, suffix: str) -> bytes:
    """Return the content of the clip's file, cached because many tests use the same clips."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"clip{suffix}")
        _encode(path, clip)
        return path.read_bytes()


def _encode(path: Path, clip: Clip) -> None:
    with av.open(str(path), "w", container_options=dict(clip.muxer_options)) as container:
        stream = container.add_stream(clip.encoder, options={"forced-idr": "0", **dict(clip.options)})
        if not isinstance(stream, VideoStream):
            raise TypeError(f"{clip.encoder} makes no video")
        stream.width, stream.height, stream.pix_fmt = clip.width, clip.height, clip.pix_fmt
        stream.codec_context.time_base = clip.time_base
        stream.codec_context.framerate = Fraction(25)
        stream.codec_context.gop_size = 10_000
        stream.codec_context.thread_count = 1
        with ordinary_scheduling():
            stream.codec_context.open()
        for number in range(len(clip.times)):
            container.mux(stream.encode(_frame(clip, number)))
        container.mux(stream.encode(None))


def _frame(clip: Clip, number: int) -> VideoFrame:
    even = clip.width + clip.width % 2, clip.height + clip.height % 2
    frame = picture(number, *even)
    if (*even, "yuv420p") != (clip.width, clip.height, clip.pix_fmt):
        frame = frame.reformat(clip.width, clip.height, format=clip.pix_fmt)
    frame.pts, frame.time_base = clip.times[number], clip.time_base
    frame.pict_type = PictureType.I if number in clip.keyframes else PictureType.NONE
    return frame


def constant_times(frames: int, step: int = 40, start: int = 0) -> tuple[int, ...]:
    """Return the times of ``frames`` pictures with a constant interval between them."""
    return tuple(start + n * step for n in range(frames))


def uneven_times(steps: Sequence[int], start: int = 0) -> tuple[int, ...]:
    """Return the times of pictures with these intervals between them; the first time is ``start``."""
    times = [start]
    for step in steps:
        times.append(times[-1] + step)
    return tuple(times)
