"""Time batches: the start, memory and resumption of a long list, and small files compared with FFmpeg in a shell loop.

``python benchmarks/batch.py``; README.md beside this file says what each number means.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.failures import CommandFailed
from bench.ffmpeg import find_ffmpeg
from bench.machine import describe_run, described_lines
from bench.program import run_in_folder
from bench.small_files import Loop, cut_film, cut_short, time_small_files
from bench.table import number, save_results, table_lines

_CHILD = Path(__file__).parent / "bench" / "batch_child.py"
_IN_A_FOLDER = 1000


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    return run_in_folder(lambda folder: _time(options, folder), options.work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--entries", type=int, default=100_000, metavar="N", help="entries of the long list (default: 100000; 0: none)")
    add("--killed-after", type=int, default=2000, metavar="N", help="kill each run after N files (default: 2000)")
    add("--files", type=int, default=1000, metavar="N", help="small files to encode (default: 1000; 0: none)")
    add("--film", type=Path, metavar="FILE", help="cut the small files from this film, half a second each")
    add(
        "--rounds",
        type=int,
        default=1,
        metavar="N",
        help="rounds; in each, both contenders encode all files (default: 1)",
    )
    add("--processes", type=int, default=os.cpu_count(), metavar="N", help="concurrent FFmpegs (default: one per core)")
    add("--work", type=Path, metavar="DIR", help="where temporary files go (default: the system's temporary folder)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _time(options: argparse.Namespace, folder: Path) -> None:
    ffmpeg = find_ffmpeg() if options.files else None
    document = describe_run(ffmpeg)
    for line in described_lines(document):
        print(line)
    if options.entries:
        document |= {"entries": options.entries, "runs": _long_list(options, folder)}
        print(f"\nA list of {options.entries} entries, whose jobs do nothing.\n")
        print("\n".join(_list_lines(document["runs"])))
    if ffmpeg is not None:
        document |= {"files": options.files} | _small_files(options, folder, ffmpeg)
        print(f"\n{options.files} files of {document['clips']}, in {options.rounds} rounds.\n")
        print("\n".join(_file_lines(document["small_files"], options.files)))
    if options.save:
        print(f"\nsaved: {save_results(options.save, document)}")


def _long_list(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Run the list, kill the run, continue it, and kill it again; return the first and the last line of each run."""
    listed = _make_list(folder / "list", options.entries)
    runs = []
    for name in ("first run, killed", "second run, killed"):
        command = [sys.executable, str(_CHILD), str(listed), str(folder / "out"), str(options.killed_after)]
        told = subprocess.run(command, check=False, capture_output=True, text=True)
        said = [json.loads(line) for line in told.stdout.splitlines()]
        if [each["what"] for each in said] != ["first", "killed"]:
            raise CommandFailed(f"the batch ended unexpectedly: {told.stderr[-500:]}")
        first, last = said
        runs.append(
            {
                "run": name,
                "first_file_s": first["wall_s"],
                "files_per_s": (last["ended"] - 1) / (last["wall_s"] - first["wall_s"]),
                "peak_mib": last["peak_mib"],
                "skipped": last["skipped"],
            }
        )
    return runs


def _make_list(folder: Path, entries: int) -> Path:
    listed = folder / "list.csv"
    folder.mkdir()
    with listed.open("w", encoding="utf-8") as lines:
        lines.write("source,quality,output\n")
        for entry in range(entries):
            place = folder / str(entry // _IN_A_FOLDER)
            if entry % _IN_A_FOLDER == 0:
                place.mkdir()
            source = place / f"{entry}.mkv"
            source.write_bytes(b"x" * 10)
            lines.write(f"{source},{20 + entry % 10},{place.name}/{entry}.mp4\n")
    return listed


def _small_files(options: argparse.Namespace, folder: Path, ffmpeg: str) -> dict[str, Any]:
    """Return a description of the small files, and the seconds that each contender takes for them in each round."""
    if options.film is None:
        kind, loop = "1 to 2 s at 240p, x264 medium, crf 23", Loop(ffmpeg, options.processes, "medium", 4, 23)
        clips = cut_short(folder / "clips", options.files, ffmpeg)
    else:
        kind, loop = (
            f"0.5 s of {options.film.name}, x264 veryfast, crf 24",
            Loop(ffmpeg, options.processes, "veryfast", 2, 24),
        )
        clips = cut_film(options.film, folder / "clips", options.files, ffmpeg)
    times = time_small_files(clips, loop, folder, options.rounds)
    return {"clips": kind, "small_files": {name: list(map(asdict, rounds)) for name, rounds in times.items()}}


def _list_lines(runs: list[dict[str, Any]]) -> list[str]:
    columns = ("first_file_s", "files_per_s", "peak_mib", "skipped")
    figures = [[run["run"], *(number(run[column], 1) for column in columns)] for run in runs]
    return table_lines(("run", "first file after s", "files/s", "peak MiB", "skipped"), figures)


def _file_lines(times: dict[str, list[dict[str, float]]], files: int) -> list[str]:
    best = {name: min(rounds, key=lambda each: each["wall_s"]) for name, rounds in times.items()}
    figures = []
    for name, each in best.items():
        rates = number(files / each["wall_s"], 1), number(best["ffmpeg"]["wall_s"] / each["wall_s"], 2)
        figures.append([name, number(each["wall_s"], 1), *rates, number(each["own_cpu_s"], 1)])
    return table_lines(("contender", "wall s", "files/s", "of FFmpeg's", "its own process's CPU s"), figures)


if __name__ == "__main__":
    sys.exit(main())
