"""Show that one slow worker does not delay a job: run the job without this worker, with the worker, and with it slowed.

``python benchmarks/stragglers.py --workers 4``; README.md beside this file says what each number means.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from bench.failures import CommandFailed
from bench.local_cluster import LocalCluster, local_cluster
from bench.machine import describe_run, described_lines
from bench.paced_work import FRAME_S, FRAMES
from bench.program import run_in_folder
from bench.table import number, save_results, spread, table_lines

if TYPE_CHECKING:
    import subprocess

PERIOD_S = 0.25
"""The period of the slowing: in each period, a slowed worker stops once and runs once."""


@dataclass(frozen=True)
class Case:
    """One line of the table: how many workers, how many of them slowed, and the percentage of second runs allowed."""

    name: str
    workers: int
    slowed: int
    second_runs: int


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    return run_in_folder(lambda _folder: _compare(options), None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--workers", type=int, default=4, metavar="N", help="nodes of one CPU, a worker each (default: 4)")
    add("--slower", type=int, default=10, metavar="X", help="how many times slower one worker is (default: 10)")
    add("--segments", type=int, default=24, metavar="N", help="of the job (default: 24)")
    add("--repeats", type=int, default=3, metavar="N", help="runs of each case, taking turns (default: 3)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _compare(options: argparse.Namespace) -> None:
    document = describe_run(None)
    for line in described_lines(document):
        print(line)
    cases = (
        Case("without the slow worker", options.workers - 1, 0, 25),
        Case("with that worker at full speed", options.workers, 0, 25),
        Case("with that worker slowed", options.workers, 1, 25),
        Case("with that worker slowed, no second runs", options.workers, 1, 0),
    )
    runs: dict[str, list[dict[str, Any]]] = {case.name: [] for case in cases}
    document |= {"segments": options.segments, "segment_s": FRAMES * FRAME_S, "slower": options.slower, "runs": runs}
    for _ in range(options.repeats):
        for case in cases:
            runs[case.name].append(_run(case, options))
            print(f"{case.name}: {runs[case.name][-1]}", flush=True)
        if options.save:  # saved after every round, because a round takes minutes
            print(f"saved: {save_results(options.save, document)}", flush=True)
    print("\n".join(_lines(cases, runs)))


def _run(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Run a job on a fresh cluster whose workers are up, and return its times."""
    arguments = (str(case.workers), str(options.segments), str(case.second_runs))
    with local_cluster([1] * case.workers) as cluster, cluster.program("paced_job", *arguments) as job:
        _line(job.stdout)
        with _slowed(cluster, case.slowed, options.slower):
            took: dict[str, Any] = json.loads(_answer(job))
    return took


def _answer(job: "subprocess.Popen[str]") -> str:
    if job.stdin is not None:
        job.stdin.write("go\n")
        job.stdin.flush()
    return _line(job.stdout)


def _line(output: IO[str] | None) -> str:
    line = "" if output is None else output.readline()
    if not line:
        raise CommandFailed("the job ended without an answer")
    return line


@contextmanager
def _slowed(cluster: LocalCluster, count: int, slower: int) -> Iterator[None]:
    """Let ``count`` workers run for only 1 / ``slower`` of the time."""
    over = threading.Event()
    workers = cluster.workers()
    pids = [workers[station] for station in sorted(workers)[:count]]
    thread = threading.Thread(target=_slow_down, args=(pids, slower, over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _slow_down(pids: list[int], slower: int, over: threading.Event) -> None:
    while not over.is_set():
        _signal(pids, signal.SIGSTOP)
        over.wait(PERIOD_S * (slower - 1) / slower)
        _signal(pids, signal.SIGCONT)
        over.wait(PERIOD_S / slower)


def _signal(pids: list[int], what: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


def _lines(cases: tuple[Case, ...], runs: dict[str, list[dict[str, Any]]]) -> list[str]:
    base_s = spread([run["makespan_s"] for run in runs[cases[0].name]])["median"]
    rows = []
    for case in cases:
        took = spread([run["makespan_s"] for run in runs[case.name]])
        span = f"{number(took['median'], 1)} ({number(took['least'], 1)} to {number(took['most'], 1)})"
        again = spread([run["second_runs"] for run in runs[case.name]])
        wasted = spread([run["wasted_frames"] for run in runs[case.name]])
        counts = [number(again["median"], 0), number(wasted["median"], 0)]
        rows.append([case.name, str(case.workers), span, number(took["median"] / base_s, 2), *counts])
    return table_lines(["cluster", "workers", "makespan s", "ratio", "second runs", "wasted frames"], rows)


if __name__ == "__main__":
    sys.exit(main())
