"""Time placement: 1,000 nodes with 8 GPUs each, and 10,000 segments of one job and of a hundred jobs.

``python benchmarks/placement.py``; README.md beside this file says what each number means.
"""

import argparse
import gc
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from bench.large_fleet import large_fleet
from bench.machine import describe_run, described_lines
from bench.table import Spread, number, save_results, spread, table_lines

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, Rendition
from codecfleet.cluster.placement.model.inventory import Inventory
from codecfleet.cluster.placement.model.placement import Placement
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, MediaCodec

SEGMENT_FRAMES = 3000
FULL_NODES = 20


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    gc.set_threshold(10_000)  # set as in the processes that place work
    document = describe_run(None)
    for line in described_lines(document):
        print(line)
    inventory = Inventory(large_fleet(options.nodes, options.devices))
    full = Inventory(inventory.nodes[:FULL_NODES])
    rows, placed = {}, {}
    for name, (demands, policy, on_full) in _cases(options.segments).items():
        where = full if on_full else inventory
        runs = [_timed(demands, where, policy) for _ in range(options.repeats)]
        rows[name] = spread([seconds for seconds, _ in runs])
        placed[name] = sum(lane.sessions for lane in runs[0][1].lanes)
    size = {"nodes": options.nodes, "devices_per_node": options.devices, "segments": options.segments}
    document |= size | {"place_s": rows, "sessions": placed}
    print(
        f"\n{options.nodes} nodes x {options.devices} GPUs, {options.segments} segments; {options.repeats} runs each.\n"
    )
    print("\n".join(_lines(rows, placed)))
    if options.save:
        print(f"\nsaved: {save_results(options.save, document)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--nodes", type=int, default=1000, metavar="N", help="machines (default: 1000)")
    add("--devices", type=int, default=8, metavar="N", help="GPUs of each (default: 8)")
    add("--segments", type=int, default=10_000, metavar="N", help="segments of all jobs together (default: 10000)")
    add("--repeats", type=int, default=5, metavar="N", help="runs of each (default: 5)")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def _cases(segments: int) -> dict[str, tuple[Sequence[Demand], Policy, bool]]:
    hundred = [_demand(f"job-{index:03d}", segments // 100) for index in range(100)]
    return {
        "one job, any encoder": ([_demand("job", segments)], Policy(), False),
        "one job, software": ([_demand("job", segments, EncoderChoice.SOFTWARE)], Policy(), False),
        "a hundred jobs, any encoder": (hundred, Policy(), False),
        "one job, only CPUs": ([_demand("job", segments)], Policy(engines=frozenset({Engine.CPU})), False),
        f"400 different jobs, {FULL_NODES} nodes": (_different(EncoderChoice.AUTO), Policy(), True),
        f"400 only on NVENC, {FULL_NODES} full nodes": (
            _different(EncoderChoice.NVENC),
            Policy(sessions_per_device=1),
            True,
        ),
    }


def _different(encoder: EncoderChoice) -> list[Demand]:
    """Return jobs that all differ, so that placement cannot reuse the results of one job for another."""
    found = []
    for index in range(400):
        demand, width = _demand(f"job-{index:03d}", 25, encoder), 1920 + 2 * index
        tracks = tuple(replace(each, width=width) for each in demand.renditions)
        found.append(replace(demand, width=width, renditions=tracks))
    return found


def _demand(job: str, segments: int, encoder: EncoderChoice = EncoderChoice.AUTO) -> Demand:
    track = Rendition(case=CodecCase(MediaCodec.HEVC, Direction.ENCODE), width=1920, height=1080, software="libx265")
    return Demand(
        job=job,
        segments=(SEGMENT_FRAMES,) * segments,
        decode=CodecCase(MediaCodec.H264, Direction.DECODE),
        width=1920,
        height=1080,
        renditions=(track,),
        encoder=encoder,
    )


def _timed(demands: Sequence[Demand], inventory: Inventory, policy: Policy) -> tuple[float, Placement]:
    rates = start_rates()
    gc.collect()
    began = time.perf_counter()
    placement = place(demands, inventory, rates, policy)
    return time.perf_counter() - began, placement


def _lines(rows: dict[str, Spread], placed: dict[str, int]) -> list[str]:
    figures = [
        [name, *(number(row[key], 3) for key in ("median", "least", "most")), str(placed[name])]
        for name, row in rows.items()
    ]
    return table_lines(("seconds for", "median", "least", "most", "sessions"), figures)


if __name__ == "__main__":
    sys.exit(main())
