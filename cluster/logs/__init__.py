"""Structured logs of a cluster's processes: entries as readable lines and as JSON."""
