"""Fixtures that several folders use."""

from .runner.test_runner import clock, make_runner
from .watched_nodes import watched

__all__ = ["clock", "make_runner", "watched"]
