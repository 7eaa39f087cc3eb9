"""Structured logs of a cluster's processes, as readable lines or as JSON."""
