"""Compare a ladder with one FFmpeg that decodes once and encodes every rendition, and with a transcode for each.

``python benchmarks/ladder.py [MEDIA] [options]``; README.md beside this file says what each number means.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from bench.failures import CommandFailed
from bench.ffmpeg import QUIET, look_for_ffmpeg
from bench.machine import describe_gpus, describe_run, described_lines
from bench.measure import Measurement, measure
from bench.media import loop_clip, read_video
from bench.program import CODECFLEET, FILM, module_command, run_in_folder
from bench.table import number, save_results, spread, table_lines

RUNGS: Final = ((1080, 22), (720, 22), (480, 23), (360, 23))
"""The height and the quality (x264's CRF) of each rendition; each is encoded with the preset medium."""
KEYFRAME_S: Final = 2
_AS_WORKERS: Final = ("nice", "-n", "15")
"""FFmpeg has the niceness of codecfleet's workers, so that other programs on the machine slow both alike."""
_PRESET: Final = "\n".join(
    ['codec = "h264"', 'audio = "aac"', f"keyframe_interval = {KEYFRAME_S}"]
    + [f'[[rendition]]\nname = "{lines}p"\nscale = "{lines}p"\nquality = {quality}' for lines, quality in RUNGS]
)


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a contender."""

    measured: Measurement
    start_up_s: float = 0.0  # the part of the wall time before anything is done with the film
    decoded: int | None = None  # how often a part of the film was decoded; None if unknown
    encoded: int | None = None  # how many segments were encoded
    decoded_by: Mapping[str, int] = field(default_factory=dict)  # how many segments each kind of decoder decoded
    system_s: float | None = None  # the part of the CPU seconds that was spent in the kernel; None if unknown

    @property
    def work_s(self) -> float:
        """Wall time less start-up."""
        return self.measured.wall_s - self.start_up_s


@dataclass(frozen=True, slots=True)
class Bench:
    """The input and the settings, which are the same for all contenders."""

    film: Path
    folder: Path
    ffmpeg: str
    device: str
    seconds: Fraction


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    return run_in_folder(lambda folder: _compare(options, folder), options.work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("media", nargs="?", type=Path, metavar="MEDIA", help="source of 1080 lines or more; default: the bundled film")
    add("--seconds", type=Fraction, default=Fraction(60), help="loop the film to this length (default: 60)")
    add(
        "--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), help="contenders to run (default: all)"
    )
    add(
        "--device",
        nargs="+",
        choices=("auto", "cpu", "gpu"),
        default=["auto"],
        help="devices for codecfleet, each compared with the others (default: auto)",
    )
    add("--repeats", type=int, default=3, metavar="N", help="runs of each contender, taking turns (default: 3)")
    add("--ffmpeg", metavar="PATH", help="compare with this FFmpeg (default: that of imageio-ffmpeg)")
    add("--work", type=Path, metavar="DIR", help="where temporary files go (default: the system's temporary folder)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _compare(options: argparse.Namespace, folder: Path) -> None:
    ffmpeg = look_for_ffmpeg(options.ffmpeg)
    document = describe_run(ffmpeg) | describe_gpus()
    print("\n".join(described_lines(document)))
    film = folder / "film.mp4"
    facts = loop_clip(options.media or FILM, options.seconds, film)
    bench = Bench(film, folder, ffmpeg, options.device[0], options.seconds)
    runs: dict[str, list[Ran]] = {}
    for _ in range(options.repeats):
        for name in options.contenders:
            for device in options.device if name != "ffmpeg" else options.device[:1]:
                label = name if len(options.device) == 1 or name == "ffmpeg" else f"{name}, {device}"
                runs.setdefault(label, []).append(CONTENDERS[name](replace(bench, device=device)))
    print(
        f"\n{facts.frames} pictures of {facts.width}x{facts.height}, {len(RUNGS)} renditions, {options.repeats} runs.\n"
    )
    print("\n".join(_lines(runs)))
    if options.save:
        document |= {
            "source": {"frames": facts.frames, "width": facts.width, "height": facts.height, "codec": facts.codec},
            "rungs": [{"lines": lines, "quality": quality} for lines, quality in RUNGS],
            "device": options.device,
            "runs": {name: [_run_json(ran) for ran in found] for name, found in runs.items()},
        }
        print(f"\nsaved: {save_results(options.save, document)}")


def _ladder(bench: Bench) -> Ran:
    spec = _spec(bench)
    words = [*CODECFLEET, "ladder", spec["source"], spec["output"], "--preset", spec["preset"]]
    measured = measure([*words, "--device", bench.device, "--overwrite"])
    report = json.loads(Path(spec["output"], "ladder.json").read_text(encoding="utf-8"))
    # Start-up is the time of the interpreter and of the imports; the wait for workers counts as work.
    ran = _checked(bench, report, measured, measured.wall_s - report["wall_s"])
    return replace(ran, system_s=measured.system_s)


def _warm_ladder(bench: Bench) -> Ran:
    """Make the ladder twice on one fleet; measure the second, whose workers run already."""
    answer, order = bench.folder / "jobs.json", bench.folder / "order.json"
    asked = {"command": "ladder", "spec": _spec(bench), "workers": None, "jobs": 2, "answer": str(answer)}
    order.write_text(json.dumps(asked | {"began_s": time.monotonic()}), encoding="utf-8")
    command, environment = module_command("fleet_jobs", str(order))
    measured = measure(command, environment=environment)
    _, warm = json.loads(answer.read_text(encoding="utf-8"))
    return _checked(bench, warm["report"], replace(measured, wall_s=warm["wall_s"], cpu_s=warm["cpu_s"]), 0.0)


def _spec(bench: Bench) -> dict[str, Any]:
    preset = bench.folder / "rungs.toml"
    preset.write_text(_PRESET, encoding="utf-8")
    paths = {"source": str(bench.film), "output": str(bench.folder / "ladder"), "preset": str(preset)}
    return {**paths, "device": bench.device, "overwrite": True}


def _checked(bench: Bench, report: dict[str, Any], measured: Measurement, start_up_s: float) -> Ran:
    for each in report["renditions"].values():
        _check(bench, each["frames"])
    by = Counter(segment["decoded_by"] for segment in next(iter(report["renditions"].values()))["segments"])
    return Ran(measured, start_up_s, report["decoded"], report["encoded"], dict(by))


def _transcodes(bench: Bench) -> Ran:
    """Make each rendition with a command of its own, one after the other."""
    began_s, runs = time.monotonic(), list[Measurement]()
    waited_s = 0.0
    for lines, quality in RUNGS:
        output, report = bench.folder / f"{lines}p.mp4", bench.folder / f"{lines}p.json"
        words = [*CODECFLEET, "transcode", str(bench.film), str(output), "--scale", f"{lines}p", "--overwrite"]
        words += ["--quality", str(quality), "--keyframe-interval", str(KEYFRAME_S), "--device", bench.device]
        words += ["--audio", "aac" if not runs else "none", "--report", str(report)]
        runs.append(measure(words))
        found = json.loads(report.read_text(encoding="utf-8"))
        _check(bench, found["frames"])
        waited_s += runs[-1].wall_s - found["timings_s"]["total"] + found["timings_s"]["startup"]
    measured = _sum(runs, time.monotonic() - began_s)
    return Ran(measured, waited_s, system_s=measured.system_s)


def _sum(runs: list[Measurement], wall_s: float) -> Measurement:
    return Measurement(
        **{
            **{name: getattr(runs[0], name) for name in Measurement.__dataclass_fields__},
            "wall_s": wall_s,
            "cpu_s": sum(run.cpu_s for run in runs),
            "system_s": sum(run.system_s for run in runs),
            "peak_bytes": max(run.peak_bytes for run in runs),
        }
    )


def _one_ffmpeg(bench: Bench) -> Ran:
    """Decode once, split, scale, and encode all renditions in one FFmpeg, as a shell script would."""
    names = [f"v{lines}" for lines, _ in RUNGS]
    split = f"[0:v]split={len(RUNGS)}{''.join(f'[{name}in]' for name in names)};"
    scales = ";".join(f"[{name}in]scale=-2:{lines}[{name}]" for name, (lines, _) in zip(names, RUNGS, strict=True))
    words = [*_AS_WORKERS, bench.ffmpeg, *QUIET, "-i", str(bench.film), "-filter_complex", split + scales]
    outputs = []
    for number_, (name, (lines, quality)) in enumerate(zip(names, RUNGS, strict=True)):
        outputs.append(bench.folder / f"ffmpeg-{lines}.mp4")
        words += ["-map", f"[{name}]", *(["-map", "0:a?", "-c:a", "aac"] if not number_ else []), "-c:v", "libx264"]
        words += ["-preset", "medium", "-crf", str(quality)]
        words += ["-force_key_frames", f"expr:gte(t,n_forced*{KEYFRAME_S})", "-fps_mode", "passthrough"]
        words += [str(outputs[-1])]
    measured = measure(words)
    for output in outputs:
        _check(bench, read_video(output).frames)
    return Ran(measured, system_s=measured.system_s)


CONTENDERS: Final[Mapping[str, Callable[[Bench], Ran]]] = {
    "ladder": _ladder,
    "warm ladder": _warm_ladder,
    "ffmpeg": _one_ffmpeg,
    "transcodes": _transcodes,
}


def _check(bench: Bench, frames: int) -> None:
    expected = read_video(bench.film).frames
    if frames != expected:
        raise CommandFailed(f"a rendition has {frames} pictures instead of the film's {expected}")


def _lines(runs: Mapping[str, list[Ran]]) -> list[str]:
    rows = []
    ffmpeg_s = spread([_work_s(ran) for ran in runs["ffmpeg"]])["median"] if "ffmpeg" in runs else None
    for name, found in runs.items():
        work, cpu = (spread([getter(ran) for ran in found]) for getter in (_work_s, _cpu_s))
        wall = spread([ran.measured.wall_s for ran in found])
        peak = max(ran.measured.peak_bytes for ran in found)
        ratio = None if ffmpeg_s is None else work["median"] / ffmpeg_s
        decoded = f"{found[0].decoded} of {found[0].encoded}" if found[0].decoded is not None else "-"
        system_s = [ran.system_s for ran in found if ran.system_s is not None]
        system = number(spread(system_s)["median"], 1) if system_s else "-"
        cells = (number(wall["median"], 1), number(work["median"], 1), number(cpu["median"], 1), system)
        rows.append([name, *cells, f"{peak / 1e6:.0f}", decoded, number(ratio, 2)])
    heads = ["contender", "wall s", "work s", "CPU s", "kernel s", "peak MB", "decoded", "work / ffmpeg"]
    return table_lines(heads, rows)


def _work_s(ran: Ran) -> float:
    return ran.work_s


def _cpu_s(ran: Ran) -> float:
    return ran.measured.cpu_s


def _run_json(ran: Ran) -> dict[str, Any]:
    return {
        "wall_s": ran.measured.wall_s,
        "work_s": ran.work_s,
        "start_up_s": ran.start_up_s,
        "cpu_s": ran.measured.cpu_s,
        "system_s": ran.system_s,
        "peak_bytes": ran.measured.peak_bytes,
        "decoded": ran.decoded,
        "encoded": ran.encoded,
        "decoded_by": ran.decoded_by,
    }


if __name__ == "__main__":
    raise SystemExit(main())
