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

from bench.codecs import CASES, CASES_BY_DEFAULT, CodecCase
from bench.contenders import Bench, Contender
from bench.failures import CommandFailed
from bench.ffmpeg import NoFFmpeg, ffmpeg_version, has_encoder, look_for_ffmpeg
from bench.machine import describe_gpus, describe_run, described_lines
from bench.media import VideoFacts, loop_clip, read_video, scale_clip
from bench.program import FILM, run_in_folder
from bench.rates import compare_rates, rate_lines
from bench.speed import (
    SpeedOptions,
    compare_speed,
    device_lines,
    differences,
    ratio_lines,
    ratios,
    speed_lines,
)
from bench.table import save_results

from codecfleet.cluster.machine import cores


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    ffmpeg = _ffmpeg(options)
    return run_in_folder(lambda folder: _compare(options, ffmpeg, folder), options.work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("media", nargs="?", type=Path, metavar="MEDIA", help="source; default: the bundled film, looped")
    add("--seconds", type=Fraction, help="loop the film to this length (default: 60 for the bundled film)")
    add("--size", type=_size, metavar="WxH", help="scale the film to this size before it is compared")
    default = " ".join(CASES_BY_DEFAULT)
    add("--cases", nargs="+", choices=CASES, default=list(CASES_BY_DEFAULT), help=f"encoders (default: {default})")
    ways = [contender.value for contender in Contender]
    add("--contenders", nargs="+", choices=ways, default=ways, help="contenders to run (default: all)")
    add("--device", nargs="+", choices=("auto", "cpu", "gpu"), default=[], help="run codecfleet once for each device")
    add(
        "--warm",
        type=int,
        default=1,
        metavar="N",
        help="with --device: how many times a fleet repeats its job (default: 1)",
    )
    add("--repeats", type=int, default=3, metavar="N", help="runs of each, taking turns (default: 3)")
    add("--workers", type=int, metavar="N", help="segments in flight (default: codecfleet's choice)")
    add("--segment-seconds", type=Fraction, metavar="S", help="length of segments (default: codecfleet's choice)")
    add("--ffmpeg", metavar="PATH", help="compare with this FFmpeg (default: that of imageio-ffmpeg)")
    add("--fan-out-threads", type=int, default=2, metavar="N", help="encoder threads of each process (0: its default)")
    add("--preset", type=int, choices=range(1, 8), help="the preset of codecfleet, not of FFmpeg; for experiments")
    add("--encoder-option", action="append", default=[], metavar="K=V", help="for codecfleet only; for experiments")
    add("--container", default="mp4", choices=("mp4", "mov", "mkv"), help="container of every output (default: mp4)")
    add("--no-quality", action="store_true", help="skip PSNR, SSIM and VMAF")
    add("--vmaf-every", type=int, default=5, metavar="N", help="VMAF of every Nth picture; 0 for none (default: 5)")
    add("--quality-grid", action="store_true", help="compare quality at equal bitrate instead of speed")
    add("--work", type=Path, metavar="DIR", help="where temporary files go (default: the system's temporary folder)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    return int(width), int(height)


def _ffmpeg(options: argparse.Namespace) -> str | None:
    """Return FFmpeg's path; without FFmpeg, skip the parts that need it, with a message."""
    try:
        return look_for_ffmpeg(options.ffmpeg)
    except NoFFmpeg as error:
        if options.quality_grid or options.ffmpeg:
            sys.exit(str(error))
        options.contenders = [name for name in options.contenders if name == Contender.FLEET]
        options.no_quality = True
        print(f"without FFmpeg, its contenders, PSNR, SSIM and VMAF are skipped ({error})")
        return None


def _compare(options: argparse.Namespace, ffmpeg: str | None, folder: Path) -> None:
    bench = _bench(options, ffmpeg or "", folder)
    document = describe_run(ffmpeg) | describe_gpus() | {"source": _describe_source(bench.facts, options)}
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
        devices=tuple(options.device),
        warm_jobs=options.warm,
        repeats=options.repeats,
        fan_out_threads=options.fan_out_threads,
        vmaf_every=options.vmaf_every,
        threads=cores(),
        with_quality=not options.no_quality,
    )
    records: list[dict[str, Any]] = []
    for case in cases:
        records += compare_speed(bench, case, settings, _say)
        document |= {"speed": records, "ratios": ratios(records), "differences": differences(records)}
        document["fan_out_threads"] = options.fan_out_threads
        _save(options.save, document)
    memory_kind = "/".join(sorted({record["memory_kind"] for record in records}))
    print(f"\nMedians of {options.repeats} runs; memory is the peak {memory_kind} of all processes together.\n")
    print("\n".join(speed_lines(records)))
    if document["ratios"]:
        print("\n".join(["", *ratio_lines(document["ratios"])]))
    if options.device:
        print("\n".join(["", *device_lines(records)]), flush=True)
    if document["differences"]:
        raise CommandFailed("; ".join(document["differences"]))
    if options.device:
        print("\nFor each case and encoder, all of codecfleet's outputs were byte-identical.")


def _compare_quality(bench: Bench, cases: list[CodecCase], document: dict[str, Any], save: str | None) -> None:
    document["rates"] = []
    for case in cases:
        if not has_encoder(bench.ffmpeg, case.encoder):
            _say(f"  {case.name}: FFmpeg {ffmpeg_version(bench.ffmpeg)} has no {case.encoder}")
            continue
        document["rates"].append(compare_rates(bench, case, cores(), _say))
        _save(save, document)
    print("\nRates are those of the video only; PSNR is over all planes and pictures.\n")
    print("\n".join(rate_lines(document["rates"])))


def _save(name: str | None, document: dict[str, Any]) -> None:
    """Save the results so far: a long comparison may be interrupted."""
    if name:
        save_results(name, document)


def _bench(options: argparse.Namespace, ffmpeg: str, folder: Path) -> Bench:
    source = options.media or FILM
    if not source.is_file():
        sys.exit(f"there is no file {source}")
    if options.size is not None:
        source = scale_clip(source, options.size, options.work or folder)
    length_s = _length_s(options)
    if length_s is not None:
        looped = folder / "source.mp4"
        loop_clip(source, length_s, looped)
        source = looped
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


def _length_s(options: argparse.Namespace) -> Fraction | None:
    """Return the length to which the film is looped; None if it is not looped."""
    length_s: Fraction | None = options.seconds
    return Fraction(60) if length_s is None and options.media is None else length_s


def _case(name: str, options: argparse.Namespace) -> CodecCase:
    case = CASES[name]
    return case if options.preset is None else replace(case, preset=options.preset)


def _describe_source(facts: VideoFacts, options: argparse.Namespace) -> dict[str, Any]:
    name, length_s = (options.media or FILM).name, _length_s(options)
    scaled = "" if options.size is None else " scaled"
    looped = "" if length_s is None else f" looped to {float(length_s):g} s"
    return {
        "name": f"{name}{scaled}{looped}",
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
