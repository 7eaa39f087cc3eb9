"""Structured logs of a cluster's processes: entries as lines for people and as JSON."""
