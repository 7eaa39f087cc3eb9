"""Simulated GPUs of models in configs/hardware.toml, and machines that have them."""

from dataclasses import replace

from codecfleet.cluster.probes.gpus.hardware import load_hardware
from codecfleet.cluster.simulated.devices import SimulatedDevice, SimulatedNode
from codecfleet.cluster.simulated.fleet_file import MachineEntry, resolved_machine


def gpu(model: str, uuid: str, **keys: object) -> SimulatedDevice:
    """Return a GPU of a model; ``keys`` are those of a device in a fleet file."""
    machine = MachineEntry.model_validate({"cores": 1, "memory_gib": 1, "devices": [{"model": model, **keys}]})
    found = resolved_machine("node", machine, where="a test", hardware=load_hardware())
    return replace(found.devices[0], uuid=uuid)


def node(*devices: SimulatedDevice, driver: str = "580.159.04") -> SimulatedNode:
    """Return a machine with these devices alone."""
    return SimulatedNode(name="node", cores=16, memory_bytes=64 << 30, driver=driver, devices=devices)
