"""For any source, outputs have the same pictures at the same times: lossless, compared picture by picture."""

import random
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import av
import av.error
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codecfleet.actors.decode.picture_hash import PictureHash
from codecfleet.jobs.source.source import read_source
from codecfleet.testing.clips import Clip, constant_times, make_clip, uneven_times
from tests.sweeps import swept

from .local_jobs import lossless, shown

STRUCTURES = st.fixed_dictionaries(
    {
        "steps": st.lists(st.sampled_from([17, 33, 40, 41, 80, 333]), min_size=3, max_size=90),
        "keys": st.sets(st.integers(1, 89), max_size=12),
        "start": st.sampled_from([0, 0, 40, 1000, 588_000]),
        "bframes": st.integers(0, 4),
        "open_gop": st.booleans(),
        "pyramid": st.booleans(),
        "container": st.sampled_from(["mp4", "mkv", "ts"]),
        "encoder": st.sampled_from(["libx264", "libx264", "libx265", "mpeg2video"]),
    }
)


def clip_of(structure: dict[str, object]) -> Clip:
    """Return the clip that a drawn structure describes."""
    steps, bframes = structure["steps"], structure["bframes"]
    assert isinstance(steps, list)
    assert isinstance(structure["keys"], set)
    assert isinstance(structure["start"], int)
    encoder = str(structure["encoder"])
    times = uneven_times(steps, structure["start"])
    time_base, options = Fraction(1, 1000), {"bf": str(bframes), "preset": "ultrafast"}
    if encoder == "libx264":
        pyramid = "normal" if structure["pyramid"] else "none"
        options |= {"x264-params": f"open-gop={int(bool(structure['open_gop']))}:b-pyramid={pyramid}:b-adapt=0"}
    elif encoder == "libx265":
        options |= {"x265-params": f"open-gop={int(bool(structure['open_gop']))}:log-level=none:b-adapt=0"}
    else:
        # MPEG-2 supports only constant frame rates.
        times, time_base = constant_times(len(times), 1, structure["start"] // 40), Fraction(1, 25)
        options = {"bf": str(min(2, int(str(bframes)))), "g": "12"}
    return Clip(
        times=times,
        time_base=time_base,
        keyframes=frozenset({0, *structure["keys"]}),
        encoder=encoder,
        options=tuple(options.items()),
    )


@given(STRUCTURES)
@settings(max_examples=settings().max_examples // 2, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_structure_comes_out_picture_by_picture(structure: dict[str, object]) -> None:
    """Random GOPs, B-pyramids, open GOPs, variable frame rates and late starts: each picture once, at its time."""
    with tempfile.TemporaryDirectory() as folder:
        source = make_clip(Path(folder) / f"source.{structure['container']}", clip_of(structure))
        report = lossless(source, Path(folder) / "output.mp4")
        assert shown(Path(folder) / "output.mp4") == shown(source)
        assert report.proof.seams_equal == report.proof.seams


TIME_BASES = {
    "nanoseconds.mp4": Clip(
        times=tuple(n * 1_001_000_000 // 30 + n % 3 for n in range(36)),
        time_base=Fraction(1, 1_000_000_000),
        muxer_options=(("video_track_timescale", "1000000000"),),
    ),
    "1200000ths.mp4": Clip(
        times=tuple(n * 40_040 + n % 4 for n in range(36)),
        time_base=Fraction(1, 1_200_000),
        muxer_options=(("video_track_timescale", "1200000"),),
    ),
    "1001sts.avi": Clip(times=constant_times(36, 1), time_base=Fraction(1001, 30_000), options=(("bf", "0"),)),
    "wrapping.ts": Clip(times=constant_times(36, 3003, 2**33 - 60_000), time_base=Fraction(1, 90_000)),
}


@pytest.mark.parametrize("codec", ["h264", "hevc", "av1", "vp9"])
@pytest.mark.parametrize("name", TIME_BASES)
def test_any_time_base_is_kept_to_the_tick(tmp_path: Path, name: str, codec: str) -> None:
    """Pictures keep their times with any time base, and wherever the clock passes the end of its 33 bits."""
    source = make_clip(tmp_path / name, replace(TIME_BASES[name], keyframes=frozenset(range(0, 36, 12))))
    report = lossless(source, tmp_path / "output.mp4", codec=codec, quality=40)
    assert len(report.segments) > 1
    assert report.proof.times_equal
    expected, found = read_source(str(source)).index, read_source(str(tmp_path / "output.mp4")).index
    times_s = [(ticks - expected.first_ticks) * expected.time_base for ticks in expected.times.tolist()]
    assert [(ticks - found.first_ticks) * found.time_base for ticks in found.times.tolist()] == times_s


@pytest.mark.parametrize("encoder", swept(["libx264", "libx265"]))
@given(seed=st.integers(0, 2**32), hits=st.integers(1, 12))
@settings(max_examples=settings().max_examples // 5, deadline=None, suppress_health_check=list(HealthCheck))
def test_damage_is_kept_as_a_sequential_decode_shows_it(encoder: str, seed: int, hits: int) -> None:
    """If bytes of the pictures are flipped, the output shows exactly what one sequential decode shows."""
    with tempfile.TemporaryDirectory() as folder:
        clip = Clip(
            times=constant_times(100),
            keyframes=frozenset(range(0, 100, 12)),
            encoder=encoder,
            options=(("bf", "2"), ("preset", "veryfast"), (encoder[3:] + "-params", "open-gop=1")),
            width=128,
            height=96,
        )
        source = damage(make_clip(Path(folder) / "source.mkv", clip), random.Random(seed), hits)  # noqa: S311
        expected = shown(source)
        lossless(source, Path(folder) / "output.mp4")
        assert shown(Path(folder) / "output.mp4") == expected


def damage(path: Path, chance: random.Random, hits: int) -> Path:
    """Overwrite bytes inside the file's pictures."""
    with av.open(str(path)) as container:
        places = [(p.pos, p.size) for p in container.demux(video=0) if p.size and p.pos]
    data = bytearray(path.read_bytes())
    for _ in range(hits):
        position, size = chance.choice(places)
        at = position + chance.randrange(20, max(21, size))
        if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_reset_clock_goes_on(tmp_path: Path, workers: int) -> None:
    """If a transport stream's clock restarts in the middle, the output is in order and nothing is lost."""
    parts = [
        make_clip(tmp_path / f"part{n}.ts", Clip(times=constant_times(50), keyframes=frozenset(range(0, 50, 10))))
        for n in (0, 1)
    ]
    source = tmp_path / "source.ts"
    source.write_bytes(b"".join(part.read_bytes() for part in parts))
    report = lossless(source, tmp_path / "output.mp4", workers=workers)
    assert report.proof.output_frames == 100
    assert "clock-reset" in {warning.code for warning in report.warnings}
    assert shown(tmp_path / "output.mp4") == shown(source)


@given(st.integers(0, 60), st.integers(1, 60))
@settings(max_examples=settings().max_examples // 5, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_part_holds_the_frames_that_are_shown_in_it(start: int, length: int) -> None:
    """--start and --end keep exactly the frames that are presented between them."""
    with tempfile.TemporaryDirectory() as folder:
        clip = Clip(times=constant_times(75), keyframes=frozenset(range(0, 75, 10)), options=(("bf", "2"),))
        source = make_clip(Path(folder) / "source.mp4", clip)
        begin, end = Fraction(start, 25), Fraction(start + length, 25)
        lossless(source, Path(folder) / "output.mp4", start_s=begin, end_s=end)
        whole = shown(source)[start : start + length]
        first = whole[0].ticks
        assert shown(Path(folder) / "output.mp4") == [PictureHash(p.ticks - first, p.digest) for p in whole]


def test_a_rate_limited_track_keeps_its_bucket(tmp_path: Path) -> None:
    """With --maxrate and --bufsize, the joined track never empties the decoder's buffer, even where segments join."""
    clip = Clip(times=constant_times(150), keyframes=frozenset(range(0, 150, 10)), width=128, height=96)
    source = make_clip(tmp_path / "source.mp4", clip)
    rate = {"quality": None, "bitrate_bps": 150_000, "maxrate_bps": 150_000, "bufsize_bits": 60_000}
    report = lossless(source, tmp_path / "output.mp4", **rate)
    assert len(report.segments) > 5
    assert any(segment.attempts > 1 for segment in report.segments)
    assert underflows(tmp_path / "output.mp4", 150_000, 60_000) == 0


def underflows(path: Path, rate_bps: int, size_bits: int) -> int:
    """Simulate the decoder's buffer frame by frame over the whole file, starting at nine tenths of its size."""
    with av.open(str(path)) as container:
        sizes = [packet.size for packet in container.demux(video=0) if packet.size]
    fullness, late = Fraction(size_bits * 9, 10), 0
    for size in sizes:
        fullness -= size * 8
        late += fullness < 0
        fullness = min(Fraction(size_bits), fullness + Fraction(rate_bps, 25))
    return late
