"""Simulated GPUs of models in configs/hardware.toml, machines that have them, and the report of a real H200."""

import json
from dataclasses import replace
from pathlib import Path

from codecfleet.cluster.probes.gpus.hardware import load_hardware
from codecfleet.cluster.probes.node.report import NodeReport, from_json
from codecfleet.cluster.simulated.devices import SimulatedDevice, SimulatedNode
from codecfleet.cluster.simulated.fleet_file import MachineEntry, resolved_machine


def gpu(model: str, uuid: str, **keys: object) -> SimulatedDevice:
    """Return a GPU of a model; ``keys`` are those of a device in a fleet file."""
    machine = MachineEntry.model_validate({"cores": 1, "memory_gib": 1, "devices": [{"model": model, **keys}]})
    found = resolved_machine("node", machine, where="a test", hardware=load_hardware())
    return replace(found.devices[0], uuid=uuid)


def node(*devices: SimulatedDevice, driver: str = "580.159.04") -> SimulatedNode:
    """Return a machine with only these devices."""
    return SimulatedNode(name="node", cores=16, memory_bytes=64 << 30, driver=driver, devices=devices)


def recorded_h200() -> NodeReport:
    """Return the report of a real machine with an H200 and driver 580.159.04."""
    path = Path(__file__).parent / "fixtures" / "h200-580.159.04.json"
    return from_json(json.loads(path.read_text(encoding="utf-8")))
