"""The benchmarks run, count what a tree of processes uses, and compare what is comparable."""

import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import job_queue
import many_workers
import numpy as np
import pytest
import read_frames
import transcode
from bench.bd_rate import RatePoint, bd_psnr_db, bd_rate_percent
from bench.codecs import CASES, CodecCase
from bench.frame_likeness import Likeness, likeness_of
from bench.frame_readers import ratios as frame_ratios
from bench.likeness import other_pictures, other_sizes
from bench.limits import too_low
from bench.measure import measure
from bench.media import VideoFacts
from bench.speed import ratios
from bench.table import parts, spread
from hypothesis import given
from hypothesis import strategies as st

from codecfleet.actors.encode.profiles import PROFILES
from codecfleet.actors.encode.settings import Codec
from codecfleet.testing.clips import Clip, constant_times, make_clip

REFERENCE = (RatePoint(1e6, 34.0), RatePoint(2e6, 37.0), RatePoint(4e6, 39.5), RatePoint(8e6, 41.0))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_comparison_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each contender runs once on a small film, and the ratios are printed."""
    film = make_clip(tmp_path / "film.mp4", Clip(times=constant_times(50), keyframes=frozenset({0, 25})))
    monkeypatch.setattr(sys, "argv", ["transcode.py", str(film), "--cases", "x264", "--repeats", "1"])
    assert transcode.main() == 0
    assert "x264, codecfleet / ffmpeg" in capsys.readouterr().out


def record(contender: str, work_s: float, video_bytes: int = 100, warm_s: float | None = None) -> dict[str, Any]:
    """Return the record of a contender's runs, all of whose other figures are 1."""
    figures = {name: spread([1.0]) for name in ("wall_s", "cpu_s", "peak_bytes")}
    warm = None if warm_s is None else spread([warm_s])
    named = {"case": "x264", "contender": contender, "video_bytes": video_bytes}
    return figures | named | {"work_s": spread([work_s]), "warm_s": warm}


def test_ratios_are_of_one_run() -> None:
    """Codecfleet's medians are divided by each peer's, and by those of codecfleet on each later device."""
    records = [record("codecfleet auto", 2, warm_s=1), record("codecfleet cpu", 4, warm_s=3), record("ffmpeg", 2)]
    assert [(one["contender"], one["over"], one["work_s"], one["warm_s"]) for one in ratios(records)] == [
        ("codecfleet auto", "codecfleet cpu", 0.5, pytest.approx(1 / 3)),
        ("codecfleet auto", "ffmpeg", 1.0, 0.5),
        ("codecfleet cpu", "ffmpeg", 2.0, 1.5),
    ]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_comparison_of_frames_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All cases run once, only with codecfleet, and give the pictures of a plain decode."""
    small = ["--size", "160x90", "--seconds", "2", "--indices", "5", "--clips", "2", "--files", "1"]
    monkeypatch.setattr(sys, "argv", ["read_frames.py", "--work", str(tmp_path), "--repeats", "1", *small, "--readers"])
    assert read_frames.main() == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|") and ", codecfleet " in line]
    assert len(rows) == 11


def test_ratios_of_frames_are_of_one_case_and_film() -> None:
    """The ratio is above 1 if codecfleet is faster; wrong pictures are told from right ones in other colours."""
    fps = {("codecfleet", "a"): 6.0, ("decord", "a"): 3.0, ("codecfleet", "b"): 8.0}
    records = [
        {"case": "every", "film": film, "reader": reader, "fps": spread([rate])} for (reader, film), rate in fps.items()
    ]
    assert frame_ratios(records) == [{"case": "every", "film": "a", "over": "decord", "fps": 2.0}]
    truth = np.arange(0, 100, 10, dtype=np.float32)[:, None, None] * np.ones((1, 16, 16), np.float32)
    assert likeness_of(truth[[2, 5]] + [[[0]], [[4]]], truth, [3, 5, 7]) == Likeness(1, 1, 1)


@given(st.floats(0.5, 2), st.floats(-0.5, 0.5))
def test_bd_rates(factor: float, gain_db: float) -> None:
    """At ``factor`` times the rate the BD-rate states the factor; with ``gain_db`` more, the BD-PSNR is the gain."""
    dearer = [RatePoint(point.rate_bps * factor, point.psnr_db) for point in REFERENCE]
    better = [RatePoint(point.rate_bps, point.psnr_db + gain_db) for point in REFERENCE]
    assert bd_rate_percent(REFERENCE, dearer) == pytest.approx((factor - 1) * 100, abs=1e-6)
    assert bd_psnr_db(REFERENCE, better) == pytest.approx(gain_db, abs=1e-9)


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_peers_get_the_same_encoder_and_preset(case: CodecCase) -> None:
    """FFmpeg gets the encoder, options and quality behind codecfleet's preset."""
    profile = PROFILES[Codec(case.codec)]
    assert (case.encoder, case.quality) == (profile.implementation, profile.default_quality)
    assert set(profile.presets[case.preset - 1]) <= set(case.options)


def facts(times_s: Sequence[Fraction]) -> VideoFacts:
    """Return a film whose pictures are shown at these times."""
    return VideoFacts(width=64, height=64, codec="h264", times_s=tuple(times_s), video_bytes=1000, file_bytes=1100)


def test_other_work_is_named() -> None:
    """A peer with lost pictures, repeated times, or a video of about half the size is named, as it did other work."""
    film = [Fraction(n, 25) for n in range(10)]
    assert other_pictures(facts([time + 1 for time in film]), facts(film)) == ""
    assert other_pictures(facts(film[1:]), facts(film)) == "9 frames of 10"
    assert other_pictures(facts([*film[1:], film[1]]), facts(film)) == "1 of 10 frames share their time with another"
    (named,) = other_sizes([record("codecfleet", 1, 167), record("ffmpeg", 1, 160), record("fan-out", 1, 91)])
    assert named.startswith("x264 fan-out")


COUNTED = "import time; b = time.process_time(); sum(range(20_000_000)); print(time.process_time() - b, flush=True)"


def test_daemons_are_counted() -> None:
    """A daemon whose parents are gone is counted, although it outlives the command."""
    detached = f"""if True:
        import os
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                {COUNTED}
            os._exit(0)
        """
    measured = measure([sys.executable, "-I", "-S", "-c", detached])
    assert measured.cpu_s >= float(measured.output)


def test_memory_is_that_of_all_processes_at_once() -> None:
    """Each page is counted once."""
    forking = """if True:
        import os, time
        shared = bytearray(b"x") * (64 << 20)
        told, tell = os.pipe()
        child = os.fork()
        own = bytearray(b"y") * (32 << 20)
        if child:
            os.read(told, 1)
            time.sleep(0.5)
            os.kill(child, 9)
            os.wait()
        else:
            os.write(tell, b"1")
            time.sleep(60)
        """
    measured = measure([sys.executable, "-I", "-S", "-c", forking])
    if measured.memory_kind == "RSS":
        pytest.skip("this kernel does not tell PSS")
    assert 128 <= measured.peak_bytes / 2**20 < 128 + 40


def test_parts_of_values() -> None:
    """The middle, the value that 99 % of all do not exceed, and the largest."""
    assert parts(range(1000, 0, -1)) == (500.5, 990, 1000)
    assert parts([3.0]) == (3.0, 3.0, 3.0)


def test_limits_that_are_too_low_are_named() -> None:
    """A limit that is high enough is not named."""
    assert too_low(1, 1) == []
    assert too_low(1 << 30, 1)[0] == f"sysctl -w kernel.pid_max={1 << 31}"


def test_the_measurement_of_a_queue_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each call of the store is timed, in a new file."""
    monkeypatch.setattr(job_queue, "CALLS", 5)
    monkeypatch.setattr(sys, "argv", ["job_queue.py", "--jobs", "30", "--work", str(tmp_path)])
    saved: dict[str, Any] = {}
    monkeypatch.setattr(job_queue, "save_results", lambda name, document: saved.update({name: document}))
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--save", "queue"])
    assert job_queue.main() == 0
    rows = saved["queue"]["calls"]["SQLite"]
    assert rows["submit a job"]["calls"] == 30
    assert rows["end a job"]["calls"] == 5


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.timeout(300)
def test_many_workers_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes with a worker each go through every stage: nothing is lost when the supervisor dies."""
    sizes = ["--nodes", "2", "--workers-per-node", "1", "--stage-s", "3", "--each-s", "5"]
    saved: dict[str, Any] = {}
    monkeypatch.setattr(many_workers, "save_results", lambda _, document: saved.update(document))
    monkeypatch.setattr(sys, "argv", ["many_workers.py", *sizes, "--save", "workers"])
    assert many_workers.main() == 0
    assert saved["not_run"] == []
    stages = saved["stages"]
    assert stages["start"]["workers"] == 2
    assert stages["another supervisor"]["workers that were ended or replaced"] == 0
    assert (stages["another node"]["workers of the node"], stages["another node"]["workers"]) == (1, 2)
