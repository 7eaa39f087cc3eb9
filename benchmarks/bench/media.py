"""The source of a comparison: what is in it, and how to make a long one of a short one."""

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av

from .ffmpeg import run_ffmpeg

__all__ = ["VideoFacts", "loop_clip", "read_video"]


@dataclass(frozen=True, slots=True)
class VideoFacts:
    """What one demux pass of a file's first video track says. ``times_s`` is sorted and holds every picture's time."""

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
    def duration_s(self) -> Fraction:
        """From the first picture to the end of the last one, which is taken to last as long as the mean."""
        span = self.times_s[-1] - self.times_s[0]
        return span + (span / (self.frames - 1) if self.frames > 1 else Fraction(0))

    @property
    def video_bps(self) -> float:
        """The video's mean bitrate in bit/s, without sound and container."""
        return float(self.video_bytes * 8 / self.duration_s)

    def before_frame_s(self, start_s: Fraction | float) -> Fraction:
        """Return the middle of the gap before the picture nearest to ``start_s``, counted from the first picture.

        Given in the container's own time: an accurate seek there starts with exactly that picture.
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


def loop_clip(ffmpeg: str, clip: Path, length_s: Fraction, output: Path) -> None:
    """Repeat a clip, packets copied, until it is ``length_s`` long; the last round is cut short there."""
    facts = read_video(clip)
    rounds = -(-length_s // facts.duration_s)
    arguments = ["-stream_loop", str(rounds - 1), "-i", str(clip), "-map", "0:v:0", "-map", "0:a:0?", "-c", "copy"]
    run_ffmpeg(ffmpeg, [*arguments, "-t", f"{float(length_s):.6f}", str(output)])
