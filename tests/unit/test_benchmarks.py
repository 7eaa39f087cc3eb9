"""The benchmarks' own arithmetic, and that they count what a tree of processes really uses."""

import json
import math
import pickle
import sys
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "benchmarks"))  # as when one of its scripts is run

from bench import ffmpeg as ffmpeg_module  # noqa: E402 - found through the line above
from bench.bd_rate import RatePoint, bd_psnr_db, bd_rate_percent, psnr_at_rate_db  # noqa: E402
from bench.codecs import CASES  # noqa: E402
from bench.contenders import Bench, Contender, Cut, entrants, fan_out_part, fleet_command  # noqa: E402
from bench.decode_fleet import SessionCounts  # noqa: E402
from bench.decode_table import compare_rows, session_excess, target_lines, targets  # noqa: E402
from bench.decode_work import DecodeOnly  # noqa: E402
from bench.failures import CommandFailed  # noqa: E402
from bench.measure import Role, measure, role_of  # noqa: E402
from bench.media import VideoFacts, loop_clip, read_video, scale_clip  # noqa: E402
from bench.planning_index import film_index  # noqa: E402
from bench.processes import parse_stat  # noqa: E402
from bench.program import FILM  # noqa: E402
from bench.quality import comparison_graph, parse_quality  # noqa: E402
from bench.rates import RateCurve, same_grid_options, summarise  # noqa: E402
from bench.same_bytes import Verdict, earlier_rows, gpu_objection, smallest_first, verdict_of  # noqa: E402
from bench.speed import differences, ratio_lines, ratios, speed_lines  # noqa: E402
from bench.stack_sampler import StackSampler, add_profiles  # noqa: E402
from bench.table import save_results, spread, table_lines  # noqa: E402
from live_health import judge_slots  # noqa: E402

from codecfleet.actors.encoder_profiles import PROFILES  # noqa: E402
from codecfleet.actors.encoder_settings import Codec  # noqa: E402
from codecfleet.actors.work import WorkContext  # noqa: E402
from codecfleet.cluster.fleet_file import load_fleet  # noqa: E402
from codecfleet.cluster.placement.assumed import plain_demand  # noqa: E402
from codecfleet.cluster.placement.build import inventory_of_fleet  # noqa: E402
from codecfleet.cluster.probes.device_report import DeviceKind  # noqa: E402
from codecfleet.cluster.probes.engines import Codec as MediaCodec  # noqa: E402
from codecfleet.cluster.probes.engines import CodecCase, Direction  # noqa: E402
from codecfleet.errors import EngineUnfit  # noqa: E402
from codecfleet.jobs.cuts import choose_cuts  # noqa: E402

REFERENCE = (RatePoint(1e6, 34.0), RatePoint(2e6, 37.0), RatePoint(4e6, 39.5), RatePoint(8e6, 41.0))


def scaled(points: Sequence[RatePoint], rate: float, psnr_db: float = 0.0) -> list[RatePoint]:
    """Return a curve at so many times the rate, and so much better."""
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


BURN = "sum(n * n for n in range(4_000_000))"
COUNTED = f"import time; b = time.process_time(); {BURN}; print(time.process_time() - b, flush=True)"


def python(program: str) -> list[str]:
    """Return the command that runs a program in a bare Python."""
    return [sys.executable, "-I", "-S", "-c", program]


class TestMeasure:
    """What a command and all it starts has cost."""

    def test_own_time(self) -> None:
        """A command's own CPU time is counted."""
        measured = measure(python(COUNTED))
        assert measured.cpu_s >= float(measured.output)
        assert measured.wall_s > 0
        assert measured.killed == 0

    def test_daemons(self) -> None:
        """What a daemon uses whose parents are gone is counted, exactly, although it outlives the command."""
        detached = f"""if True:
            import os
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    {COUNTED}
                os._exit(0)
            """
        measured = measure(python(detached))
        assert measured.cpu_s >= float(measured.output)
        assert measured.sampled_cpu_s == 0

    def test_parent_that_does_not_want_to_know(self) -> None:
        """What a child uses whose parent ignores its end, as Ray's do, is counted to the last sample."""
        ignoring = f"""if True:
            import os, signal, time
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            if os.fork() == 0:
                {COUNTED}
                time.sleep(0.5)
                os._exit(0)
            try:
                os.wait()
            except ChildProcessError:
                pass
            """
        measured = measure(python(ignoring))
        assert measured.sampled_cpu_s == pytest.approx(float(measured.output), abs=0.1)
        assert measured.cpu_s >= measured.sampled_cpu_s

    def test_memory_of_all_together(self) -> None:
        """Memory is that of all processes at once, each page counted once."""
        forking = """if True:
            import os, time
            shared = bytearray(b"x") * (64 << 20)
            told, tell = os.pipe()
            child = os.fork()
            own = bytearray(b"y") * (32 << 20)
            if child:
                os.read(told, 1)
                time.sleep(1)
                os.kill(child, 9)
                os.wait()
            else:
                os.write(tell, b"1")
                time.sleep(60)
            """
        measured = measure(python(forking))
        if measured.memory_kind == "RSS":
            pytest.skip("this kernel does not tell PSS")
        assert 128 <= measured.peak_bytes / 2**20 < 128 + 40

    def test_failure(self) -> None:
        """A command that fails is an error that says what it said."""
        with pytest.raises(CommandFailed, match=r"status 3: it broke"):
            measure(python("import sys; print('it broke', file=sys.stderr); sys.exit(3)"))

    @pytest.mark.parametrize(
        ("command", "role"),
        [
            ("ray::RayWorker", Role.WORKERS),
            ("ray::IDLE", Role.WORKERS),
            ("ray::DashboardAgent", Role.RAY),
            ("/venv/lib/python3.11/site-packages/ray/core/src/ray/raylet/raylet --x", Role.RAY),
            ("python /venv/lib/site-packages/ray/_private/workers/default_worker.py", Role.WORKERS),
            ("/bin/ffmpeg -i a b", Role.OTHER),
        ],
    )
    def test_roles(self, command: str, role: Role) -> None:
        """Ray's workers are told from the rest of Ray by what they call themselves."""
        assert role_of(7, command, main_pid=6) is role
        assert role_of(7, command, main_pid=7) is Role.MAIN

    def test_names_with_brackets(self) -> None:
        """A process may call itself anything without confusing the fields after its name."""
        numbers = " ".join(str(n) for n in range(4, 60))
        found = parse_stat(f"41 (a) b (c)) S 3 {numbers[2:]}")
        assert (found.pid, found.parent) == (41, 3)


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
        """A process is limited to so many threads in its encoder's own words, or left alone."""
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
        """The fleet is run as the program beside this Python, with the case's codec, quality and preset."""
        command = fleet_command(bench([Fraction(0), Fraction(1)]), CASES["vp9"], 40, Path("o.mp4"))
        assert Path(command[0]).parent == Path(sys.executable).parent
        assert command[4:] == ["--codec", "vp9", "--quality", "40", "--preset", "4"]

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
        assert len(index.troubled) == 0
        assert len(choose_cuts(index)) >= 3


def row(what: str, gpus: int, fps: float) -> dict[str, Any]:
    """Return a row of the decoding benchmark."""
    return {"what": what, "gpus": gpus, "sessions": 7, "fps": spread([fps]), "nvdec_percent": [90] * gpus}


class TestDecoding:
    """What the decoding benchmark makes of its rows."""

    def test_shares_and_scaling(self) -> None:
        """Shares are of the best raw figure on as many GPUs, scaling over the same way's best on the fewest."""
        rows = [
            row("raw, device", 1, 900),
            row("raw, device", 1, 1000),
            row("worker, host, one stream", 1, 950),
            row("raw, device", 4, 3600),
            row("worker, host, one stream", 4, 3420),
        ]
        compare_rows(rows)
        assert [one["of_best_raw"] for one in rows] == pytest.approx([0.9, 1, 0.95, 1, 0.95])
        assert rows[2]["scaling"] is None
        assert [one["scaling"] for one in rows[3:]] == pytest.approx([0.9, 0.9])

    def test_targets(self) -> None:
        """Each target that was measured is met or missed by its own rule, and others are left out."""
        rows = [
            row("raw, device", 1, 1000),
            row("worker, device, one stream", 1, 980),
            row("worker, host, one stream", 1, 900),
            row("worker, host, 2 s segments", 1, 850),
        ]
        found = targets(rows, [0.1, 0.6], {"GPU-1": SessionCounts(made=14, at_once=14)})
        assert [(one["value"], one["is_met"]) for one in found] == [
            (pytest.approx(0.98), True),
            (pytest.approx(0.9), False),
            (pytest.approx(0.85 / 0.9), True),
            (0.6, False),
            (1.0, True),
        ]
        assert "MISSED" in target_lines(found)[3]

    def test_scaling_targets(self) -> None:
        """With several numbers of GPUs each way has a target for its scaling."""
        rows = [row("raw, device", 1, 1000), row("raw, device", 4, 3960)]
        assert [(one["what"], one["value"]) for one in targets(rows, [], {})] == [
            ("raw, device: 4 GPUs over 1", pytest.approx(0.99))
        ]

    def test_too_many_sessions(self) -> None:
        """A worker that made more sessions than it had threads at work is named."""
        counts = {"GPU-1": SessionCounts(made=7, at_once=7), "GPU-2": SessionCounts(made=8, at_once=7)}
        assert session_excess(counts) == ["GPU-2: 8 sessions for 7 threads"]

    def test_work_without_a_gpu(self) -> None:
        """Decoding on a worker that has no GPU is refused, not done in software."""
        work = DecodeOnly(job="bench", label="one", ranges=())
        with pytest.raises(EngineUnfit, match="no GPU"):
            pickle.loads(pickle.dumps(work)).run(WorkContext())  # noqa: S301 - made here

    def test_profiles(self) -> None:
        """What a thread does is found by its innermost line that belongs to a stage."""
        with StackSampler(interval_s=0.0005) as sampler:
            while not sampler.samples:
                pass
        profile = sampler.profile()
        assert set(profile.stages_s) == {"other"}
        assert profile.stages_s["other"] == pytest.approx(sampler.wall_s)
        total = add_profiles([profile, profile])
        assert total.stages_s["other"] == pytest.approx(2 * sampler.wall_s)


def outcome(sha256: str = "", error: str = "") -> dict[str, Any]:
    """Return what became of a file on one device."""
    return {"error": error, "message": "no"} if error else {"sha256": sha256, "decoded_by": {"nvdec": 3}}


class TestSameBytes:
    """Comparing outputs with and without a GPU."""

    @pytest.mark.parametrize(
        ("outcomes", "verdict"),
        [
            ({"auto": outcome("a"), "cpu": outcome("a")}, Verdict.SAME),
            ({"auto": outcome("b"), "cpu": outcome("a")}, Verdict.DIFFERENT),
            ({"auto": outcome("a"), "gpu": outcome("b"), "cpu": outcome("a")}, Verdict.DIFFERENT),
            ({"auto": outcome(error="NoVideoTrack"), "cpu": outcome(error="NoVideoTrack")}, Verdict.REFUSED),
            ({"auto": outcome(error="DeviceLost"), "cpu": outcome("a")}, Verdict.DIFFERENT),
            ({"auto": outcome("a"), "cpu": outcome(error="NoVideoTrack")}, Verdict.DIFFERENT),
            ({"auto": outcome("a"), "gpu": outcome(error="Unsupported"), "cpu": outcome("a")}, Verdict.NO_GPU),
            ({"auto": outcome("b"), "gpu": outcome(error="Unsupported"), "cpu": outcome("a")}, Verdict.DIFFERENT),
            ({"gpu": outcome(error="DeviceLost"), "cpu": outcome("a")}, Verdict.DIFFERENT),
        ],
    )
    def test_verdicts(self, outcomes: dict[str, dict[str, Any]], verdict: Verdict) -> None:
        """Only equal bytes are the same, and only ``--device gpu`` may be refused alone."""
        assert verdict_of(outcomes) is verdict

    def test_encoders_of_their_own(self) -> None:
        """What a GPU's encoder wrote is not compared with software's bytes, and is not called the same."""
        own, plain = outcome("b") | {"encoder_kind": "nvenc"}, outcome("a") | {"encoder_kind": "libx264"}
        assert verdict_of({"auto": own, "cpu": plain}) is Verdict.OTHER_ENCODER

    def test_reasons_of_gpus(self) -> None:
        """Why no GPU was asked is what its engines cannot do, and nothing where one would take the file."""
        node = inventory_of_fleet(load_fleet("h200-l40s")).nodes[0]
        gpus = tuple(replace(device, node="here") for device in node.devices if device.kind is not DeviceKind.CPU)
        assert gpu_objection(plain_demand("one", 1), gpus) == ""
        av1 = replace(plain_demand("one", 1), decode=CodecCase(MediaCodec.AV1, Direction.DECODE))
        assert "NVDEC" in gpu_objection(av1, gpus)
        assert gpu_objection(av1, ()) == "this machine has no GPU"

    def test_order_and_resumption(self, tmp_path: Path) -> None:
        """The smallest file goes first, and what an earlier run with the same settings did is not done again."""
        for name, size in (("a", 30), ("b", 10), ("c", 20)):
            (tmp_path / name).write_bytes(b"x" * size)
        files = [tmp_path / name for name in "abc"]
        settings = {"preset": 1}
        rows = [{"file": "c", "bytes": 20}, {"file": "b", "bytes": 11}]
        save_results("run", {"settings": settings, "rows": rows}, tmp_path)
        done = earlier_rows(tmp_path / "run.json", settings)
        assert [path.name for path in smallest_first(files, done=done)] == ["b", "a"]
        assert earlier_rows(tmp_path / "run.json", {"preset": 2}) == []
        assert earlier_rows(tmp_path / "none.json", settings) == []


class TestDevices:
    """codecfleet on several devices in one run."""

    def test_entrants(self) -> None:
        """Codecfleet runs once for each device, everybody else once, in turn."""
        names = [one.name for one in entrants(tuple(Contender), ("auto", "cpu"))]
        assert names == ["codecfleet auto", "codecfleet cpu", "ffmpeg", "fan-out"]
        assert [one.name for one in entrants((Contender.FLEET,), ())] == ["codecfleet"]

    def test_ratios_between_devices(self) -> None:
        """Each device is set against those named later and against every peer; warm fleets against warm ones."""
        auto = record("codecfleet auto", 2.0) | {"warm_s": spread([1.0])}
        cpu = record("codecfleet cpu", 4.0) | {"warm_s": spread([3.0])}
        found = ratios([auto, cpu, record("ffmpeg", 2.0)])
        assert [(one["contender"], one["over"], one["work_s"], one["warm_s"]) for one in found] == [
            ("codecfleet auto", "codecfleet cpu", 0.5, pytest.approx(1 / 3)),
            ("codecfleet auto", "ffmpeg", 1.0, 0.5),
            ("codecfleet cpu", "ffmpeg", 2.0, 1.5),
        ]
        assert len(ratio_lines(found)) == 5

    def test_differences(self) -> None:
        """Outputs of one case that are not the same are named with their hashes."""
        one, other = record("codecfleet auto", 1.0), record("codecfleet cpu", 1.0)
        assert differences([one | {"sha256": ["a"]}, other | {"sha256": ["a"]}, record("ffmpeg", 1.0)]) == []
        found = differences([one | {"sha256": ["a"]}, other | {"sha256": ["b"]}])
        assert found == ["x264: codecfleet's outputs differ: codecfleet auto: a; codecfleet cpu: b"]

    def test_scaled_film(self, tmp_path: Path) -> None:
        """A scaled film has the pictures of its source at their times, and is made once."""
        clip = tmp_path / "clip.mp4"
        loop_clip(FILM, Fraction(1, 2), clip)
        scaled = scale_clip(clip, (64, 36), tmp_path)
        made_at = scaled.stat().st_mtime_ns
        assert (read_video(scaled).width, read_video(scaled).height) == (64, 36)
        assert read_video(scaled).times_s == read_video(clip).times_s
        assert scale_clip(clip, (64, 36), tmp_path).stat().st_mtime_ns == made_at


@pytest.mark.parametrize(
    ("slots", "wrong"),
    [
        ({"idle": 14, "ours": 14, "others": 2, "after": 14}, ""),
        ({"idle": 14, "ours": 14, "others": 14, "after": 14}, "did not shrink"),
        ({"idle": 14, "ours": 3, "others": 2, "after": 14}, "our own load"),
        ({"idle": 14, "ours": 14, "others": 2, "after": 2}, "did not come back"),
    ],
)
def test_live_health_judges_slots(slots: dict[str, int], wrong: str) -> None:
    """Slots that do not follow the other program's load, and that alone, end the program with an error."""
    if not wrong:
        judge_slots(slots)
        return
    with pytest.raises(CommandFailed, match=wrong):
        judge_slots(slots)
