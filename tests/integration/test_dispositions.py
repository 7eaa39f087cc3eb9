"""Dispositions of tracks: each is written into each container and read back."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.audio.frame import AudioFrame
from av.stream import Disposition
from av.video.frame import VideoFrame

from codecfleet.jobs.carry.containers import Container, container_for
from codecfleet.jobs.carry.tags import lost_dispositions
from codecfleet.jobs.source.tracks import Track, TrackKind

NOT_FOR_USERS = ("attached_pic", "timed_thumbnails", "still_image", "dependent", "metadata", "multilayer", "default")
"""Dispositions about storage; and ``default``, because mp4's first track always has it."""
FLAGS = [flag for flag in Disposition if int(flag) and flag.name not in NOT_FOR_USERS]


def read_back(path: Path, container: Container, kind: str, flag: Disposition) -> int:
    """Write a film whose track of a kind has a disposition; return what is read back."""
    is_webm = container.muxer == "webm"
    options = container.options(Fraction(1, 25))
    with av.open(str(path), "w", format=container.muxer, container_options=options) as output:
        picture: Any = output.add_stream("libvpx-vp9" if is_webm else "libx264", rate=25)
        picture.width, picture.height = 64, 48
        sound: Any = output.add_stream("libopus" if is_webm else "aac", rate=48_000, layout="mono")
        {"video": picture, "audio": sound}[kind].disposition = flag
        for number in range(2):
            frame = VideoFrame(64, 48, "yuv420p")
            frame.pts = number
            output.mux(picture.encode(frame))
        for number in range(4):
            wave = AudioFrame.from_ndarray(np.zeros((1, 960), np.float32), format="flt", layout="mono")
            wave.sample_rate, wave.pts = 48_000, number * 960
            output.mux(sound.encode(wave))
        for stream in (picture, sound):
            output.mux(stream.encode(None))
    with av.open(str(path)) as written:
        return next(int(stream.disposition) for stream in written.streams if stream.type == kind)


@pytest.mark.parametrize("kind", ["video", "audio"])
@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.mkv", "a.webm", "a.ts"])
def test_what_is_said_to_be_lost_is_lost_and_no_more(tmp_path: Path, name: str, kind: str) -> None:
    """The table of kept dispositions is that of FFmpeg's muxers."""
    container = container_for(name)
    for flag in FLAGS:
        kept = bool(read_back(tmp_path / name, container, kind, flag) & int(flag))
        track = Track(index=0, kind=TrackKind(kind), codec="x", time_base=Fraction(1), disposition=int(flag))
        assert lost_dispositions(track, container) == ([] if kept else [flag.name])
