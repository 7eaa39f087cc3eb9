"""Show that the memory of driver, workers and object store does not grow with length: a clip once, then in a loop.

``python benchmarks/memory.py CLIP --loop-to-minutes 30``; README.md beside this file says what each number means.
"""

import argparse
import sys
from dataclasses import asdict, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from bench.codecs import CASES, CodecCase
from bench.contenders import Bench, run_fleet
from bench.machine import describe_run, described_lines
from bench.measure import Role
from bench.media import VideoFacts, loop_clip, read_video
from bench.program import FILM, run_in_folder
from bench.table import number, save_results, table_lines

_MIB = 2**20


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    if not options.clip.is_file():
        sys.exit(f"there is no file {options.clip}")
    return run_in_folder(lambda folder: _compare(options, folder), options.work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("clip", nargs="?", type=Path, default=FILM, metavar="CLIP", help="source (default: the bundled film)")
    add("--loop-to-minutes", type=Fraction, default=Fraction(30), metavar="M", help="length to loop to (default: 30)")
    add("--case", choices=CASES, default="x264", help="encoder (default: x264)")
    add("--preset", type=int, choices=range(1, 8), default=1, help="codecfleet's preset (default: 1, the fastest)")
    add("--segment-seconds", type=Fraction, default=Fraction(4), metavar="S", help="for both lengths (default: 4)")
    add("--workers", type=int, metavar="N", help="segments in flight (default: codecfleet's choice)")
    add("--work", type=Path, metavar="DIR", help="where temporary files go (default: the system's temporary folder)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _compare(options: argparse.Namespace, folder: Path) -> None:
    document = describe_run(None)
    for line in described_lines(document):
        print(line)
    case = replace(CASES[options.case], preset=options.preset)
    looped = folder / "looped.mp4"
    sources = {options.clip.resolve(): read_video(options.clip)}
    sources[looped] = loop_clip(options.clip, options.loop_to_minutes * 60, looped)
    records = [_measure(path, facts, case, options, folder) for path, facts in sources.items()]
    document |= {"clip": options.clip.name, "memory": records}
    kind = "/".join(sorted({record["memory_kind"] for record in records}))
    print(f"\nPeak {kind} in MiB; the roles' peaks need not coincide.\n")
    print("\n".join(_lines(records)))
    if options.save:
        print(f"\nsaved: {save_results(options.save, document)}")


def _measure(
    path: Path, facts: VideoFacts, case: CodecCase, options: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    bench = Bench(
        ffmpeg="",
        source=path,
        facts=facts,
        folder=folder,
        container="mp4",
        workers=options.workers,
        segment_s=options.segment_seconds,
    )
    run = run_fleet(bench, case, case.quality)
    measured = {key: value for key, value in asdict(run.measured).items() if key != "output"}
    print(f"  {float(facts.duration_s):.1f} s of film: {run.measured.wall_s:.1f} s", flush=True)
    return measured | {
        "duration_s": float(facts.duration_s),
        "frames": facts.frames,
        "in_flight": run.in_flight,
        "encoder": run.encoder,
        "stages_s": run.stages_s,
    }


def _lines(records: list[dict[str, Any]]) -> list[str]:
    roles = {"driver": Role.MAIN, "workers": Role.WORKERS, "object store": Role.SHARED, "Ray": Role.RAY}
    rows = [
        [
            f"{record['duration_s']:.0f} s, {record['frames']} frames, {record['in_flight']} in flight",
            *(number(record["peak_by_role_bytes"].get(role.value, 0) / _MIB, 0) for role in roles.values()),
            number(record["peak_bytes"] / _MIB, 0),
            number(record["wall_s"], 1),
        ]
        for record in records
    ]
    short, long = records
    growth = [
        number(long["peak_by_role_bytes"].get(role.value, 0) / peak, 2)
        if (peak := short["peak_by_role_bytes"].get(role.value, 0))
        else "-"
        for role in roles.values()
    ]
    times = f"{long['duration_s'] / short['duration_s']:.1f} times as long"
    rows.append([times, *growth, number(long["peak_bytes"] / short["peak_bytes"], 2), ""])
    return table_lines(["film", *roles, "all together", "wall s"], rows)


if __name__ == "__main__":
    sys.exit(main())
