"""This machine's GPUs, known at once: by NVML's names, and by the tables of what each model can do."""

from .placement.build import documented_devices
from .placement.inventory import Device
from .probes.absence import NotApplicable
from .probes.nvml_child import probe_nvml_in_child

__all__ = ["known_gpus"]

NVML_LIMIT_S = 10.0


def known_gpus(node: str) -> tuple[Device, ...]:
    """Return this machine's GPUs as NVML names them, able to do what the tables say: no codec is tried."""
    nvml = probe_nvml_in_child(NVML_LIMIT_S).nvml
    return () if isinstance(nvml, NotApplicable) else documented_devices(nvml, node)
