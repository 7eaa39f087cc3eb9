"""Metrics: the table of all metrics, and samples of the supervisor's state and events."""
