"""The source of a comparison: reads its facts, and makes a long film from a short one."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import av

if TYPE_CHECKING:
    from av.packet import Packet
    from av.stream import Stream

__all__ = ["VideoFacts", "loop_clip", "read_video", "scale_clip"]


@dataclass(frozen=True, slots=True)
class VideoFacts:
    """The facts from one demultiplexing pass over a file's first video track.

    ``times_s`` is sorted and holds every picture's time.
    """

    width: int
    height: int
    codec: str
    times_s: tuple[Fraction, ...]
    video_bytes: int
    file_bytes: int

    @property
    def frames(self) -> int:
        """How many pictures are presented."""
        return len(self.times_s)

    @property
    def distinct_times(self) -> int:
        """How many pictures have a time that no earlier picture has."""
        return len(set(self.times_s))

    @property
    def duration_s(self) -> Fraction:
        """The time from the first picture to the end of the last, whose duration is taken to be the mean."""
        span = self.times_s[-1] - self.times_s[0]
        return span + (span / (self.frames - 1) if self.frames > 1 else Fraction(0))

    def before_frame_s(self, start_s: Fraction | float) -> Fraction:
        """Return the middle of the gap before the picture nearest to ``start_s``, counted from the first picture.

        The result is in the container's own time; an accurate seek to it starts with exactly that picture.
        """
        wanted = self.times_s[0] + Fraction(start_s)
        place = min(max(1, bisect_left(self.times_s, wanted)), self.frames - 1)
        if abs(self.times_s[place - 1] - wanted) < abs(self.times_s[place] - wanted):
            place -= 1
        return (self.times_s[max(place - 1, 0)] + self.times_s[place]) / 2


def read_video(path: Path) -> VideoFacts:
    """Read every packet of the first video track."""
    times: list[Fraction] = []
    size = 0
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        for packet in container.demux(stream):
            if packet.size and packet.pts is not None and not packet.is_discard:
                times.append(packet.pts * packet.time_base)
                size += packet.size
        return VideoFacts(
            width=stream.codec_context.width,
            height=stream.codec_context.height,
            codec=stream.codec_context.name,
            times_s=tuple(sorted(times)),
            video_bytes=size,
            file_bytes=path.stat().st_size,
        )


def loop_clip(clip: Path, length_s: Fraction, output: Path) -> VideoFacts:
    """Repeat a clip, packets copied, until it is ``length_s`` long; return the result's facts.

    Every round begins one picture's duration after the last picture of the previous round, so the picture rate stays
    even. Sound that extends beyond a round is cut. An incomplete last round ends a few pictures
    early, where all remaining pictures decode.
    """
    round_s = read_video(clip).duration_s
    with av.open(str(clip)) as first, av.open(str(output), "w") as sink:
        tracks = [track for track in (first.streams.best("video"), first.streams.best("audio")) if track is not None]
        outputs = {track.index: sink.add_stream_from_template(track) for track in tracks}
        for number in range(math.ceil(length_s / round_s)):
            offset_s = number * round_s
            for packet in _round_packets(clip, list(outputs), offset_s, min(round_s, length_s - offset_s)):
                packet.stream = outputs[packet.stream.index]
                sink.mux(packet)
    return read_video(output)


def scale_clip(clip: Path, size: tuple[int, int], folder: Path) -> Path:
    """Return a clip's pictures at another (width, height), as H.264 of high quality in ``folder``, without sound.

    An existing file of the same clip and size is reused.
    """
    width, height = size
    output = folder / f"{clip.stem}-{clip.stat().st_size}-{width}x{height}.mp4"
    if output.is_file():
        return output
    partial = output.with_suffix(".partial.mp4")
    options = {"preset": "veryfast", "crf": "18", "x264-params": "log-level=error"}
    with av.open(str(clip)) as source, av.open(str(partial), "w") as sink:
        track = source.streams.video[0]
        track.thread_type = "AUTO"
        encoder = sink.add_stream("libx264", rate=track.average_rate, options=options)
        encoder.width, encoder.height, encoder.pix_fmt = width, height, "yuv420p"
        encoder.codec_context.time_base = track.time_base or Fraction(1, 90_000)
        for frame in source.decode(track):
            sink.mux(encoder.encode(_scaled(frame, width, height)))
        sink.mux(encoder.encode(None))
    partial.replace(output)
    return output


def _scaled(frame: av.VideoFrame, width: int, height: int) -> av.VideoFrame:
    scaled = frame.reformat(width, height, "yuv420p", interpolation="LANCZOS")
    scaled.pts, scaled.time_base, scaled.pict_type = frame.pts, frame.time_base, 0
    return scaled


def _round_packets(
    clip: Path, tracks: Sequence[int], offset_s: Fraction, keep_s: Fraction
) -> "Iterator[Packet[Stream]]":
    """Yield a clip's packets, moved to ``offset_s``, up to the first picture at or after ``keep_s``."""
    pictures_ended = False
    with av.open(str(clip)) as source:
        for packet in source.demux([source.streams[index] for index in tracks]):
            if packet.size == 0 or packet.pts is None or packet.dts is None:
                continue
            start_s, length_s = packet.pts * packet.time_base, (packet.duration or 0) * packet.time_base
            if packet.stream.type == "video":
                pictures_ended = pictures_ended or start_s >= keep_s
                wanted = not pictures_ended
            else:
                # A priming packet comes before its round, in the previous round's time.
                wanted = start_s + length_s <= keep_s and (offset_s == 0 or start_s >= 0)
            if wanted:
                shift = round(offset_s / packet.time_base)
                packet.pts, packet.dts = packet.pts + shift, packet.dts + shift
                yield packet
