"""Time the supervisor's decisions: 2,000 jobs of 20 drivers on 200 nodes with 8 GPUs each, without Ray.

``python benchmarks/supervisor.py``; README.md beside this file says what each number means.
"""

import argparse
import gc
import os
import pickle
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, islice

from bench.busy_supervisor import Busy
from bench.large_fleet import large_fleet
from bench.machine import describe_run, described_lines
from bench.processes import read_memory
from bench.supervised import Driver, World
from bench.table import number, save_results, table_lines

from codecfleet.actors.worker.heartbeat import Heartbeat, speed_between
from codecfleet.cluster.supervisor.status.status import Status, status_of

SEGMENTS_TIMED = 200
BEATS = 1000
SOME = 20
"""How many deaths, reports and ticks each figure averages."""


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    gc.set_threshold(100_000)  # as the supervisor's process
    document = describe_run(None)
    for line in described_lines(document):
        print(line)
    world, sizes = World(large_fleet(options.nodes, options.devices)), Sizes()
    drivers = [Driver(world, f"client-{index:03d}", options.jobs) for index in range(options.clients)]
    rows = _coming(world, drivers, sizes) | _of_changes(world, drivers) | _of_looking(world, sizes)
    _report(world, drivers)
    busy = Busy(world, drivers, options.segment_s).run()
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    document |= {"nodes": options.nodes, "clients": options.clients, "jobs_each": options.jobs}
    document |= {"cpu_s": rows, "busy": busy, "peak_mib": peak_mib, "sizes": sizes.found}
    print(f"\n{options.nodes} nodes x {options.devices} GPUs, {options.clients} drivers x {options.jobs} jobs.\n")
    print("\n".join(table_lines(("CPU seconds for", "each"), [[name, number(row, 4)] for name, row in rows.items()])))
    for name, value in {"peak memory, MiB": peak_mib, **sizes.found, **busy}.items():
        print(f"{name}: {value:.4g}")
    if options.save:
        print(f"\nsaved: {save_results(options.save, document)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--nodes", type=int, default=200, metavar="N", help="machines (default: 200)")
    add("--devices", type=int, default=8, metavar="N", help="GPUs of each (default: 8)")
    add("--clients", type=int, default=20, metavar="N", help="drivers (default: 20)")
    add("--jobs", type=int, default=100, metavar="N", help="jobs of each driver (default: 100)")
    add("--segment-s", type=float, default=30.0, metavar="S", help="how long a segment takes (default: 30)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


class Sizes:
    """The memory of this process and the sizes of messages, each under a name."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        self._held_kib = _held_kib()

    def grown(self, name: str, count: int) -> None:
        """Record the process's growth per item, in KiB, since the last record; ``count`` is the number of items."""
        held_kib = _held_kib()
        self.found[f"KiB for each {name}"] = round((held_kib - self._held_kib) / count, 1)
        self._held_kib = held_kib

    def message(self, name: str, value: object) -> None:
        """Record the size of a message."""
        self.found[f"KiB of {name}"] = round(len(pickle.dumps(value)) / 1024, 1)


def _held_kib() -> float:
    memory = read_memory(os.getpid())
    return 0.0 if memory is None else memory.total_bytes / 1024


def _coming(world: World, drivers: Sequence[Driver], sizes: Sizes) -> dict[str, float]:
    """Return the times until every job has its slots and uses them."""
    rows = {"all nodes join and are probed": _timed(world.join)}
    sizes.grown("node", len(world.nodes))
    rows["all jobs come, and their workers start"] = _timed(partial(_report, world, drivers))
    sizes.grown("job", sum(len(driver.jobs) for driver in drivers))
    _report(world, drivers)
    for driver in drivers:
        driver.take_slots()
    _report(world, drivers)
    return rows


def _report(world: World, drivers: Sequence[Driver]) -> None:
    world.feed([driver.report() for driver in drivers])


def _of_changes(world: World, drivers: Sequence[Driver]) -> dict[str, float]:
    """Return the time of each change while all workers are busy, and the time until everything is placed again."""
    some, one = drivers[:SOME], Driver(world, "one", 1)

    def end_segments(driver: Driver) -> None:
        for _ in range(SEGMENTS_TIMED):
            driver.end_segments(1)
            world.decide(driver.report())

    rows = {
        "a report that repeats the last one": _timed(partial(_report, world, some)) / len(some),
        "a tick": _timed(world.tick_often) / SOME,
        "everything is placed": _timed(world.place) / SOME,
        "a new job comes, and is answered": _timed(lambda: world.feed([one.report()])),
        f"a segment ends at a driver with {len(drivers[0].jobs)} jobs": _timed(lambda: end_segments(drivers[0]))
        / SEGMENTS_TIMED,
        "a segment ends at a driver with 1 job": _timed(lambda: end_segments(one)) / SEGMENTS_TIMED,
    }
    world.place(1)
    dying = world.working()[:SOME]
    rows["a worker dies, and its work is placed again"] = _timed(lambda: world.die(dying)) / len(dying)
    return rows


def _of_looking(world: World, sizes: Sizes) -> dict[str, float]:
    """Return the times of heartbeats and of a status, without the time that Ray takes."""
    beat = Heartbeat(7, tuple((f"job-{number}", f"segment {number}") for number in range(8)), 8)

    def beats() -> None:
        for before, after in zip(range(BEATS), islice(cycle((1, 2)), BEATS), strict=True):
            now: Heartbeat = pickle.loads(pickle.dumps(replace(beat, frames_done=before + after)))
            speed_between(beat, now, 2.0)

    def status() -> Status:
        found: Status = pickle.loads(pickle.dumps(status_of(world.core.state, {}, (), world.now_s)))
        return found

    sizes.message("a status", status())
    sizes.message("a heartbeat", beat)
    return {f"{BEATS} heartbeats": _timed(beats), "a status": _timed(status)}


def _timed(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


if __name__ == "__main__":
    sys.exit(main())
