"""Any number of simulated machines, with GPUs of four models in turn."""

from dataclasses import replace

from codecfleet.cluster.placement.model.inventory import Device, Node
from codecfleet.cluster.probes.gpus.hardware import load_hardware
from codecfleet.cluster.probes.report.device_kinds import DeviceKind
from codecfleet.cluster.probes.report.engines import Engine
from codecfleet.cluster.worker_names import NodeId

MODELS = ("H200", "L40S", "L4", "A100 80GB")
CORES = 96


def large_fleet(nodes: int, gpus: int) -> tuple[Node, ...]:
    """Return idle nodes with the given number of GPUs each."""
    samples = [_sample(model) for model in MODELS]
    return tuple(_node(NodeId(f"node-{index:04d}"), samples[index % len(samples)], gpus) for index in range(nodes))


def _sample(model: str) -> Device:
    hardware = load_hardware()
    entry = hardware.gpus[model]
    return Device(
        device="",
        node=NodeId(""),
        kind=DeviceKind.GPU,
        name=entry.names[0],
        engines=dict(entry.engines),
        trials=hardware.trials_of(entry.names[0], entry, entry.engines),
        architecture=entry.architecture,
        driver="580",
        free_memory_bytes=entry.memory_mib << 20,
    )


def _node(name: NodeId, sample: Device, gpus: int) -> Node:
    found = [replace(sample, device=f"{name}/gpu{index}", node=name) for index in range(gpus)]
    processor = Device(
        device=f"{name}/cpu", node=name, kind=DeviceKind.CPU, name="processor", engines={Engine.CPU: CORES}
    )
    return Node(node=name, name=name, devices=(*found, processor), memory_bytes=1 << 40)
