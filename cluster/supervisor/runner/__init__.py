"""The supervisor's process: carries decisions out on Ray."""

from .backend import Hands

__all__ = ["Hands"]
