"""The media table: every file of the shared footage, encoded by the real product and proven by ``verify``.

``make media`` prints it and writes media-output/table.json; it exits with 1 if an output is neither exact nor rightly
refused. A failed check that no warning in the job's report names is unexplained: a silent loss. README.md describes how
cases are chosen and how to read the table.
"""

import argparse
import asyncio
import fnmatch
import json
import sys
import textwrap
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from codecfleet.errors import CodecfleetError
from codecfleet.jobs.fleet import Fleet
from codecfleet.jobs.verify.job import verify
from codecfleet.testing import LocalPool

if TYPE_CHECKING or __package__:
    from .cases import SHORT, Case, assigned, everything
else:
    from cases import SHORT, Case, assigned, everything

if TYPE_CHECKING:
    from codecfleet.jobs.report.report import Report
    from codecfleet.jobs.verify.job import Verdict

REPOSITORY = Path(__file__).resolve().parents[2]
FOOTAGE = REPOSITORY.parent / "shared" / "media"
OUTPUT = REPOSITORY / "media-output"
DOCUMENT = REPOSITORY / "tests" / "media" / "README.md"
RESULTS = "## Results\n"
NOT_FOOTAGE = frozenset({"MANIFEST.json", "reserved.bin"})
CASE_LIMIT_S = 900
"""Longer than any case takes on two busy cores; a case that takes longer hangs."""


class Outcome(StrEnum):
    """The result of a case."""

    EXACT = "exact"
    REFUSED = "refused"
    """The expected error came."""
    DIFFERENT = "DIFFERENT"
    """There is an output, but ``verify`` fails it."""
    WRONG = "WRONG"
    """A wrong refusal, or an output although none can be right."""
    CRASHED = "CRASHED"
    """An error that is not one of codecfleet's was raised."""
    HUNG = "HUNG"

    @property
    def is_right(self) -> bool:
        """Whether the case ended as it should."""
        return self in (Outcome.EXACT, Outcome.REFUSED)


@dataclass(slots=True, kw_only=True)
class Row:
    """One line of the table."""

    file: str
    case: str
    outcome: Outcome = Outcome.EXACT
    story: str = ""
    frames: int = 0
    segments: int = 0
    moved_cuts: int = 0
    checks: int = 0
    declared: list[str] = field(default_factory=list)
    failures: list[dict[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    psnr_y_min_db: float | None = None
    output_sha256: str = ""
    transcode_s: float = 0.0
    verify_s: float = 0.0


async def run_case(fleet: Fleet, case: Case, *, footage: Path, output: Path, keep: bool = False) -> Row:
    """Run one case on ``fleet`` and return its row, which also holds any failure."""
    row = Row(file=case.source, case=case.name)
    path = output / case.output_name
    try:
        async with asyncio.timeout(CASE_LIMIT_S):
            await _run(fleet, case, row, footage, path)
    except TimeoutError:
        row.outcome, row.story = Outcome.HUNG, f"not done after {CASE_LIMIT_S} s"
    except CodecfleetError as error:
        _judge_refusal(row, case, error)
    except Exception as error:  # noqa: BLE001 - one case that crashes must not hide the others
        row.outcome, row.story = Outcome.CRASHED, f"{type(error).__name__}: {error}"
        row.failures = [{"traceback": traceback.format_exc()}]
    if not keep:
        path.unlink(missing_ok=True)
        _report_path(path).unlink(missing_ok=True)
    return row


async def _run(fleet: Fleet, case: Case, row: Row, footage: Path, path: Path) -> None:
    began = time.monotonic()
    job = await fleet.transcode(case.spec(str(footage), str(path)))
    try:
        report = await job
    except asyncio.CancelledError:
        await job.cancel()
        raise
    row.transcode_s = round(time.monotonic() - began, 2)
    _note_report(row, report)
    if case.refusal is not None:
        row.outcome, row.story = Outcome.WRONG, f"not refused, although {case.refusal.why}"
        return
    _report_path(path).write_text(report.model_dump_json())
    source, told = f"{footage}/{case.source}", str(_report_path(path))
    _note_verdict(row, await asyncio.to_thread(verify, source, str(path), report=told))


def _report_path(output: Path) -> Path:
    return output.with_name(f"{output.name}.report.json")


def _note_report(row: Row, report: "Report") -> None:
    row.frames = report.frames
    row.segments = len(report.segments)
    row.moved_cuts = sum(segment.entry_moves for segment in report.segments)
    row.warnings = [f"{warning.code}: {warning.message}" for warning in report.warnings]
    row.output_sha256 = report.proof.output_sha256


def _note_verdict(row: Row, verdict: "Verdict") -> None:
    row.verify_s = verdict.wall_s
    row.checks = sum(check.passed is not None for check in verdict.checks)
    row.declared = [check.name for check in verdict.checks if check.passed is False and not check.failed]
    row.psnr_y_min_db = None if verdict.pictures is None else verdict.pictures.psnr_y_min_db
    if not verdict.exact:
        row.outcome = Outcome.DIFFERENT
        row.failures = [check.model_dump(mode="json") for check in verdict.failures]
        row.story = "; ".join(f"{c.name}: {c.expected} / {c.found}" for c in verdict.failures[:2])


def _judge_refusal(row: Row, case: Case, error: CodecfleetError) -> None:
    name = type(error).__name__
    expected = case.refusal
    if expected is not None and expected.error == name:
        row.outcome, row.story = Outcome.REFUSED, f"{name}, as {expected.why}"
    else:
        row.outcome, row.story = Outcome.WRONG, f"{name}: {error}"


async def run_cases(fleet: Fleet, cases: Sequence[Case], *, output: Path, jobs: int, keep: bool) -> list[Row]:
    """Run ``cases``, several at a time, printing each as it ends; return the rows in the order of the cases."""
    at_once = asyncio.Semaphore(jobs)
    console = Console(width=200, highlight=False)

    async def one(case: Case) -> Row:
        async with at_once:
            row = await run_case(fleet, case, footage=FOOTAGE, output=output, keep=keep)
        _print(console, row)
        return row

    rows = await asyncio.gather(*(one(case) for case in cases))
    counts = Counter(row.outcome.value for row in rows)
    console.print(f"{len(rows)} cases: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    console.print(summary(rows))
    return rows


def summary(rows: Sequence[Row]) -> str:
    """Return how many outputs differ from their source, and how many failed checks no warning names."""
    different = sum(row.outcome is Outcome.DIFFERENT for row in rows)
    unexplained = sum(len(row.failures) for row in rows if row.outcome is Outcome.DIFFERENT)
    return f"{different} different, {unexplained} unexplained"


def _print(console: Console, row: Row) -> None:
    colour = "green" if row.outcome.is_right else "red"
    declared = f"declared: {', '.join(row.declared)}" if row.declared else ""
    seconds = f"{row.transcode_s:6.1f} + {row.verify_s:5.1f} s"
    numbers = f"{row.frames:5d} frames {row.segments:4d} segments {seconds}"
    story = escape((row.story or declared)[:400])
    console.print(f"{row.file:50} {row.case:19} {numbers} [{colour}]{row.outcome:9}[/] {story}", soft_wrap=True)


def write_document(path: Path, rows: Sequence[Row]) -> None:
    """Replace the results in the document at ``path``; files whose outputs are all unchanged share a line."""
    by_file: dict[str, list[Row]] = {}
    for row in rows:
        by_file.setdefault(row.file, []).append(row)
    unchanged = {
        name: group
        for name, group in by_file.items()
        if all(row.outcome is Outcome.EXACT and not row.declared for row in group)
    }
    counts = Counter(row.outcome.value for row in rows)
    summary = f"{len(rows)} cases: " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + "."
    frames = sum(group[0].frames for group in unchanged.values())
    summary += f" All outputs of {len(unchanged)} files with {frames:,} frames are exact and unchanged."
    summary += " The others (1s: a cut every second):"
    lines = [
        f"| {name} | {group[0].frames or '-'} | {'; '.join(map(_cell, group))} |"
        for name, group in by_file.items()
        if name not in unchanged
    ]
    table = ["| file | frames | outputs |", "|---|---|---|", *lines]
    head, _, _ = path.read_text().partition(RESULTS)
    path.write_text("\n".join([head + RESULTS, *textwrap.wrap(summary, 120), "", *table, ""]))


def _cell(row: Row) -> str:
    segments = f", {row.segments} segments" if row.segments > 1 else ""
    changed = f", changed as announced: {', '.join(row.declared)}" if row.declared else ""
    return f"{row.case}: {row.outcome}{segments}{changed}"


def footage_names() -> list[str]:
    """Return the names of the footage, sorted."""
    return sorted(path.name for path in FOOTAGE.iterdir() if path.name not in NOT_FOOTAGE)


def _chosen(options: argparse.Namespace) -> list[Case]:
    cases: Iterable[Case] = assigned(footage_names())
    if options.short:
        cases = SHORT.values()
    elif options.all:
        cases = everything(footage_names())
    pattern = f"*{options.only or ''}*"
    return [case for case in cases if fnmatch.fnmatch(f"{case.source} {case.name}", pattern)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Transcode and verify every file of the shared footage.")
    parser.add_argument("--only", metavar="GLOB", help="only cases whose 'FILE CODEC CONTAINER' has this in it")
    parser.add_argument("--short", action="store_true", help="the short form: a few small files")
    parser.add_argument("--all", action="store_true", help="every file in every codec and container (hours)")
    parser.add_argument("--keep", action="store_true", help="keep the outputs and their reports")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="cases at a time (2)")
    parser.add_argument("--workers", type=int, metavar="N", help="segments in flight in all; by default, what fits")
    parser.add_argument("--ray", action="store_true", help="on a private Ray, as codecfleet does by itself")
    parser.add_argument("--document", action="store_true", help="write the result into tests/media/README.md")
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="DIR", help="where outputs and table.json go")
    return parser.parse_args()


async def _main(options: argparse.Namespace) -> int:
    cases = _chosen(options)
    await asyncio.to_thread(options.output.mkdir, parents=True, exist_ok=True)
    # Threads of this process do the same work as Ray's workers, and start at once.
    pool = None if options.ray else LocalPool(options.workers or options.jobs)
    async with Fleet(pool=pool, workers=options.workers, jobs_at_once=options.jobs) as fleet:
        rows = await run_cases(fleet, cases, output=options.output, jobs=options.jobs, keep=options.keep)
    document = {"schema": 1, "rows": [asdict(row) for row in rows]}
    await asyncio.to_thread((options.output / "table.json").write_text, json.dumps(document, indent=1))
    if options.document:
        await asyncio.to_thread(write_document, DOCUMENT, rows)
    return 0 if rows and all(row.outcome.is_right for row in rows) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(_arguments())))
