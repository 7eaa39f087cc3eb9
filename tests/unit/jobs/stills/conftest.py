"""Clips for stills, and a bench that takes them."""

from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.error
import pytest
from av.video.frame import VideoFrame

from codecfleet.cluster.fleet.pool import Pool
from codecfleet.jobs.stills.job import StillsReport, make_stills
from codecfleet.jobs.stills.spec import StillsSpec
from codecfleet.testing import LocalPool
from codecfleet.testing.clips import make_clip, uneven_times

from ..gop_clips import CLIPS as GOP_CLIPS
from ..gop_clips import of_x264

CLIPS = GOP_CLIPS | {
    "closed.mp4": of_x264("bframes=3"),
    "uneven.mp4": of_x264("bframes=2", uneven_times([40, 7, 300, 40, 1, 90] * 10)),
}


class StillsBench:
    """A folder with clips, and stills jobs on them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "stills"
        self.told: list[int] = []

    def clip(self, name: str = "closed.mp4") -> Path:
        """Return a clip, which is made at the first request."""
        path = self.folder / name
        return path if path.exists() else make_clip(path, CLIPS[name])

    def spec(self, source: Path | None = None, **changes: Any) -> StillsSpec:
        """Return what to do."""
        which = {} if {"count", "scene", "every_s"} & changes.keys() else {"every_s": Fraction(1, 2)}
        fields = {"source": source or self.clip(), "output": self.output, "format": "png", **which, **changes}
        return StillsSpec(**fields)

    async def stills(self, source: Path | None = None, *, pool: Pool | None = None, **changes: Any) -> StillsReport:
        """Run a job."""
        async with pool or LocalPool(3) as running:
            return await make_stills(self.spec(source, **changes), running, progress=self.told.append)

    def files(self) -> dict[str, bytes]:
        """Return the content of the folder of stills."""
        return {path.name: path.read_bytes() for path in self.output.iterdir()}

    def left_over(self) -> set[str]:
        """Return the files that a job left beside its source."""
        return {path.name for path in self.folder.iterdir()} - set(CLIPS)


@pytest.fixture
def bench(tmp_path: Path) -> StillsBench:
    """A bench with a new folder."""
    return StillsBench(tmp_path)


def decoded(path: Path) -> list[tuple[Fraction, VideoFrame]]:
    """Return the pictures of a sequential decode, with their times in seconds after the first packet's."""
    frames: list[VideoFrame] = []
    times = []
    with av.open(str(path)) as container:
        container.streams.video[0].thread_count = 1
        for packet in container.demux(video=0):
            times += [] if packet.pts is None else [packet.pts]
            with suppress(av.error.FFmpegError):
                frames += packet.decode()
    return [(((frame.pts or 0) - min(times)) * Fraction(frame.time_base or 0), frame) for frame in frames]


def on_screen(pictures: list[tuple[Fraction, VideoFrame]], at_s: Fraction) -> VideoFrame:
    """Return the last picture shown at or before a time."""
    return next(frame for time_s, frame in reversed(pictures) if time_s <= at_s)
