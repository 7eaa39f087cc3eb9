"""What a private Ray of this process will run on, known before it starts."""

from .. import machine
from ..placement.model.inventory import Inventory, processor_of
from ..probes.nvml import can_load_nvml
from ..ray.object_store import store_bytes


def sole_processor() -> Inventory | None:
    """Return this machine as a private Ray will count it: less its object store; None where it may have GPUs."""
    if can_load_nvml():
        return None
    left_bytes = machine.memory_bytes() - store_bytes()
    return Inventory((processor_of("this machine", "this machine", machine.cores(), left_bytes),))
