"""Finds this machine's GPUs without a probe, from NVML and from the tables of GPU models."""

import os
from dataclasses import dataclass, replace

from ..placement.build import documented_devices
from ..placement.model.inventory import Device, cordoned
from ..probes.gpus.devices import NvmlReport
from ..probes.gpus.nvml_child import probe_nvml_in_child
from ..probes.gpus.visible_device import CONTAINER_VARIABLE, CUDA_VARIABLE
from ..probes.nvml.calls import can_load_nvml
from ..probes.report.absence import Maybe, Unavailable
from ..probes.report.gpu_identity import ShownGpus, named, on_node
from ..worker_names import NodeId

NVML_LIMIT_S = 10.0
EVERY_GPU = 1 << 10
"""Stands for Ray's count of GPUs before Ray has counted: more than any machine has, so that no GPU is hidden."""


@dataclass(frozen=True, slots=True)
class KnownGpus:
    """A machine's GPUs and slices."""

    devices: tuple[Device, ...]
    shown: ShownGpus | None  # the devices that this process's private Ray sees
    trouble: str = ""  # why NVML did not list the GPUs; "" if it listed them or is not installed


NO_GPUS = KnownGpus((), None)


def known_gpus(node: NodeId) -> KnownGpus:
    """Return this machine's GPUs as NVML lists them, with documented capabilities; no codec is tried."""
    return listed(node, probe_nvml_in_child(NVML_LIMIT_S).nvml) if can_load_nvml() else NO_GPUS


def listed(node: NodeId, nvml: Maybe[NvmlReport]) -> KnownGpus:
    """Return a machine's GPUs from NVML's answer."""
    if isinstance(nvml, Unavailable):
        return KnownGpus((), None, f"NVML did not list this machine's GPUs: {nvml.reason}")
    gpus = tuple(map(named, nvml.devices))
    shown = ShownGpus(gpus, os.environ.get(CUDA_VARIABLE), os.environ.get(CONTAINER_VARIABLE))
    hidden = {on_node(node, name): reason for name, reason in shown.units(EVERY_GPU).hidden.items()}
    devices = (
        cordoned(device, hidden[device.device]) if device.device in hidden else device
        for device in documented_devices(nvml, node)
    )
    return KnownGpus(tuple(devices), replace(shown, cuda=shown.for_ray or shown.cuda))
