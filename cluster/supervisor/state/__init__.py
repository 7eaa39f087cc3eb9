"""The supervisor's state."""

from .events import Order, Reserve, Start
from .messages import FoundWorker, RayNode
from .stations import StationState, has_device

__all__ = ["FoundWorker", "Order", "RayNode", "Reserve", "Start", "StationState", "has_device"]
