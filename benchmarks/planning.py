"""Time planning: for a synthetic index of an hour (100,000 packets), and for a real file with as many packets.

``python benchmarks/planning.py``; README.md beside this file says what each number means.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bench.codecs import CASES
from bench.contenders import Bench, fleet_command
from bench.failures import CommandFailed
from bench.ffmpeg import find_ffmpeg, run_ffmpeg
from bench.machine import describe_run, described_lines
from bench.measure import measure
from bench.media import read_video
from bench.planning_index import film_index
from bench.program import run_in_folder
from bench.table import Spread, number, save_results, spread, table_lines

from codecfleet.jobs.plan.cuts import choose_cuts
from codecfleet.jobs.plan.plan import Plan, plan_transcode
from codecfleet.jobs.request.spec import TranscodeSpec
from codecfleet.jobs.source.source import read_source

ResultT = TypeVar("ResultT")


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    return run_in_folder(lambda folder: _time(options, folder), options.work)


def _time(options: argparse.Namespace, folder: Path) -> None:
    document = describe_run(None)
    for line in described_lines(document):
        print(line)
    rows = _synthetic(options) | _real(options, folder)
    document |= {"packets": options.packets, "seconds": float(options.seconds), "planning_s": rows}
    print(f"\n{options.packets} packets, {float(options.seconds):g} s of film; {options.repeats} runs each.\n")
    print("\n".join(_lines(rows)))
    if options.save:
        print(f"\nsaved: {save_results(options.save, document)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--packets", type=int, default=100_000, metavar="N", help="pictures in the film (default: 100000)")
    add("--seconds", type=Fraction, default=Fraction(3600), metavar="S", help="its length (default: 3600)")
    add("--repeats", type=int, default=5, metavar="N", help="runs of each (default: 5)")
    add("--work", type=Path, metavar="DIR", help="where temporary files go (default: the system's temporary folder)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _synthetic(options: argparse.Namespace) -> dict[str, Spread]:
    indexes = [film_index(options.packets, options.seconds) for _ in range(options.repeats)]
    # A new index for every run: an index caches derived results.
    return {"cuts, synthetic index": spread([_timed(partial(choose_cuts, index))[0] for index in indexes])}


def _real(options: argparse.Namespace, folder: Path) -> dict[str, Spread]:
    film = folder / "film.mp4"
    _make_film(film, options.packets, options.seconds)
    spec = TranscodeSpec(source=str(film), output=str(folder / "planned.mp4"))
    command = fleet_command(_bench(film, folder), CASES["x264"], 23, folder / "planned.mp4", "plan")
    repeats = range(options.repeats)
    plans = [_timed(partial(plan_transcode, spec)) for _ in repeats]
    return {
        "index of a real file": spread([_timed(partial(read_source, str(film)))[0] for _ in repeats]),
        "whole plan of it": spread([seconds for seconds, _ in plans]),
        "work orders of all its segments": spread([_timed(partial(_works, plan))[0] for _, plan in plans]),
        "`codecfleet plan`, the whole process": spread([measure(command).wall_s for _ in repeats]),
    }


def _works(plan: Plan) -> list[Any]:
    return [plan.work("job", number, number, 0) for number in range(len(plan.segments))]


def _timed(call: Callable[[], ResultT]) -> tuple[float, ResultT]:
    gc.collect()
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def _make_film(path: Path, packets: int, length_s: Fraction) -> None:
    """Encode tiny pictures, quickly: only their number and times matter."""
    source = f"testsrc2=size=64x64:rate={packets / length_s}"
    encoder = ["-c:v", "libx264", "-preset", "veryfast", "-crf", "40", "-g", "50"]
    run_ffmpeg(find_ffmpeg(), ["-f", "lavfi", "-i", source, "-frames:v", str(packets), *encoder, str(path)])
    frames = read_video(path).frames
    if frames != packets:
        message = f"FFmpeg made {frames} pictures of {packets}"
        raise CommandFailed(message)


def _bench(film: Path, folder: Path) -> Bench:
    return Bench(
        ffmpeg="", source=film, facts=read_video(film), folder=folder, container="mp4", workers=None, segment_s=None
    )


def _lines(rows: dict[str, Spread]) -> list[str]:
    figures = [[name, *(number(row[key], 3) for key in ("median", "least", "most"))] for name, row in rows.items()]
    return table_lines(("seconds for", "median", "least", "most"), figures)


if __name__ == "__main__":
    sys.exit(main())
