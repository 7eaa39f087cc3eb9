"""Time placement: 1,000 nodes with 8 GPUs each, and 10,000 segments, of one job and of a hundred.

``python benchmarks/placement.py``; README.md beside this file says what each number means.
"""

import argparse
import gc
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from bench.machine import describe_run, described_lines
from bench.table import Spread, number, save_results, spread, table_lines

from codecfleet.cluster.placement.assign.assignment import place
from codecfleet.cluster.placement.model.demand import Demand, EncoderChoice, Rendition
from codecfleet.cluster.placement.model.inventory import Device, Inventory, Node
from codecfleet.cluster.placement.model.placement import Placement
from codecfleet.cluster.placement.model.policy import Policy
from codecfleet.cluster.placement.rates import start_rates
from codecfleet.cluster.probes.gpus.hardware import load_hardware
from codecfleet.cluster.probes.report.device_report import DeviceKind
from codecfleet.cluster.probes.report.engines import CodecCase, Direction, Engine, MediaCodec

MODELS = ("H200", "L40S", "L4", "A100 80GB")
SEGMENT_FRAMES = 3000
CORES = 96


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    options = _parser().parse_args()
    document = describe_run(None)
    for line in described_lines(document):
        print(line)
    inventory = _inventory(options.nodes, options.devices)
    rows, placed = {}, {}
    for name, (demands, policy) in _cases(options.segments).items():
        runs = [_timed(demands, inventory, policy) for _ in range(options.repeats)]
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


def _inventory(nodes: int, devices: int) -> Inventory:
    samples = [_sample(model) for model in MODELS]
    return Inventory(
        tuple(_node(f"node-{index:04d}", samples[index % len(samples)], devices) for index in range(nodes))
    )


def _sample(model: str) -> Device:
    hardware = load_hardware()
    entry = hardware.gpus[model]
    return Device(
        device="",
        node="",
        kind=DeviceKind.GPU,
        name=entry.names[0],
        engines=dict(entry.engines),
        trials=hardware.trials_of(entry.names[0], entry, entry.engines),
        architecture=entry.architecture,
        driver_branch="580",
        free_memory_bytes=entry.memory_mib << 20,
    )


def _node(name: str, sample: Device, devices: int) -> Node:
    gpus = [replace(sample, device=f"{name}/gpu{index}", node=name) for index in range(devices)]
    processor = Device(
        device=f"{name}/cpu", node=name, kind=DeviceKind.CPU, name="processor", engines={Engine.CPU: CORES}
    )
    return Node(node=name, name=name, devices=(*gpus, processor), memory_bytes=1 << 40)


def _cases(segments: int) -> dict[str, tuple[Sequence[Demand], Policy]]:
    hundred = [_demand(f"job-{index:03d}", segments // 100) for index in range(100)]
    return {
        "one job, any encoder": ([_demand("job", segments)], Policy()),
        "one job, software": ([_demand("job", segments, EncoderChoice.SOFTWARE)], Policy()),
        "a hundred jobs, any encoder": (hundred, Policy()),
        "one job, processors alone": ([_demand("job", segments)], Policy(engines=frozenset({Engine.CPU}))),
    }


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
