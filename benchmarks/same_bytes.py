"""Does a GPU change the output? Transcode each file with ``--device auto`` and with ``--device cpu``, and compare.

``python benchmarks/same_bytes.py FILE...``; README.md beside this file says what each column means.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from bench.machine import describe_gpus, describe_run, described_lines
from bench.program import run_in_folder
from bench.same_bytes import FileCheck, Verdict, earlier_rows, known_gpus, smallest_first, summary_line, table
from bench.table import RESULTS, save_results

from codecfleet import Fleet
from codecfleet.actors.encode.settings import Codec


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    missing = [str(path) for path in options.files if not path.is_file()]
    if missing:
        sys.exit(f"there is no file {missing[0]}")
    rows: list[dict[str, Any]] = []
    ended = run_in_folder(lambda folder: rows.extend(asyncio.run(_compare(options, folder))), options.work)
    return ended or int(any(row["verdict"] == Verdict.DIFFERENT.value for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("files", nargs="+", type=Path, metavar="FILE", help="what to transcode; the smallest goes first")
    add(
        "--device",
        nargs="+",
        choices=("auto", "gpu"),
        default=["auto"],
        help="devices to compare with cpu (default: auto)",
    )
    add(
        "--codec", choices=[codec.value for codec in Codec], default="h264", help="codec of the outputs (default: h264)"
    )
    add("--preset", type=int, choices=range(1, 8), default=1, help="the encoder's preset (default: 1, the fastest)")
    add("--segment-seconds", type=Fraction, default=Fraction(1), metavar="S", help="length of segments (default: 1)")
    add("--jobs", type=int, default=4, metavar="N", help="files at once (default: 4)")
    add("--workers", type=int, metavar="N", help="segments in flight (default: one per core)")
    add("--limit-seconds", type=float, metavar="S", help="begin no more files after this long")
    add("--work", type=Path, metavar="DIR", help="where temporary files go (default: the system's temporary folder)")
    add("--save", metavar="NAME", help="write benchmarks/results/NAME.json after each file; later runs continue it")
    return parser


async def _compare(options: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    document = describe_run(None) | describe_gpus()
    print("\n".join(described_lines(document)), flush=True)
    settings = {
        "codec": options.codec,
        "preset": options.preset,
        "segment_s": str(options.segment_seconds),
        "devices": options.device,
    }
    rows = earlier_rows(RESULTS / f"{options.save}.json", settings) if options.save else []
    files = smallest_first(options.files, done=rows)
    if rows:
        print(f"{len(rows)} files were compared before; {len(files)} are left", flush=True)
    began_s = time.perf_counter()
    gpus = await asyncio.to_thread(known_gpus)
    async with Fleet(workers=options.workers, jobs_at_once=(len(options.device) + 1) * options.jobs) as fleet:
        check = FileCheck(
            fleet=fleet,
            gpus=gpus,
            folder=folder,
            devices=tuple(options.device),
            codec=Codec(options.codec),
            preset=options.preset,
            segment_s=options.segment_seconds,
        )
        at_once = asyncio.Semaphore(options.jobs)

        async def one(path: Path) -> None:
            async with at_once:
                if options.limit_seconds is not None and time.perf_counter() - began_s > options.limit_seconds:
                    return
                row = await check.row(path)
                rows.append(row)
                print(f"  {row['file']}: {row['verdict']}, {row['seconds']:.1f} s", flush=True)
                _save(options.save, document, settings, rows, len(files))

        await asyncio.gather(*(one(path) for path in files))
    wall_s = time.perf_counter() - began_s
    print("\n".join(["", *table(rows), "", summary_line(rows, wall_s)]))
    return rows


def _save(
    name: str | None, document: dict[str, Any], settings: dict[str, Any], rows: Sequence[dict[str, Any]], asked: int
) -> None:
    """Save the results so far: a long comparison may be interrupted."""
    if name:
        ordered = sorted(rows, key=lambda row: str(row["file"]))
        save_results(name, document | {"settings": settings, "files_of_run": asked, "rows": ordered})


if __name__ == "__main__":
    sys.exit(main())
