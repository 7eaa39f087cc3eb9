"""The values used in placement: demand, inventory, policy, placement."""

from .demand import USUAL_THREADS, Demand, EncoderChoice, EncoderKind, Rendition, plain_demand
from .inventory import Device, DeviceState, Inventory, Node, processor_of
from .placement import Placement, Refusal
from .policy import Policy, load_policy, shared_by_policy
from .preview import PlacementPreview, preview_of

__all__ = [
    "USUAL_THREADS",
    "Demand",
    "Device",
    "DeviceState",
    "EncoderChoice",
    "EncoderKind",
    "Inventory",
    "Node",
    "Placement",
    "PlacementPreview",
    "Policy",
    "Refusal",
    "Rendition",
    "load_policy",
    "plain_demand",
    "preview_of",
    "processor_of",
    "shared_by_policy",
]
