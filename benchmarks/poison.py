"""Transcodes a stream that breaks NVDEC together with good streams, on one fleet with ``--device gpu``.

Shows how each job ends, how many processes are lost, and how long it takes.

``python benchmarks/poison.py --poison FILE --good FILE...``; README.md beside this file says what is recorded.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from bench.machine import describe_gpus, describe_run, described_lines
from bench.program import run_in_folder
from bench.table import save_results

from codecfleet import Fleet, TranscodeSpec, verify
from codecfleet.errors import CodecfleetError
from codecfleet.jobs.report.report import Report

LOST_MAX: Final = 2
"""The most processes that a bad stream may kill: a shared process, and a process in which the stream runs alone."""
IN_A_SHARED_PROCESS: Final = ("lost", "suspect")
IN_ITS_OWN: Final = ("guilty", "killed")


def main() -> int:
    """Run the benchmark with the options of the command line; return 0 if all is as expected, otherwise 1."""
    options = _parser().parse_args()
    missing = [str(path) for path in (options.poison, *options.good) if not path.is_file()]
    if missing:
        sys.exit(f"there is no file {missing[0]}")
    problems: list[str] = []
    ended = run_in_folder(lambda folder: problems.extend(asyncio.run(_try(options, folder))), options.work)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return ended or int(bool(problems))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--poison", type=Path, required=True, metavar="FILE", help="a stream that breaks NVDEC")
    add("--good", type=Path, nargs="+", required=True, metavar="FILE", help="streams that NVDEC decodes")
    add("--preset", type=int, choices=range(1, 8), default=1, help="x264's preset (default: 1, the fastest)")
    add("--segment-seconds", type=Fraction, default=Fraction(4), metavar="S", help="length of segments (default: 4)")
    add("--workers", type=int, metavar="N", help="segments in flight (default: as many as fit on the machine)")
    add("--work", type=Path, metavar="DIR", help="where temporary files go (default: the system's temporary folder)")
    add("--no-verify", action="store_true", help="do not verify the outputs")
    add("--save", metavar="NAME", help="write benchmarks/results/NAME.json")
    return parser


async def _try(options: argparse.Namespace, folder: Path) -> list[str]:
    document = describe_run(None) | describe_gpus()
    print("\n".join(described_lines(document)), flush=True)
    films = [options.poison, *options.good]
    began_s = time.perf_counter()
    on_gpu = await _transcoded(films, "gpu", options, folder)
    wall_s = time.perf_counter() - began_s
    in_software = await _transcoded(films, "cpu", options, folder)
    rows = []
    for number, (film, found, expected) in enumerate(zip(films, on_gpu, in_software, strict=True)):
        row = {"file": film.name, "role": "poison" if number == 0 else "good"} | _outcome(found)
        if isinstance(found, Report) and isinstance(expected, Report):
            row["sha256"] = found.proof.output_sha256
            row["equals_device_cpu"] = row["sha256"] == expected.proof.output_sha256
            row["failed_checks"] = (
                [] if options.no_verify else await asyncio.to_thread(_failed_checks, film, found.output)
            )
        rows.append(row)
        print(f"{row['role']:6} {row['file']}: {row['outcome']}, decoded by {row.get('decoded_by')}", flush=True)
    lost = _lost(rows)
    document |= {"wall_s": round(wall_s, 2), "processes_lost": lost, "films": rows}
    document["problems"] = problems = _problems(rows, lost)
    print(f"processes lost: {lost}; {wall_s:.1f} s")
    if options.save:
        print(f"saved: {save_results(options.save, document)}")
    return problems


async def _transcoded(
    films: Sequence[Path], device: str, options: argparse.Namespace, folder: Path
) -> list[Report | BaseException]:
    """Transcode all films at once on one fleet; return each one's report or error."""
    async with Fleet(workers=options.workers, jobs_at_once=len(films)) as fleet:
        jobs = [
            await fleet.transcode(
                TranscodeSpec.model_validate(
                    {
                        "source": str(film),
                        "output": str(folder / f"{device}-{number}.mp4"),
                        "codec": "h264",
                        "encoder": "software",
                        "preset": options.preset,
                        "segment_s": options.segment_seconds,
                        "device": device,
                        "audio": "none",
                        "subtitles": "none",
                    }
                )
            )
            for number, film in enumerate(films)
        ]
        return list(await asyncio.gather(*jobs, return_exceptions=True))


def _outcome(found: Report | BaseException) -> dict[str, Any]:
    if not isinstance(found, Report):
        code = found.exit_code if isinstance(found, CodecfleetError) else 1
        return {"outcome": f"{type(found).__name__}: {found}", "exit_code": code, "failures": []}
    return {
        "outcome": "ended well",
        "exit_code": 0,
        "frames": found.frames,
        "decoded_by": dict(Counter(segment.decoded_by for segment in found.segments)),
        "warnings": [warning.message for warning in found.warnings],
        "failures": [
            {"segment": segment.segment} | failure.model_dump()
            for segment in found.segments
            for failure in segment.failures
        ],
    }


def _failed_checks(film: Path, output: str) -> list[str]:
    return [check.line() for check in verify(film, output, audio_tracks=()).failures]


def _lost(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the shared workers that died, and how many processes died while they ran a single segment."""
    failures = [failure for row in rows for failure in row["failures"]]
    shared = sorted({failure["where"] for failure in failures if failure["fault"] in IN_A_SHARED_PROCESS})
    return {"workers": shared, "alone": sum(failure["fault"] in IN_ITS_OWN for failure in failures)}


def _problems(rows: Sequence[dict[str, Any]], lost: dict[str, Any]) -> list[str]:
    """Return the deviations from the expected results."""
    problems = [f"{row['file']}: {row['outcome']}" for row in rows if row["exit_code"]]
    ended = [row for row in rows if not row["exit_code"]]
    problems += [f"{row['file']}: not the bytes of --device cpu" for row in ended if not row["equals_device_cpu"]]
    problems += [f"{row['file']}: {failed}" for row in ended for failed in row["failed_checks"]]
    good = [row for row in ended if row["role"] == "good"]
    problems += [f"{row['file']}: not decoded entirely by NVDEC" for row in good if set(row["decoded_by"]) != {"nvdec"}]
    count = len(lost["workers"]) + lost["alone"]
    if count > LOST_MAX:
        problems.append(f"{count} processes were lost, more than {LOST_MAX}: {lost}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
