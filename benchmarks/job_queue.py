"""Measure a queue that holds many jobs: the time of each call of its store, in SQLite and in PostgreSQL.

``python benchmarks/job_queue.py --url postgresql://HOST/NAME``; README.md beside this file says what is measured.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
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


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
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
    document |= {"jobs": options.jobs, "ms": {}}
    for name, place in (("SQLite", str(folder / "queue.sqlite")), *(("PostgreSQL", url) for url in options.url)):
        store = open_store(place, makes=True)
        if store.jobs():
            raise CommandFailed(f"the queue {place} has jobs: name an empty database")
        document["ms"][name] = rows = dict(_times_ms(store, options.jobs))
        store.close()
        heads = (f"{name}, {options.jobs} jobs: milliseconds for", "median", "99 %", "most", "calls")
        print("\n".join(("", *table_lines(heads, [[row, *map(_shown, spread)] for row, spread in rows.items()]))))
        if options.save:
            print(f"saved: {save_results(options.save, document)}", flush=True)


def _shown(value: float) -> str:
    return number(value, 0 if isinstance(value, int) else 2)


def _times_ms(store: JobStore, jobs: int) -> Iterator[tuple[str, list[float]]]:
    """Yield the times of each call: median, 99 %, maximum, and the number of calls."""
    yield "submit a job", _spread_ms([partial(_submit, store, number) for number in range(jobs)])
    claimed: list[QueuedJob] = []

    def claim() -> None:
        claimed.extend(store.claim("driver", AT_ONCE, LEASE_S))

    yield f"claim {AT_ONCE} jobs", _spread_ms([claim] * CALLS)
    yield "renew a claim", _spread_ms([partial(store.renew, [job.claim], LEASE_S) for job in claimed])
    yield "keep 1 KiB of output", _spread_ms([partial(store.append, job.claim, "x" * 1024) for job in claimed[:CALLS]])
    ended = claimed[: len(claimed) // 2]
    yield "end a job", _spread_ms([partial(store.end, job.claim, RunEnd(0)) for job in ended])
    yield "show a job", _spread_ms([partial(store.job, job.job_id) for job in claimed[:CALLS]])
    yield "change a priority", _spread_ms([partial(store.prioritize, f"job-{jobs - n}", n) for n in range(1, SOME)])
    yield "list all jobs", _spread_ms([store.jobs] * SOME)
    yield "list the running jobs", _spread_ms([partial(store.jobs, (QueueState.RUNNING,))] * SOME)
    yield "count the jobs, for metrics", _spread_ms([store.figures] * SOME)
    yield "list the tenants", _spread_ms([store.tenants] * SOME)
    yield "usage by tenant", _spread_ms([store.usage] * SOME)
    yield "usage by job", _spread_ms([partial(store.usage, by_job=True)] * SOME)


def _submit(store: JobStore, number: int) -> None:
    command = QueuedCommand(("transcode", f"/films/{number}.mkv", f"/films/{number}.mp4"), "/films")
    tenant = f"tenant-{number % TENANTS}"
    store.submit(f"job-{number}", command, tenant=tenant, priority=number % 3, due_in_s=None)


def _spread_ms(calls: Sequence[Callable[[], object]]) -> list[float]:
    took_ms = []
    for call in calls:
        began_s = time.perf_counter()
        call()
        took_ms.append(1000 * (time.perf_counter() - began_s))
    return [*(round(value, 3) for value in parts(took_ms)), len(took_ms)]


if __name__ == "__main__":
    sys.exit(main())
