"""Metrics: their table, and samples of the supervisor's state and events."""
