"""Jobs with many segments, little memory or few open files."""

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from codecfleet.actors.bitstream.access_points import RandomAccess
from codecfleet.jobs.plan.cuts import choose_cuts
from codecfleet.jobs.source.index import KEY, TrackIndex
from codecfleet.testing.clips import Clip, constant_times, make_clip

from .local_jobs import LOSSLESS, shown, spec_of, transcode
from .test_full_disks import PROGRAM


@pytest.mark.slow
def test_twelve_hundred_segments_join_exactly(tmp_path: Path) -> None:
    """With a cut before every frame, 1,200 segments join with every seam checked and every picture once, in time."""
    count = 1200
    clip = Clip(
        times=constant_times(count),
        keyframes=frozenset(range(count)),
        options=(("preset", "ultrafast"),),
        width=32,
        height=32,
    )
    source = make_clip(tmp_path / "source.mkv", clip)
    report = transcode(spec_of(source, tmp_path / "o.mp4", segment_s=Fraction(1, 25), **LOSSLESS))
    assert len(report.segments) == count
    assert (report.proof.seams, report.proof.seams_equal, report.proof.output_frames) == (count - 1, count - 1, count)
    assert shown(tmp_path / "o.mp4") == shown(source)
    assert {path.name for path in tmp_path.iterdir()} == {"source.mkv", "o.mp4"}


def noise(path: Path, frames: int) -> Path:
    """Write a clip that hardly compresses, so each picture has about its raw size in source and output."""
    chance = np.random.default_rng(7)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        assert isinstance(stream, VideoStream)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "gray"
        for number in range(frames):
            frame = VideoFrame.from_ndarray(chance.integers(0, 256, (64, 96), dtype=np.uint8), format="gray")
            frame.pts, frame.time_base = number, Fraction(1, 25)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def test_memory_goes_by_what_is_in_flight(tmp_path: Path) -> None:
    """Six times the film does not take six times the memory, because finished payloads are on disk."""
    peaks, sizes = [], []
    for frames in (50, 300):
        source = noise(tmp_path / f"{frames}.mkv", frames)
        spec = spec_of(source, tmp_path / f"{frames}.mp4", segment_s=Fraction(2, 5), **LOSSLESS)
        tracemalloc.start()
        try:
            report = transcode(spec)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        sizes.append(report.output_bytes)
        assert len(report.segments) > frames // 15
    assert sizes[1] - sizes[0] > 1_250_000
    assert peaks[1] - peaks[0] < 750_000


def regular_index(packets: int) -> TrackIndex:
    """Return the index of a film at 25 fps with a keyframe every two seconds and a scene change every seven."""
    flags = np.zeros(packets, dtype=np.uint8)
    keys = sorted({*range(0, packets, 50), *range(0, packets, 177)})
    flags[keys] = KEY
    times = np.arange(packets, dtype=np.int64) * 40
    return TrackIndex(
        source="film",
        stream_index=0,
        codec="h264",
        time_base=Fraction(1, 1000),
        frame_rate=Fraction(25),
        pts=times,
        dts=times,
        pos_bytes=times,
        sizes_bytes=times,
        flags=flags,
        kinds=dict.fromkeys(keys, RandomAccess.IDR),
        shifts=(),
    )


def calls_of(work: Callable[[], object]) -> int:
    """Count the calls that ``work`` makes, which does not depend on how busy the machine is."""
    count = 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_planning_grows_with_the_film_and_no_faster() -> None:
    """Planning ten times the film takes about ten times the steps, up to 100,000 packets."""
    small, large = (calls_of(lambda n=n: choose_cuts(regular_index(n))) for n in (10_000, 100_000))  # type: ignore[misc]
    assert large < 15 * small


def test_few_descriptors_are_enough(tmp_path: Path) -> None:
    """A job with many segments runs with 64 open files, because no file stays open for each segment."""
    clip = Clip(times=constant_times(140), keyframes=frozenset(range(0, 140, 2)), options=(("preset", "ultrafast"),))
    source = make_clip(tmp_path / "source.mp4", clip)
    script = 'ulimit -n 64; exec "$@"'
    arguments = ["transcode", "--quiet", "--preset", "1", "--segment-seconds", "0.08", source, tmp_path / "o.mp4"]
    command = ["sh", "-c", script, "sh", sys.executable, "-c", PROGRAM, *(str(a) for a in arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
