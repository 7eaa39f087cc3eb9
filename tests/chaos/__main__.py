"""``make chaos``: seeded rounds of faults during real jobs. Exits with 1 if a round did not end as promised."""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from .films import films_for
from .lanes import run_all
from .opening import obstacle
from .schedule import Round, Shape, batches, round_of


def main() -> int:
    """Run the rounds that are not in the report yet; print a line for each, and tables of all rounds."""
    asked = _arguments()
    if asked.table is not None:
        print(tables(list(rows_of(asked.table).values())))
        return 0
    started_s = time.monotonic()
    rows = rows_of(asked.output)
    right_before = {seed for seed, row in rows.items() if not row["problems"]}
    with tempfile.TemporaryDirectory() as folder:
        wanted = _plans(asked.seeds, asked.shape)
        plans = [plan for plan in wanted if plan.seed not in right_before]
        films = films_for({plan.shape for plan in plans}, Path(folder))
        until_s = time.monotonic() + (asked.limit_s or float("inf"))
        ran = list(run_all(batches(plans, asked.at_once), films, asked.at_once, until_s, asked.output))
    rows = {plan.seed: rows[plan.seed] for plan in wanted if plan.seed in rows} | {
        result.round.seed: result.to_json() for result in ran
    }
    print(tables([rows[seed] for seed in sorted(rows)]))
    wrong = [seed for seed, row in sorted(rows.items()) if row["problems"]]
    print(
        f"{len(ran)} rounds in {time.monotonic() - started_s:.0f} s; of {len(rows)}, {len(rows) - len(wrong)} are right"
    )
    if len(rows) < len(wanted):
        print(f"{len(wanted) - len(rows)} rounds did not start in time")
    if wrong:
        print("wrong: --seeds " + " or ".join(map(str, wrong)))
    return bool(wrong)


def rows_of(report: Path | None) -> dict[int, dict[str, Any]]:
    """Return the rounds in a report by seed; if a seed was played several times, the last round counts."""
    if report is None or not report.exists():
        return {}
    rows = (json.loads(line) for line in report.read_text(encoding="utf-8").splitlines())
    return {row["seed"]: row for row in rows}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seeds", default="0-299", help="first-last, or one seed (default: %(default)s)")
    parser.add_argument("--shape", choices=[*Shape], help="only the seeds that have this shape")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="rounds at the same time, on cores each")
    parser.add_argument(
        "--output", type=Path, help="add each round to a report of JSON lines, and leave out what is right there"
    )
    parser.add_argument("--limit-s", type=float, help="start no round after this many seconds")
    parser.add_argument("--table", type=Path, metavar="REPORT", help="only print the tables of such a report")
    return parser.parse_args()


def _plans(seeds: str, only: str | None) -> list[Round]:
    """Return the rounds of these seeds that this machine can run; print which shapes it cannot run, and why."""
    first, _, last = seeds.partition("-")
    plans = [round_of(seed) for seed in range(int(first), int(last or first) + 1)]
    plans = [plan for plan in plans if only in (None, plan.shape)]
    for shape in Shape:
        if (reason := obstacle(shape)) and any(plan.shape is shape for plan in plans):
            print(f"skipped: {shape.value}: {reason}", flush=True)
            plans = [plan for plan in plans if plan.shape is not shape]
    return plans


def tables(rows: list[dict[str, Any]]) -> str:
    """Return the rounds of each shape, and how long lost work waited after each fault, for the documentation."""
    rounds = Counter(row["shape"] for row in rows)
    right = Counter(row["shape"] for row in rows if not row["problems"])
    redone = Counter[str]()
    times: dict[str, list[float | None]] = {}
    for row in rows:
        redone[row["shape"]] += row["redone"]
        for fault, recovery_s in row["recoveries_s"]:
            times.setdefault(fault, []).append(recovery_s)
    lines = ["| shape | rounds | right | segments redone |", "|---|---:|---:|---:|"]
    lines += [f"| {shape} | {rounds[shape]} | {right[shape]} | {redone[shape]} |" for shape in rounds]
    lines += ["", "| fault | times | measured | median, s | worst, s |", "|---|---:|---:|---:|---:|"]
    lines += [_line(fault, found) for fault, found in sorted(times.items())]
    return "\n".join(lines)


def _line(fault: str, found: list[float | None]) -> str:
    known = [value for value in found if value is not None]
    figures = f"{statistics.median(known):.2f} | {max(known):.2f}" if known else "- | -"
    return f"| {fault} | {len(found)} | {len(known)} | {figures} |"


if __name__ == "__main__":
    sys.exit(main())
