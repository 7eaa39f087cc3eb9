"""``--keyframe-interval`` in real jobs: keyframes are read from the file's bitstream."""

import hashlib
from dataclasses import replace
from fractions import Fraction
from math import floor
from pathlib import Path
from typing import Any

import av
import pytest

from codecfleet import Report, TranscodeSpec
from codecfleet.actors.device.work import WorkContext
from codecfleet.errors import EncoderFailed
from codecfleet.jobs.plan.plan import plan_transcode
from codecfleet.jobs.verify.job import verify
from codecfleet.testing.clips import Clip, constant_times, make_clip, uneven_times
from tests.small_film import small_film
from tests.sweeps import swept

from .local_jobs import remuxed, spec_of, transcode

OUTPUTS = {"h264": "ts", "hevc": "ts", "av1": "ivf", "vp9": "ivf"}
"""Containers without keyframe flags: FFmpeg's parsers find keyframes in the bitstream."""
INTERVAL_S = Fraction(13, 10)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six and a half seconds of small pictures: a scene change at 4.75 s, and an access point every 1.5 s."""
    return small_film(tmp_path_factory.mktemp("film") / "film.mkv", gop=36, frames=156, options={"crf": "10"})


def made(source: Path, output: Path, workers: int = 3, **options: object) -> Report:
    """Transcode in segments of about two seconds."""
    asked = {"segment_s": Fraction(2), "preset": 2, "workers": workers, **options}
    return transcode(spec_of(source, output, **asked), slots=workers)


def read_back(path: Path) -> tuple[list[Fraction], list[Fraction]]:
    """Return the times of all pictures and of the keyframes among them, in seconds after the first."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        shown = sorted((packet.pts * Fraction(stream.time_base or 1), packet.is_keyframe) for packet in packets)
    first = shown[0][0]
    return [time - first for time, _ in shown], [time - first for time, is_keyframe in shown if is_keyframe]


def on_grid(times: list[Fraction], interval_s: Fraction) -> list[Fraction]:
    """Return the first time at or after each multiple of an interval."""
    multiples = range(floor(times[-1] / interval_s) + 1)
    return sorted({next(time for time in times if time >= n * interval_s) for n in multiples})


def sha256(path: Path) -> str:
    """Return a file's hash."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


BITRATE = {"bitrate_bps": 100_000}


@pytest.mark.parametrize(
    ("codec", "rate"),
    [
        *((codec, {}) for codec in OUTPUTS if codec != "h264"),
        *swept([("h264", BITRATE), ("h264", {}), ("hevc", BITRATE), ("vp9", BITRATE)], in_ci=True),
    ],
)
def test_keyframes_lie_on_the_grid_and_nowhere_else(
    film: Path, tmp_path: Path, codec: str, rate: dict[str, int]
) -> None:
    """Keyframes are on the grid across segments and scene changes; outputs are exact, with the same bytes always."""
    one, three = (tmp_path / f"{workers}.{OUTPUTS[codec]}" for workers in (1, 3))
    made(film, one, 1, codec=codec, keyframe_interval_s=INTERVAL_S, **rate)
    report = made(film, three, 3, codec=codec, keyframe_interval_s=INTERVAL_S, **rate)
    assert sha256(one) == sha256(three)
    times, keyframes = read_back(three)
    assert keyframes == on_grid(times, INTERVAL_S)
    assert len(keyframes) == 5
    assert report.proof.seams == report.proof.seams_equal > 1
    assert verify(str(film), str(three)).exact


def test_without_an_interval_the_encoder_adds_keyframes_at_scene_changes(film: Path, tmp_path: Path) -> None:
    """By default the film's scene change gets a keyframe; with an interval it gets none."""
    made(film, tmp_path / "plain.ts", codec="h264", segment_s=Fraction(100))
    assert Fraction(19, 4) in read_back(tmp_path / "plain.ts")[1]


def test_an_encoder_that_adds_a_keyframe_fails(film: Path) -> None:
    """Keyframes are checked in every segment, in case an encoder adds one by itself."""
    asked = TranscodeSpec(source=str(film), output="out.mkv", keyframe_interval_s=INTERVAL_S)
    work = plan_transcode(asked).work("job", 0, 0, 0)
    options = dict(work.encoder.options) | {"g": "24"}
    willful = replace(work.encoder, options=tuple(sorted(options.items())))
    assert work.run(WorkContext()).frames_out > 0
    with pytest.raises(EncoderFailed, match="keyframes"):
        replace(work, encoder=willful).run(WorkContext())


@pytest.mark.parametrize(
    "options",
    [
        {"start_s": Fraction(123, 100), "end_s": Fraction(57, 10)},
        {"deinterlace": "on"},
        {"maxrate_bps": 150_000, "bufsize_bits": 100_000},
        {"keyframe_interval_s": Fraction(1, 24)},
        {"keyframe_interval_s": Fraction(60)},
    ],
    ids=["a-part", "deinterlaced", "a-rate-limit", "every-frame", "longer-than-the-film"],
)
def test_the_grid_holds_with_other_options(film: Path, tmp_path: Path, options: dict[str, object]) -> None:
    """Keyframes fall on multiples of the interval, counted from the first requested frame, with any other options."""
    asked = {"keyframe_interval_s": INTERVAL_S, **options}
    output = tmp_path / "output.mkv"
    report = made(film, output, **asked)
    times, keyframes = read_back(output)
    interval_s = asked["keyframe_interval_s"]
    assert isinstance(interval_s, Fraction)
    # Matroska rounds times to milliseconds.
    assert [round(time * 24) for time in keyframes] == on_frames(len(times), interval_s)
    assert report.proof.seams == report.proof.seams_equal


def on_frames(count: int, interval_s: Fraction) -> list[int]:
    """Return the film's frames that are on the grid."""
    return [round(time * 24) for time in on_grid([Fraction(n, 24) for n in range(count)], interval_s)]


def test_keyframes_go_by_time(tmp_path: Path) -> None:
    """Keyframes go by time: also with jitter and gaps, the next picture after each multiple of the interval is one."""
    steps = [40, 33, 47, 40, 1700, 40, 40, 41, 39, 17] * 12
    clip = Clip(times=uneven_times(steps, 588), keyframes=frozenset(range(0, 120, 7)))
    source, output = make_clip(tmp_path / "uneven.mkv", clip), tmp_path / "output.mkv"
    report = made(source, output, keyframe_interval_s=Fraction(1, 2), segment_s=Fraction(1))
    times, keyframes = read_back(output)
    assert keyframes == on_grid(times, Fraction(1, 2))
    assert len(report.segments) > 3
    assert verify(str(source), str(output)).exact


def test_repeated_times_move_no_keyframe(tmp_path: Path) -> None:
    """Where no cut is possible, a segment continues and has the keyframe of the interval inside."""
    clip = Clip(times=constant_times(200), keyframes=frozenset(range(0, 200, 10)), options=(("bf", "0"),))
    whole, source, output = make_clip(tmp_path / "whole.mkv", clip), tmp_path / "twice.mkv", tmp_path / "output.mkv"
    numbers = iter(range(200))

    def repeated(packet: Any) -> bool:
        number = next(numbers)
        packet.pts = packet.dts = (number - (number in (101, 102))) * 40
        return True

    remuxed(whole, source, repeated)
    report = made(source, output, keyframe_interval_s=Fraction(1, 2), segment_s=Fraction(1, 2))
    times, keyframes = read_back(output)
    cuts = [segment.start_ticks for segment in report.segments[1:]]
    assert len(times) == 200
    assert keyframes == on_grid(times, Fraction(1, 2))
    assert Fraction(4) in keyframes
    assert len(cuts) > 8
    assert all(abs(Fraction(cut or 0) * Fraction(report.time_base) - 4) > Fraction(1, 2) for cut in cuts)
    assert verify(str(source), str(output)).exact
