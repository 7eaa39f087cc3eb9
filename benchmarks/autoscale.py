"""Play days of arriving jobs on up to 1,000 simulated nodes, to measure the autoscaler.

``python benchmarks/autoscale.py``; README.md beside this file says what each number means.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.arrivals import days
from bench.day_plot import plot
from bench.demand_day import Arrival, Cluster, Day, Kind, least_cost
from bench.machine import describe_run, described_lines
from bench.table import number, save_results, table_lines

from codecfleet.cluster.autoscale.config import AutoscaleConfig, load_autoscale
from codecfleet.cluster.autoscale.speeds import Speeds
from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, Rendition
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, MediaCodec

FILE = Path(__file__).resolve().parents[1] / "configs" / "autoscale.toml"
NODES = {"cpu": 700, "g6": 200, "g6e": 60, "g5": 39, "p5": 1}
UNTIL_S = 10 * 86_400.0


def main() -> int:
    """Run the benchmark with the options of the command line; return the exit code."""
    options = _parser().parse_args()
    document = describe_run(None)
    for line in described_lines(document):
        print(line)
    config = large_config()
    kinds = kinds_of(config)
    rows = {}
    for name, arrivals in days(sorted(kinds), options.jobs, options.segments).items():
        jobs = arrivals()
        began = time.perf_counter()
        day = Cluster(config, kinds, options.look_seconds).run(jobs, UNTIL_S)
        rows[name] = figures(day, config, kinds, jobs) | {"wall_s": round(time.perf_counter() - began, 1)}
        print(f"{name}: {rows[name]['wall_s']} s", file=sys.stderr)
        if options.plot and name == "daily wave":
            title = f"Nodes wanted over a day with {len(jobs)} jobs"
            options.plot.write_text(plot(day, list(NODES), title), encoding="utf-8")
    print("\n" + "\n".join(_lines(rows)))
    if options.save:
        document |= {"jobs": options.jobs, "segments": options.segments, "days": rows}
        print(f"\nsaved: {save_results(options.save, document)}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--jobs", type=int, default=1000, metavar="N", help="approximate number of jobs per day (default: 1000)")
    add("--segments", type=int, default=900, metavar="N", help="approximate number of segments per job (default: 900)")
    add("--look-seconds", type=float, default=30.0, metavar="S", help="time between decisions (default: 30)")
    add("--plot", type=Path, metavar="FILE.svg", help="also draw the nodes over the day with a wave of load")
    add("--save", metavar="NAME", help="also write benchmarks/results/NAME.json")
    return parser


def large_config() -> AutoscaleConfig:
    """Return the example configuration with at most 1,000 nodes, no price limit, and an hour for each job."""
    config = load_autoscale(FILE)
    groups = tuple(replace(group, nodes_max=NODES[group.name]) for group in config.groups)
    return replace(
        config, groups=groups, nodes_max=sum(NODES.values()), finish_within_s=3600.0, price_per_hour_max=None
    )


def kinds_of(config: AutoscaleConfig) -> dict[str, Kind]:
    """Return kinds of work at documented speeds: 1080p to HEVC and H.264, in software and on the cheapest device."""
    rates = start_rates()
    speeds = Speeds(config, lambda demands, inventory: place(demands, inventory, rates, Policy()))
    kinds = {}
    for name, codec, library, encoder in (
        ("x265", MediaCodec.HEVC, "libx265", EncoderChoice.SOFTWARE),
        ("x264", MediaCodec.H264, "libx264", EncoderChoice.SOFTWARE),
        ("HEVC, any", MediaCodec.HEVC, "libx265", EncoderChoice.AUTO),
    ):
        track = Rendition(case=CodecCase(codec, Direction.ENCODE), width=1920, height=1080, software=library)
        demand = Demand(
            job=name,
            segments=(3000,),
            decode=CodecCase(MediaCodec.H264, Direction.DECODE),
            width=1920,
            height=1080,
            renditions=(track,),
            encoder=encoder,
        )
        work = speeds.work_of(speeds.with_encoder(demand, 0.0), 0.0, 0.0)
        kinds[name] = Kind(work.fps, work.sessions)
    return kinds


def figures(
    day: Day, config: AutoscaleConfig, kinds: dict[str, Kind], jobs: Sequence[Arrival]
) -> dict[str, float | int | list[str]]:
    """Return the figures of a day."""
    promised = [number for number, job in enumerate(sorted(jobs, key=lambda job: job.at_s)) if job.within_s is not None]
    least = least_cost(config, kinds, jobs)
    return {
        "jobs": len(jobs),
        "ended": len(day.finished),
        "nodes_most": day.most,
        "starts": day.starts,
        "turns_an_hour_most": max(day.changes_of_direction(group.name) for group in config.groups),
        "cost": round(day.cost, 2),
        "least_cost": round(least, 2),
        "cost_ratio": round(day.cost / least, 3),
        "promised": len(promised),
        "promised_late": sum(day.late.get(number, 1.0) > 0 for number in promised),
        "late_s_most": round(max((day.late.get(number, UNTIL_S) for number in promised), default=0.0)),
        "nodes_left": sum(day.counts[-1][1].values()),
        "broken": day.broken,
        "decide_ms": round(1000 * day.decide_s / max(1, day.looks), 2),
    }


def _lines(rows: dict[str, dict[str, float | int | list[str]]]) -> list[str]:
    keys = (
        "jobs",
        "ended",
        "nodes_most",
        "starts",
        "turns_an_hour_most",
        "promised",
        "promised_late",
        "late_s_most",
        "nodes_left",
    )
    cells = [
        [
            name,
            *(str(row[key]) for key in keys),
            *(number(float(str(row[key])), 2) for key in ("cost", "least_cost", "cost_ratio", "decide_ms")),
        ]
        for name, row in rows.items()
    ]
    heads = ("day", "jobs", "ended", "most nodes", "starts", "turns/h", "promised", "late", "late s at most", "left")
    return table_lines((*heads, "cost", "least", "ratio", "ms a decision"), cells)


if __name__ == "__main__":
    sys.exit(main())
