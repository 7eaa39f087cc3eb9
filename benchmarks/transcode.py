"""Compare codecfleet with FFmpeg and with plain process fan-out: time, CPU, memory, size and quality.

``make bench``, or ``python benchmarks/transcode.py [MEDIA] [options]``; README.md beside this file says what each
number means.
"""

import argparse
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from bench.codecs import CASES, CodecCase
from bench.contenders import Bench, Contender
from bench.ffmpeg import find_ffmpeg
from bench.machine import describe_run, described_lines
from bench.media import VideoFacts, loop_clip, read_video
from bench.program import FILM, run_in_folder
from bench.rates import compare_rates, rate_lines
from bench.speed import SpeedOptions, compare_speed, ratio_lines, ratios, speed_lines
from bench.table import save_results

from codecfleet.cluster.machine import cores


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    options = _parser().parse_args()
    ffmpeg = find_ffmpeg()
    return run_in_folder(lambda folder: _compare(options, ffmpeg, folder), options.work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("media", nargs="?", type=Path, metavar="MEDIA", help="source; default: the bundled film, looped")
    add("--seconds", type=Fraction, default=Fraction(60), help="length of the looped film (default: 60)")
    add("--cases", nargs="+", choices=CASES, default=list(CASES), help="encoders (default: all)")
    ways = [contender.value for contender in Contender]
    add("--contenders", nargs="+", choices=ways, default=ways, help="who runs (default: all)")
    add("--repeats", type=int, default=3, metavar="N", help="runs of each, in turn (default: 3)")
    add("--workers", type=int, metavar="N", help="segments in flight (default: codecfleet's own)")
    add("--segment-seconds", type=Fraction, metavar="S", help="length of segments (default: codecfleet's own)")
    add("--fan-out-threads", type=int, default=2, metavar="N", help="encoder threads of each process (0: its default)")
    add("--preset", type=int, choices=range(1, 8), help="codecfleet's preset, for codecfleet alone; to look around")
    add("--encoder-option", action="append", default=[], metavar="K=V", help="for codecfleet alone; to look around")
    add("--container", default="mp4", choices=("mp4", "mov", "mkv"), help="of every output (default: mp4)")
    add("--no-quality", action="store_true", help="leave PSNR, SSIM and VMAF out")
    add("--vmaf-every", type=int, default=5, metavar="N", help="VMAF of every Nth picture; 0 for none (default: 5)")
    add("--quality-grid", action="store_true", help="compare quality at equal bitrate instead of speed")
    add("--work", type=Path, metavar="DIR", help="where temporary files go (default: the system's place)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _compare(options: argparse.Namespace, ffmpeg: str, folder: Path) -> None:
    bench = _bench(options, ffmpeg, folder)
    document = describe_run(ffmpeg) | {"source": _describe_source(bench.source, bench.facts, options)}
    for line in (*described_lines(document), _source_line(document["source"])):
        print(line)
    cases = [_case(name, options) for name in options.cases]
    if options.quality_grid:
        _compare_quality(bench, cases, document, options.save)
    else:
        _compare_speed(bench, cases, document, options)
    if options.save:
        print(f"\nsaved: {save_results(options.save, document)}")


def _compare_speed(bench: Bench, cases: list[CodecCase], document: dict[str, Any], options: argparse.Namespace) -> None:
    settings = SpeedOptions(
        contenders=tuple(Contender(name) for name in options.contenders),
        repeats=options.repeats,
        fan_out_threads=options.fan_out_threads,
        vmaf_every=options.vmaf_every,
        threads=cores(),
        with_quality=not options.no_quality,
    )
    records: list[dict[str, Any]] = []
    for case in cases:
        records += compare_speed(bench, case, settings, _say)
        document |= {"speed": records, "ratios": ratios(records), "fan_out_threads": options.fan_out_threads}
        _save(options.save, document)
    memory_kind = "/".join(sorted({record["memory_kind"] for record in records}))
    print(f"\nMedians of {options.repeats} runs; memory is the peak {memory_kind} of all processes together.\n")
    print("\n".join([*speed_lines(records), "", *ratio_lines(document["ratios"])]))


def _compare_quality(bench: Bench, cases: list[CodecCase], document: dict[str, Any], save: str | None) -> None:
    document["rates"] = []
    for case in cases:
        document["rates"].append(compare_rates(bench, case, cores(), _say))
        _save(save, document)
    print("\nRates are the video's alone, PSNR is over all planes and pictures.\n")
    print("\n".join(rate_lines(document["rates"])))


def _save(name: str | None, document: dict[str, Any]) -> None:
    """Keep what there is: a long comparison may be interrupted."""
    if name:
        save_results(name, document)


def _bench(options: argparse.Namespace, ffmpeg: str, folder: Path) -> Bench:
    source = options.media
    if source is None:
        source = folder / "source.mp4"
        loop_clip(FILM, options.seconds, source)
    elif not source.is_file():
        sys.exit(f"there is no file {source}")
    return Bench(
        ffmpeg=ffmpeg,
        source=source.resolve(),
        facts=read_video(source),
        folder=folder,
        container=options.container,
        workers=options.workers,
        segment_s=options.segment_seconds,
        encoder_options=tuple(options.encoder_option),
    )


def _case(name: str, options: argparse.Namespace) -> CodecCase:
    case = CASES[name]
    return case if options.preset is None else replace(case, preset=options.preset)


def _describe_source(path: Path, facts: VideoFacts, options: argparse.Namespace) -> dict[str, Any]:
    looped = options.media is None
    return {
        "name": f"{FILM.name} looped to {float(options.seconds):g} s" if looped else path.name,
        "codec": facts.codec,
        "width": facts.width,
        "height": facts.height,
        "frames": facts.frames,
        "duration_s": round(float(facts.duration_s), 3),
        "bytes": facts.file_bytes,
    }


def _source_line(source: dict[str, Any]) -> str:
    size = f"{source['width']}x{source['height']} {source['codec']}"
    return (
        f"{source['name']}: {size}, {source['frames']} frames, {source['duration_s']} s, {source['bytes'] / 1e6:.1f} MB"
    )


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
