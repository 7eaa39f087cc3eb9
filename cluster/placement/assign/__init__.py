"""Chooses devices and sessions for demands."""

from .assignment import place
from .prediction import LaneSchedule, Prediction, predict

__all__ = ["LaneSchedule", "Prediction", "place", "predict"]
