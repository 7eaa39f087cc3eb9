"""The supervisor's state."""

from .events import Order, Reserve, Resize, Start, TellNode
from .messages import FoundWorker, RayNode
from .stations import StationState

__all__ = ["FoundWorker", "Order", "RayNode", "Reserve", "Resize", "Start", "StationState", "TellNode"]
