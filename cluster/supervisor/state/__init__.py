"""The supervisor's state."""

from .events import Order, Reserve, Start
from .messages import FoundWorker, RayNode

__all__ = ["FoundWorker", "Order", "RayNode", "Reserve", "Start"]
