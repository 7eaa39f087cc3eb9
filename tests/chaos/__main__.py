"""``make chaos``: seeded rounds of faults during real jobs; exits with 1 if any did not end as promised."""

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from .places import place_of
from .rounds import Attack, Film, Result, round_folder
from .schedule import Round, Shape, round_of


def main() -> int:
    """Run the rounds, print a line for each and the table of recovery times, write the report."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seeds", default="0-299", help="first-last, or one seed (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="write a JSON report there")
    parser.add_argument("--limit-s", type=float, help="start no round after this many seconds")
    asked = parser.parse_args()
    first, _, last = asked.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    until_s = time.monotonic() + (asked.limit_s or float("inf"))
    results = []
    with tempfile.TemporaryDirectory() as folder:
        film = Film.make(Path(folder))
        for shape in Shape:
            plans = [plan for plan in map(round_of, seeds) if plan.shape is shape]
            results += _rounds(plans, film, until_s) if plans else []
    print(table(results))
    wrong = sum(bool(result.problems) for result in results)
    print(f"{len(results)} rounds: {len(results) - wrong} right endings, {wrong} wrong")
    if asked.output is not None:
        report = {
            "machine": platform.platform(),
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "command": " ".join(["make chaos CHAOS='", *sys.argv[1:], "'"]),
            "rounds": [result.to_json() for result in results],
        }
        asked.output.write_text(json.dumps(report, indent=1) + "\n")
    return bool(wrong)


def _rounds(plans: Sequence[Round], film: Film, until_s: float) -> Iterator[Result]:
    """Run rounds of one shape, one after the other."""
    with place_of(plans[0].shape) as place:
        for plan in plans:
            if time.monotonic() > until_s:
                return
            with round_folder() as folder:
                result = Attack(plan, place, film, folder).run()
            _print_round(result)
            yield result
            place.restore()


def table(results: list[Result]) -> str:
    """Return how long lost work waited after each kind of fault, as a table for the documentation."""
    times: dict[str, list[float | None]] = {}
    for result in results:
        for fault, recovery_s in result.recoveries_s:
            times.setdefault(fault, []).append(recovery_s)
    lines = ["| fault | times | with work lost | median, s | worst, s |", "|---|---:|---:|---:|---:|"]
    for fault, found in sorted(times.items()):
        known = [value for value in found if value is not None]
        figures = f"{statistics.median(known):.2f} | {max(known):.2f}" if known else "- | -"
        lines.append(f"| {fault} | {len(found)} | {len(known)} | {figures} |")
    return "\n".join(lines)


def _print_round(result: Result) -> None:
    plan = result.round
    faults = "; ".join(f"{strike.fault.value} after {strike.after_segments}" for strike in plan.strikes)
    verdict = "right" if not result.problems else f"WRONG: {' / '.join(result.problems)}"
    print(
        f"{plan.seed:4} {plan.shape.value:12} {faults}{'; a job beside' if plan.beside else ''}:"
        f" redone {result.redone} of {result.allowed} allowed, {result.wall_s:.0f} s, {verdict}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
