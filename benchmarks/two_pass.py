"""Compare ``--bitrate`` with FFmpeg's two passes over the whole film: the bitrate at equal PSNR.

``python benchmarks/two_pass.py [MEDIA ...] [options]``; README.md beside this file says what each number means.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from bench.bd_rate import RatePoint, bd_rate_percent
from bench.codecs import CASES, CodecCase, as_arguments
from bench.contenders import Bench, Cut, read_plan
from bench.failures import CommandFailed
from bench.ffmpeg import look_for_ffmpeg, run_ffmpeg
from bench.machine import describe_gpus, describe_run, described_lines
from bench.measure import measure
from bench.media import read_video
from bench.program import CODECFLEET, FILM, run_in_folder
from bench.quality import compare_pictures
from bench.rates import same_grid_options
from bench.table import number, save_results, table_lines

RATES: Final = (75_000, 150_000, 300_000, 450_000)
NAMES: Final = ("x264", "x265", "svtav1", "vp9")
_FPS: Final = 24
_KEYFRAMES: Final = 48
_X265: Final = "log-level=error:open-gop=0"


@dataclass(frozen=True, slots=True)
class Encoded:
    """One encoding of the film."""

    wanted_bps: int
    point: RatePoint
    cpu_s: float  # with the start of all processes
    encodes: int | None = None  # how many times codecfleet encoded a segment


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    return run_in_folder(lambda folder: _compare(options, folder), options.work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("media", nargs="*", type=Path, metavar="MEDIA", help="sources that are joined; default: the bundled film")
    add("--seconds", type=Fraction, default=Fraction(10), help="how much of each source is used (default: 10)")
    add("--size", default="320x180", metavar="WxH", help="size of the pictures (default: 320x180)")
    add("--codecs", nargs="+", choices=NAMES, default=list(NAMES), help="cases to run (default: all)")
    add("--rates", nargs="+", type=int, default=list(RATES), metavar="BPS", help="at least two bitrates")
    add("--segment-seconds", type=Fraction, default=Fraction(2), help="length of a segment (default: 2)")
    add("--workers", type=int, default=2, metavar="N", help="codecfleet's workers (default: 2)")
    add("--ffmpeg", metavar="PATH", help="compare with this FFmpeg (default: that of imageio-ffmpeg)")
    add("--work", type=Path, metavar="DIR", help="where temporary files go (default: the system's temporary folder)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _compare(options: argparse.Namespace, folder: Path) -> None:
    ffmpeg = look_for_ffmpeg(options.ffmpeg)
    document = describe_run(ffmpeg) | describe_gpus()
    print("\n".join(described_lines(document)))
    film = _joined(ffmpeg, options.media or [FILM], options.seconds, options.size, folder)
    facts = read_video(film)
    bench = Bench(
        ffmpeg=ffmpeg,
        source=film,
        facts=facts,
        folder=folder,
        container="mkv",
        workers=options.workers,
        segment_s=options.segment_seconds,
    )
    found = [_case(bench, CASES[name], options.rates, print) for name in options.codecs]
    print(f"\n{facts.frames} pictures of {facts.width}x{facts.height}.\n")
    print("\n".join(_lines(found)))
    if options.save:
        document |= {
            "source": {"frames": facts.frames, "width": facts.width, "height": facts.height, "codec": facts.codec},
            "cases": found,
        }
        print(f"\nsaved: {save_results(options.save, document)}")


def _joined(ffmpeg: str, media: Sequence[Path], seconds: Fraction, size: str, folder: Path) -> Path:
    """Join parts of the sources into one film of almost lossless H.264."""
    film = folder / "film.mkv"
    graph = "".join(
        f"[{n}:v:0]trim=0:{float(seconds)},scale={size.replace('x', ':')},fps={_FPS},format=yuv420p,setsar=1,"
        f"setpts=PTS-STARTPTS[v{n}];"
        for n in range(len(media))
    )
    graph += "".join(f"[v{n}]" for n in range(len(media))) + f"concat=n={len(media)}:v=1[v]"
    inputs = [part for each in media for part in ("-i", str(each.resolve()))]
    made = ["-map", "[v]", "-c:v", "libx264", "-preset", "veryfast", "-crf", "8", "-g", str(_KEYFRAMES), str(film)]
    run_ffmpeg(ffmpeg, ["-y", *inputs, "-filter_complex", graph, *made], folder=folder)
    return film


def _case(bench: Bench, case: CodecCase, rates: Sequence[int], say: Callable[[str], None]) -> dict[str, Any]:
    cuts, ours, peers = read_plan(bench, case), list[Encoded](), list[Encoded]()
    for rate in rates:
        for runs, run, name in (
            (ours, _run_fleet(bench, case, rate), "codecfleet"),
            (peers, _run_two_pass(bench, case, rate, cuts), "ffmpeg"),
        ):
            runs.append(run)
            point = run.point
            say(f"  {case.name} {name}, {rate} bit/s: {point.rate_bps:.0f}, {point.psnr_db:.3f} dB, {run.cpu_s:.1f} s")
    points = [[each.point for each in runs] for runs in (peers, ours)]
    try:
        difference: float | None = bd_rate_percent(*points)
    except ValueError:
        difference = None
    return {
        "case": case.name,
        "bd_rate_percent": difference,
        "codecfleet": [asdict(each) for each in ours],
        "ffmpeg": [asdict(each) for each in peers],
        "largest_miss_percent": max(abs(each.point.rate_bps / each.wanted_bps - 1) for each in ours) * 100,
        "ffmpegs_largest_miss_percent": max(abs(each.point.rate_bps / each.wanted_bps - 1) for each in peers) * 100,
    }


def _run_fleet(bench: Bench, case: CodecCase, rate: int) -> Encoded:
    output = bench.output(f"{case.name}-codecfleet")
    report_path = output.with_suffix(".report.json")
    words = [*CODECFLEET, "transcode", str(bench.source), str(output), "--codec", case.codec, "--bitrate", str(rate)]
    words += ["--preset", str(case.preset), "--segment-seconds", str(float(bench.segment_s or 0))]
    words += ["--workers", str(bench.workers), "--device", "cpu"]
    measured = measure([*words, "--json", "--overwrite", "--report", str(report_path)])
    report = json.loads(report_path.read_text(encoding="utf-8"))
    return Encoded(rate, _point(bench, output), measured.cpu_s, report["rate"]["encodes"])


def _run_two_pass(bench: Bench, case: CodecCase, rate: int, cuts: Sequence[Cut]) -> Encoded:
    """Encode with FFmpeg in two passes; SVT-AV1, for which FFmpeg has no second pass, at a variable rate."""
    output, log = bench.output(f"{case.name}-two-pass"), bench.folder / f"{case.name}.log"
    options = [pair for pair in case.options if pair[0] not in ("b:v", "x265-params")] + [("b:v", str(rate))]
    single = case.codec == "av1"
    grid = [] if single else same_grid_options(bench, case, cuts, "")
    words = [bench.ffmpeg, "-v", "error", "-nostdin", "-y", "-i", str(bench.source), "-c:v", case.encoder]
    cpu_s = 0.0
    for number_ in (2,) if single else (1, 2):
        passes = [] if single else ["-pass", str(number_), "-passlogfile", str(log)]
        if case.codec == "hevc":
            passes = ["-x265-params", f"{_X265}:pass={number_}:stats={log}"]
        target = ["-f", "null", "-"] if number_ == 1 else [str(output)]
        cpu_s += measure([*words, *as_arguments(tuple(options)), *grid, *passes, *target]).cpu_s
    return Encoded(rate, _point(bench, output), cpu_s)


def _point(bench: Bench, output: Path) -> RatePoint:
    facts = read_video(output)
    if facts.frames != bench.facts.frames:
        message = f"{output.name} has {facts.frames} frames of {bench.facts.frames}: no comparison is possible"
        raise CommandFailed(message)
    quality = compare_pictures(bench.ffmpeg, output, bench.source, vmaf_every=0, threads=1)
    return RatePoint(float(facts.video_bytes * 8 / bench.facts.duration_s), quality.psnr_db)


def _lines(found: Sequence[dict[str, Any]]) -> list[str]:
    heads = ("case", "BD-rate %", "largest miss %", "FFmpeg's largest miss %", "encodes of a segment")
    rows = [
        [
            one["case"],
            number(one["bd_rate_percent"], 2),
            number(one["largest_miss_percent"], 2),
            number(one["ffmpegs_largest_miss_percent"], 2),
            " ".join(str(each["encodes"]) for each in one["codecfleet"]),
        ]
        for one in found
    ]
    return table_lines(heads, rows)


if __name__ == "__main__":
    raise SystemExit(main())
