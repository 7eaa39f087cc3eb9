"""The benchmarks' own arithmetic, and that they count what a tree of processes really uses."""

import json
import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from bench import ffmpeg as ffmpeg_module
from bench.bd_rate import RatePoint, bd_psnr_db, bd_rate_percent, psnr_at_rate_db
from bench.codecs import CASES
from bench.contenders import Bench, Cut, fan_out_part, fleet_command
from bench.likeness import other_pictures, other_sizes
from bench.media import VideoFacts, loop_clip, read_video
from bench.planning_index import film_index
from bench.quality import comparison_graph, parse_quality
from bench.rates import RateCurve, same_grid_options, summarise
from bench.speed import ratios, speed_lines
from bench.table import save_results, spread, table_lines
from hypothesis import assume, given
from hypothesis import strategies as st

from codecfleet.actors.encode.profiles import PROFILES
from codecfleet.actors.encode.settings import Codec
from codecfleet.jobs.plan.cuts import choose_cuts

REFERENCE = (RatePoint(1e6, 34.0), RatePoint(2e6, 37.0), RatePoint(4e6, 39.5), RatePoint(8e6, 41.0))


def scaled(points: Sequence[RatePoint], rate: float, psnr_db: float = 0.0) -> list[RatePoint]:
    """Return a curve at a multiple of the rate, with a better quality."""
    return [RatePoint(point.rate_bps * rate, point.psnr_db + psnr_db) for point in points]


@st.composite
def curves(draw: st.DrawFn) -> list[RatePoint]:
    """Curves that rise, of four points like those of an encoder."""
    rate, psnr, points = draw(st.floats(1e5, 1e6)), draw(st.floats(28, 32)), []
    for _ in range(4):
        points.append(RatePoint(rate, psnr))
        rate *= draw(st.floats(1.3, 3))
        psnr += draw(st.floats(0.8, 4))
    return points


class TestBdRate:
    """Two curves in one number."""

    def test_equal_curves(self) -> None:
        """A curve needs no more rate than itself, and is no better."""
        assert bd_rate_percent(REFERENCE, REFERENCE) == pytest.approx(0)
        assert bd_psnr_db(REFERENCE, REFERENCE) == pytest.approx(0)

    @given(curves(), st.floats(0.5, 2))
    def test_same_psnr_at_another_rate(self, points: list[RatePoint], factor: float) -> None:
        """A curve that takes a fixed factor of the rate everywhere has that as its BD-rate."""
        assert bd_rate_percent(points, scaled(points, factor)) == pytest.approx((factor - 1) * 100, abs=1e-6)

    @given(curves(), st.floats(-0.5, 0.5))
    def test_same_rate_at_another_psnr(self, points: list[RatePoint], gain_db: float) -> None:
        """A curve that is better by a fixed amount everywhere has that as its BD-PSNR."""
        assert bd_psnr_db(points, scaled(points, 1, gain_db)) == pytest.approx(gain_db, abs=1e-9)

    @given(curves(), curves())
    def test_there_and_back(self, one: list[RatePoint], other: list[RatePoint]) -> None:
        """What one needs more of, the other needs less of, by the same factor."""
        assume(max(each[0].psnr_db for each in (one, other)) < min(each[-1].psnr_db for each in (one, other)))
        there, back = bd_rate_percent(one, other), bd_rate_percent(other, one)
        assert (1 + there / 100) * (1 + back / 100) == pytest.approx(1)

    @given(curves(), st.floats(0, 1))
    def test_the_curve_passes_between_its_points(self, points: list[RatePoint], place: float) -> None:
        """Between two points the curve never leaves their range, so that it cannot swing."""
        low, high = points[1], points[2]
        rate = low.rate_bps ** (1 - place) * high.rate_bps**place
        found = psnr_at_rate_db(points, rate)
        assert found is not None
        assert low.psnr_db - 1e-9 <= found <= high.psnr_db + 1e-9

    def test_a_straight_curve(self) -> None:
        """Points on a line are interpolated by the line, of which the differences are known."""
        line = [RatePoint(10.0**n, 30.0 + 2 * n) for n in (4, 4.5, 5.5, 6)]
        steeper = [RatePoint(10.0**n, 20.0 + 4 * n) for n in (4, 4.7, 5.1, 6)]
        assert psnr_at_rate_db(line, 1e5) == pytest.approx(40)
        # At 10^n: 20 + 4 n against 30 + 2 n, so 2 n - 10 on average over 4..6.
        assert bd_psnr_db(line, steeper) == pytest.approx(0)
        # At p dB: (p - 20) / 4 against (p - 30) / 2 decades, over the common 38..42.
        assert bd_rate_percent(line, steeper) == pytest.approx(0, abs=1e-6)

    def test_ends_belong_to_the_curve(self) -> None:
        """A curve has its own points' PSNR at their rates, and none beyond its ends."""
        assert psnr_at_rate_db(REFERENCE, 1e6) == pytest.approx(34)
        assert psnr_at_rate_db(REFERENCE, 8e6) == pytest.approx(41)
        assert psnr_at_rate_db(REFERENCE, 9e6) is None

    @pytest.mark.parametrize(
        ("points", "message"),
        [
            (REFERENCE[:1], "two points"),
            ((RatePoint(1e6, 40), RatePoint(2e6, 39)), "must rise"),
            ((RatePoint(1e6, 50), RatePoint(2e6, 60)), "no common range"),
        ],
    )
    def test_curves_that_say_nothing(self, points: tuple[RatePoint, ...], message: str) -> None:
        """Points that make no curve, or none to compare with, are an error and no number."""
        with pytest.raises(ValueError, match=message):
            bd_rate_percent(REFERENCE, points)


class TestCases:
    """Equal terms for everybody."""

    @pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
    def test_same_encoder_and_preset(self, case: object) -> None:
        """FFmpeg is given the encoder and the preset that codecfleet's own preset stands for, and the same quality."""
        assert isinstance(case, type(CASES["x264"]))
        profile = PROFILES[Codec(case.codec)]
        assert case.encoder == profile.implementation
        assert set(profile.presets[case.preset - 1]) <= set(case.options)
        assert case.qualities[2] == case.quality == profile.default_quality
        assert sorted(case.qualities) == list(case.qualities)

    def test_threads_of_a_fan_out(self) -> None:
        """A process's threads are limited by its encoder's own options, or not at all."""
        assert CASES["x265"].thread_options(3) == ["-x265-params", "log-level=error:pools=3"]
        assert CASES["x264"].thread_options(0) == []


def facts(times_s: Sequence[Fraction]) -> VideoFacts:
    """Return a film whose pictures are shown at these times."""
    return VideoFacts(width=64, height=64, codec="h264", times_s=tuple(times_s), video_bytes=1000, file_bytes=1100)


def bench(times_s: Sequence[Fraction]) -> Bench:
    """Return a comparison of such a film."""
    return Bench(
        ffmpeg="ffmpeg",
        source=Path("film.mp4"),
        facts=facts(times_s),
        folder=Path("work"),
        container="mp4",
        workers=None,
        segment_s=None,
    )


class TestCommands:
    """What the contenders are told to do."""

    @given(st.integers(1, 99), st.fractions(-5, 5, max_denominator=90_000))
    def test_seeks_fall_between_pictures(self, frame: int, first_s: Fraction) -> None:
        """A part's seek lies in the gap before its first picture, wherever the film begins."""
        times = [first_s + Fraction(n * 1001, 30_000) for n in range(100)]
        seek = facts(times).before_frame_s(float(times[frame] - first_s))
        assert times[frame - 1] < seek < times[frame]

    def test_parts(self) -> None:
        """The first part starts at the film's start without a seek; every part takes just its own pictures."""
        film = bench([Fraction(n, 25) for n in range(100)])
        first = fan_out_part(film, CASES["x264"], Cut(0.0, 40), Path("a.mp4"), 2)
        second = fan_out_part(film, CASES["x264"], Cut(1.6, 60), Path("b.mp4"), 0)
        assert "-ss" not in first
        assert first[-3:] == ["-frames:v", "40", "a.mp4"]
        assert second[second.index("-ss") + 1] == "1.580000"

    def test_same_grid(self) -> None:
        """The peer on the same grid has keyframes at codecfleet's cuts and its longest distance between them."""
        film = bench([Fraction(n, 25) for n in range(100)])
        cuts = [Cut(0.0, 40), Cut(1.6, 60)]
        options = same_grid_options(film, CASES["x264"], cuts, "libx264 core 165 threads=2 crf=23 g=250 preset=medium")
        assert options == ["-forced-idr", "1", "-force_key_frames", "1.580000", "-g", "250"]

    def test_fleet(self) -> None:
        """The fleet is run by this Python, installed or not, with the case's codec, quality and preset."""
        command = fleet_command(bench([Fraction(0), Fraction(1)]), CASES["vp9"], 40, Path("o.mp4"))
        assert command[:4] == [sys.executable, "-P", "-m", "codecfleet"]
        assert command[7:] == ["--codec", "vp9", "--quality", "40", "--preset", "4"]

    def test_no_peer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where imageio-ffmpeg is missing, the program ends with one line that says how to get it."""
        monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
        with pytest.raises(SystemExit, match=r"pip install 'codecfleet\[quality\]'") as ended:
            ffmpeg_module.find_ffmpeg()
        assert "\n" not in str(ended.value)


class TestQuality:
    """How likeness is measured."""

    def test_summary_lines(self) -> None:
        """The figures are those of FFmpeg's own summary."""
        said = """[Parsed_ssim_4 @ 0x1] SSIM Y:0.99 (20.0) U:0.98 (17) V:0.98 (17) All:0.987654 (19.0)
            [Parsed_psnr_3 @ 0x2] PSNR y:45.1 u:48.0 v:49.0 average:46.234 min:40.1 max:60.0"""
        found = parse_quality(said, 95.5, 5)
        assert (found.psnr_db, found.ssim, found.vmaf) == (46.234, 0.987654, 95.5)

    def test_pictures_that_are_the_same(self) -> None:
        """The likeness of equal pictures is without limit."""
        assert math.isinf(parse_quality("PSNR y:inf average:inf min:inf\nSSIM All:1.0 (inf)", None, 0).psnr_db)

    def test_no_summary(self) -> None:
        """A comparison that printed nothing gives no number."""
        with pytest.raises(ValueError, match="no PSNR"):
            parse_quality("SSIM All:1.0", None, 0)

    def test_pictures_are_numbered(self) -> None:
        """Every measure compares both inputs by number of picture."""
        assert comparison_graph(["psnr", "ssim"]) == (
            "[0:v:0]settb=1/1000,setpts=N,split=2[a0][a1];[1:v:0]settb=1/1000,setpts=N,split=2[b0][b1];"
            "[a0][b0]psnr[o0];[a1][b1]ssim[o1]"
        )


def record(contender: str, wall_s: float, frames: int = 10) -> dict[str, Any]:
    """Return a contender's record, all of whose figures are one number."""
    figures = {name: spread([wall_s]) for name in ("wall_s", "work_s", "start_up_s", "fps", "cpu_s", "peak_bytes")}
    rest = {
        "case": "x264",
        "encoder": "libx264",
        "contender": contender,
        "in_flight": 1,
        "frames": frames,
        "frames_of_source": 10,
        "wrong": "" if frames == 10 else f"{frames} frames of 10",
    }
    return figures | rest | {"quality": None, "file_bytes": 1, "video_bytes": 1, "runs": [{}]}


class TestTables:
    """What is printed and saved."""

    def test_spread(self) -> None:
        """Runs are reduced to their median and the outermost ones."""
        assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "least": 1.0, "most": 3.0}

    def test_columns(self) -> None:
        """A table's columns line up."""
        lines = table_lines(("way", "s"), [("a", "1.00"), ("bcd", "10.00")])
        assert lines == ["| way |     s |", "|-----|------:|", "| a   |  1.00 |", "| bcd | 10.00 |"]

    def test_ratios(self) -> None:
        """Ratios are codecfleet's figures over each peer's."""
        found = ratios([record("codecfleet", 3.0), record("ffmpeg", 2.0), record("fan-out", 4.0)])
        assert [(one["over"], one["work_s"]) for one in found] == [("ffmpeg", 1.5), ("fan-out", 0.75)]

    def test_missing_frames_are_told(self) -> None:
        """An output with another number of pictures is named under the table."""
        assert speed_lines([record("fan-out", 1.0, frames=9)])[-1].startswith("x264 fan-out: 9 frames of 10")

    def test_pictures_that_are_not_the_sources(self) -> None:
        """Lost pictures are found, and those that a join put at the time of another one; a shift of all is none."""
        film = [Fraction(n, 25) for n in range(10)]
        assert other_pictures(facts([time + 1 for time in film]), facts(film)) == ""
        assert other_pictures(facts(film[1:]), facts(film)) == "9 frames of 10"
        assert other_pictures(facts([*film[1:], film[1]]), facts(film)) == "1 of 10 frames have the time of another"

    def test_other_work_is_told_by_its_size(self) -> None:
        """A peer whose video is much smaller than ours is named; one that differs by a few hundredths is not."""
        ours, near, far = record("codecfleet", 1.0), record("ffmpeg", 1.0), record("fan-out", 1.0)
        records = [ours | {"video_bytes": 167}, near | {"video_bytes": 160}, far | {"video_bytes": 91}]
        assert [line for line in speed_lines(records) if "bytes, " in line] == [
            "x264 fan-out: its video has 0.54 times codecfleet's bytes, so it did other work"
        ]
        assert other_sizes(records[1:]) == []

    def test_a_peer_without_the_encoder_is_left_out(self, tmp_path: Path) -> None:
        """An FFmpeg that lacks an encoder is known by its own list."""
        listing = "printf ' V..... = Video\\n ------\\n V....D libx264   H.264 (codec h264)\\n'"
        peer = tmp_path / "ffmpeg"
        peer.write_text(f"#!/bin/sh\n{listing}\n", encoding="utf-8")
        peer.chmod(0o755)
        assert [ffmpeg_module.has_encoder(str(peer), name) for name in ("libx264", "libsvtav1")] == [True, False]
        assert ffmpeg_module.look_for_ffmpeg(str(peer)) == str(peer)
        with pytest.raises(ffmpeg_module.NoFFmpeg, match="no program"):
            ffmpeg_module.look_for_ffmpeg(str(tmp_path / "none"))

    def test_rate_summary(self) -> None:
        """The fleet's place among the curves is given against both of FFmpeg's grids."""
        case = CASES["x264"]
        names = ("codecfleet", "ffmpeg, same keyframes", "ffmpeg, its own keyframes")
        factors = (1.02, 1.02, 1.0)
        made = {
            name: RateCurve(way=name, encoder="", qualities=case.qualities, points=tuple(scaled(REFERENCE, factor)))
            for name, factor in zip(names, factors, strict=True)
        }
        against = summarise(case, made)["codecfleet_against"]
        assert against[names[1]]["bd_rate_percent"] == pytest.approx(0)
        assert against[names[1]]["at_default_db"] == pytest.approx(0)
        assert against[names[2]]["bd_rate_percent"] == pytest.approx(2)
        assert against[names[2]]["psnr_difference_db"] < 0

    def test_saved(self, tmp_path: Path) -> None:
        """Results are plain JSON under their name, and nothing else is left."""
        path = save_results("mine", {"a": 1}, tmp_path)
        assert json.loads(path.read_text(encoding="utf-8")) == {"a": 1}
        assert list(tmp_path.iterdir()) == [path]


class TestSources:
    """The films that are compared."""

    def test_looped(self, film: Path, tmp_path: Path) -> None:
        """A looped clip has its pictures once per round, evenly spaced across the seams."""
        once, looped = read_video(film), loop_clip(film, Fraction(30), tmp_path / "looped.mp4")
        gaps = {b - a for a, b in zip(looped.times_s, looped.times_s[1:], strict=False)}
        assert looped.frames == 3 * once.frames
        assert gaps == {Fraction(1, 24)}

    def test_film_made_by_hand(self) -> None:
        """The index made by hand has a picture for every packet, in their own order, and is cut."""
        index = film_index(2000, Fraction(72))
        assert len(set(index.times)) == index.packets == 2000
        assert abs(index.duration_s - 72) < Fraction(1, 10)
        assert len(index.unreliable) == 0
        assert len(choose_cuts(index)) >= 3
