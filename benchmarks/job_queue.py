"""Measure a queue that holds many jobs: the time of each call of its store, in SQLite and in PostgreSQL.

``python benchmarks/job_queue.py --url postgresql://HOST/NAME``; README.md beside this file says what is measured.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.failures import CommandFailed
from bench.machine import describe_run, described_lines
from bench.program import run_in_folder
from bench.table import number, parts, save_results, table_lines

from codecfleet.cluster.queue.driver import AT_ONCE
from codecfleet.cluster.queue.places import open_store
from codecfleet.cluster.queue.store import JobStore
from codecfleet.cluster.queue.values import QueuedCommand, QueuedJob, QueueState, RunEnd

CALLS: Final = 200
SOME: Final = 20
"""How often calls are timed: those that concern few jobs, and those that may concern all."""
LEASE_S: Final = 3600.0
TENANTS: Final = 10


@dataclass(frozen=True, slots=True)
class CallTimes:
    """How long the calls of one kind took, in milliseconds."""

    median_ms: float
    percentile_99_ms: float
    most_ms: float
    calls: int

    def cells(self) -> list[str]:
        """Return the cells of the table's row."""
        times_ms = self.median_ms, self.percentile_99_ms, self.most_ms
        return [*(number(each, 2) for each in times_ms), str(self.calls)]


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    parser = _parser()
    options = parser.parse_args()
    if options.jobs < SOME:
        parser.error(f"--jobs: give {SOME} or more")
    return run_in_folder(lambda folder: _measure(options, folder), options.work)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--jobs", type=int, default=10_000, metavar="N", help="jobs in the queue (default: 10000)")
    add("--url", action="append", default=[], metavar="URL", help="an empty PostgreSQL database; may be repeated")
    add("--work", type=Path, metavar="DIR", help="the folder for SQLite's file (default: a temporary one)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _measure(options: argparse.Namespace, folder: Path) -> None:
    document = describe_run(None)
    for line in described_lines(document):
        print(line)
    document |= {"jobs": options.jobs, "calls": {}}
    for name, place in (("SQLite", str(folder / "queue.sqlite")), *(("PostgreSQL", url) for url in options.url)):
        with closing(open_store(place, makes=True)) as store:
            if store.jobs():
                raise CommandFailed(f"the queue {place} has jobs: name an empty database")
            rows = dict(_call_times(store, options.jobs))
        document["calls"][name] = {row: asdict(times) for row, times in rows.items()}
        heads = (f"{name}, {options.jobs} jobs: milliseconds for", "median", "99 %", "most", "calls")
        print("\n".join(("", *table_lines(heads, [[row, *times.cells()] for row, times in rows.items()]))))
        if options.save:
            print(f"saved: {save_results(options.save, document)}", flush=True)


def _call_times(store: JobStore, jobs: int) -> Iterator[tuple[str, CallTimes]]:
    """Yield the name and the times of each call."""
    yield "submit a job", _timed([partial(_submit, store, number) for number in range(jobs)])
    claimed: list[QueuedJob] = []

    def claim() -> None:
        claimed.extend(store.claim("driver", AT_ONCE, LEASE_S))

    yield f"claim {AT_ONCE} jobs", _timed([claim] * CALLS)
    yield "renew a claim", _timed([partial(store.renew, [job.claim], LEASE_S) for job in claimed])
    yield "keep 1 KiB of output", _timed([partial(store.append, job.claim, "x" * 1024) for job in claimed[:CALLS]])
    ended = claimed[: len(claimed) // 2]
    yield "end a job", _timed([partial(store.end, job.claim, RunEnd(0)) for job in ended])
    yield "show a job", _timed([partial(store.job, job.job_id) for job in claimed[:CALLS]])
    yield "change a priority", _timed([partial(store.prioritize, f"job-{jobs - n}", n) for n in range(1, SOME)])
    yield "list all jobs", _timed([store.jobs] * SOME)
    yield "list the running jobs", _timed([partial(store.jobs, (QueueState.RUNNING,))] * SOME)
    yield "count the jobs, for metrics", _timed([store.figures] * SOME)
    yield "list the tenants", _timed([store.tenants] * SOME)
    yield "usage by tenant", _timed([store.usage] * SOME)
    yield "usage by job", _timed([partial(store.usage, by_job=True)] * SOME)


def _submit(store: JobStore, number: int) -> None:
    command = QueuedCommand(("transcode", f"/films/{number}.mkv", f"/films/{number}.mp4"), "/films")
    tenant = f"tenant-{number % TENANTS}"
    store.submit(f"job-{number}", command, tenant=tenant, priority=number % 3, due_in_s=None)


def _timed(calls: Sequence[Callable[[], object]]) -> CallTimes:
    took_ms = []
    for call in calls:
        began_s = time.perf_counter()
        call()
        took_ms.append(1000 * (time.perf_counter() - began_s))
    median_ms, percentile_99_ms, most_ms = (round(value, 3) for value in parts(took_ms))
    return CallTimes(median_ms, percentile_99_ms, most_ms, len(took_ms))


if __name__ == "__main__":
    sys.exit(main())
